"""All numbers of the client's report, recomputed from events.jsonl by the client's own definitions.

[mlcommons/endpoints ea332753: metrics/report.py, metrics/early_stopping.py, services/metrics_aggregator/]
  tracked    issued in the measured phase; the report covers tracked samples only
  completed  ended with a response or with an error, so failed samples are included
  duration   from the start of measuring to the last completion of a tracked sample
  window     Poisson only: from the first issue to the completion of the sample that was issued last
  QPS, TPS   completed / duration and tokens / duration; over the window (completed - 1) / window and tokens / window
  TTFT       first piece - issue; latency: completion - issue, also of failed samples
  TPOT       (completion - first piece) / tokens after the first piece
  tokens     counted by the client, which tokenizes the text of each response
"""

import math
from collections import Counter
from collections.abc import Mapping
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qsl.tokenizers import Tokenizer
from runs.loadgen.early_stopping import late_queries_allowed
from runs.mlperf_endpoints.events import MESSAGES, NO_TIME, NOTHING, TEXT, EventColumn, Events

EventValues = EventColumn | NDArray[np.float64]
Metrics = dict[str, Any]  # metric in final_snapshot.json → value of a counter, or statistics of a series

PERCENTILES = (99.9, 99.0, 97.0, 95.0, 90.0, 80.0, 75.0, 50.0, 25.0, 10.0, 5.0, 1.0)
BUCKETS = 30
# Fields of the summary, and the metrics of the snapshot that they come from.
TTFT, TPOT, LATENCY, INPUT, OUTPUT, CHUNKS = "ttft_ns", "tpot_ns", "sample_latency_ns", "isl", "osl", "chunk_delta_ns"
FIELDS = {
    "ttft": TTFT, "tpot": TPOT, "latency": LATENCY, "input_sequence_lengths": INPUT, "output_sequence_lengths": OUTPUT,
}  # fmt: skip
EMPTY = {"count": 0, "early_stopping_percentiles": None}  # statistics of a series without values
SERIES = (*FIELDS.values(), CHUNKS)
EARLY_STOPPING = (TTFT, TPOT, LATENCY)  # series with early-stopping estimates of the percentiles from p50
REASON, REASONS = "tracked_finish_reason_", ("stop", "length", "tool_calls", "content_filter", "function_call", "other")
ISSUED, COMPLETED, FAILED = (f"tracked_samples_{what}" for what in ("issued", "completed", "failed"))
DURATION, WINDOW = "tracked_duration_ns", "legacy_loadgen_window_duration_ns"
COUNTERS = (*(REASON + reason for reason in REASONS), ISSUED, COMPLETED, FAILED, DURATION, WINDOW)
ROUNDING = 1e-9  # relative tolerance; the rounding of doubles is far smaller, a useful change far larger
BATCH = 2_000  # texts that are tokenized in one call


class ApproximateFloat(float):
    """A number with a rounding error above ROUNDING; `within` is its relative tolerance."""

    within: float = ROUNDING


def derive_metrics(events: Events, *, streaming: bool, early_stopping: bool, tokens: EventColumn | None) -> Metrics:
    """Recompute all numbers from the events; numbers of tokens need the token counts."""
    tracked, done = events.tracked, events.completed & events.tracked
    issued, first, complete = events.issued_ns, events.first_ns, events.complete_ns
    values: dict[str, EventValues] = {LATENCY: (complete - issued)[done]}
    if streaming:
        values[TTFT] = (first - issued)[tracked & (first != NO_TIME)]
        if events.chunk_ns is not None:
            values[CHUNKS] = events.chunk_ns
    if tokens is not None:
        values[OUTPUT] = tokens[0, events.answered]
        if streaming:
            counted = done & (first != NO_TIME) & (events.rest_bytes > 0) & (tokens[1] > 0)
            values[TPOT] = (complete - first)[counted] / tokens[1, counted]
    kinds = np.unique(events.prompt_kind[tracked])
    if MESSAGES not in kinds and (tokens is not None or TEXT not in kinds):
        sizes = events.prompt_size
        if tokens is not None:
            sizes = np.where(events.prompt_kind == TEXT, tokens[2], sizes)
        values[INPUT] = sizes[tracked & (events.prompt_kind != NOTHING)]
    return _counters(events, done) | {
        name: client_statistics(series, early_stopping=early_stopping and name in EARLY_STOPPING)
        for name, series in values.items()
    }


def _counters(events: Events, done: NDArray[np.bool_]) -> dict[str, int]:
    names = [reason if reason in REASONS else "other" for reason in events.reasons]
    ended = Counter(names[place] for place in events.reason[done].tolist() if place >= 0)
    complete, issued = events.complete_ns[done], events.issued_ns[done]
    starts_ns = [start_ns for start_ns, _ in events.phases]
    duration_ns = window_ns = 0
    for start_ns, next_ns in zip(starts_ns, [*starts_ns[1:], np.iinfo(np.int64).max], strict=False):
        completed = complete[(issued >= start_ns) & (issued < next_ns)]
        duration_ns += max(int(completed.max()) - start_ns, 0) if len(completed) else 0
    if len(complete):
        window_ns = max(int(complete[np.argmax(issued)] - events.issued_ns[events.tracked].min()), 0)
    return {REASON + reason: ended[reason] for reason in REASONS} | {
        "total_samples_issued": events.counts["sample.issued"],
        "total_samples_completed": events.counts["sample.complete"],
        "total_samples_failed": sum(count for kind, count in events.counts.items() if kind.startswith("error.")),
        ISSUED: int(events.tracked.sum()),
        COMPLETED: int(done.sum()),
        FAILED: int((events.failed & events.tracked).sum()),
        DURATION: duration_ns,
        WINDOW: window_ns,
        "total_duration_ns": max(events.last_ns - events.started_ns, 0) if events.started_ns != NO_TIME else 0,
    }


def count_tokens(events: Events, tokenizer: Tokenizer) -> EventColumn | None:
    """Return three rows of token counts: response, response after its first piece, and prompt of each sample.

    Return None if a chat template would have to join the parts of a response.
    """
    if np.any(events.response_kind[events.tracked] == MESSAGES):
        return None
    counts = np.zeros((3, len(events)), np.int64)
    special = len(tokenizer.encode(""))  # The client does not count the special tokens that a tokenizer adds.
    tokens_of: dict[int, int] = {}  # hash of a text → tokens; texts repeat in each pass over the dataset

    def count(column: EventColumn, texts: list[tuple[int, str]]) -> None:
        new = {hash(text): text for _, text in texts if hash(text) not in tokens_of}
        tokens_of.update(
            zip(new, (len(ids) - special for ids in tokenizer.encode_batch(list(new.values()))), strict=True)
        )
        column[[row for row, _ in texts]] = [tokens_of[hash(text)] for _, text in texts]

    responses, prompts = events.responses(), events.prompts()
    while part := list(islice(responses, BATCH)):
        count(counts[0], [(row, response.text) for row, response in part])
        count(counts[1], [(row, response.rest) for row, response in part])
    while texts := list(islice(prompts, BATCH)):
        count(counts[2], texts)
    return counts


def client_statistics(values: EventValues, *, early_stopping: bool) -> dict[str, Any]:
    """Return the statistics of a series in the form of the client's snapshot. Percentiles are observed values."""
    ordered: EventValues = values.copy()
    ordered.sort()
    listed = ordered.tolist()
    summary: dict[str, Any] = EMPTY | {"count": len(listed)}
    if early_stopping:
        summary["early_stopping_percentiles"] = {
            str(share): listed[-late] if (late := late_queries_allowed(len(listed), share / 100)) >= 1 else None
            for share in PERCENTILES
            if share >= 50.0
        }
    if not listed:
        return summary
    # The buckets are equal steps of the logarithm; values outside count in the first or last bucket.
    low = max(float(listed[0]), 1.0)
    first, last = math.log(low), math.log(max(float(listed[-1]), low * 10))
    edges = [math.exp(first + number * ((last - first) / BUCKETS)) for number in range(BUCKETS + 1)]
    counts = np.histogram(np.clip(ordered, edges[0], edges[-1]), bins=edges)[0].tolist()
    return summary | {
        "total": sum(listed) if ordered.dtype == np.int64 else math.fsum(listed),
        "min": listed[0],
        "max": listed[-1],
        "sum_sq": float(sum(value * value for value in listed)),
        "percentiles": {str(share): np.percentile(ordered, share, method="lower").item() for share in PERCENTILES},
        "histogram": list(zip(pairwise(edges), counts, strict=True)),
    }


def summarized(stat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of a series in the form of result_summary.json."""
    names = ("total", "min", "max", "percentiles", "early_stopping_percentiles")
    count, total, squares = stat["count"], stat.get("total"), stat.get("sum_sq")
    if not count or total is None or squares is None:
        empty = dict.fromkeys(("total", "min", "max", "median", "avg", "std_dev"))
        return {**empty, "early_stopping_percentiles": stat["early_stopping_percentiles"]}
    spread = max((squares - total * total / count) / (count - 1), 0.0) if count > 1 else 0.0
    deviation = ApproximateFloat(math.sqrt(spread))
    if spread:  # It is the difference of two large rounded sums.
        deviation.within = ROUNDING + ROUNDING * squares / ((count - 1) * spread)
    return {name: stat[name] for name in names} | {
        "median": stat["percentiles"].get("50.0"),
        "avg": total / count,
        "std_dev": deviation,
        "histogram": {
            "buckets": [bucket for bucket, _ in stat["histogram"]],
            "counts": [number for _, number in stat["histogram"]],
        },
    }


def summary_of(metrics: Metrics, *, windowed: bool) -> dict[str, Any]:
    """Return the content of result_summary.json that follows from the metrics."""
    tokens = metrics.get(OUTPUT, EMPTY)
    qps, tps = windowed_rates(metrics, tokens["total"] if tokens["count"] else None, windowed)
    return {
        "n_samples_issued": metrics[ISSUED],
        "n_samples_completed": metrics[COMPLETED],
        "n_samples_failed": metrics[FAILED],
        "duration_ns": metrics[DURATION] or None,
        WINDOW: metrics[WINDOW] if windowed else None,
        "finish_reason_counts": {reason: metrics[REASON + reason] for reason in REASONS},
        "qps": qps,
        **({"tps": tps} if OUTPUT in metrics else {}),
        **{name: summarized(metrics[metric]) for name, metric in FIELDS.items() if metric in metrics},
    }


def windowed_rates(metrics: Metrics, tokens: float | None, windowed: bool) -> tuple[float | None, float | None]:
    """Return QPS and TPS over the window or over the duration; None without a time span or tokens."""
    span_s = metrics[WINDOW if windowed else DURATION] / 1e9
    if span_s <= 0:
        return None, None
    return (metrics[COMPLETED] - windowed) / span_s, None if tokens is None else tokens / span_s


def recomputed_numbers(metrics: Metrics) -> dict[str, Any]:
    """Return all recomputed numbers for programs. `answered_qps` counts samples that did not fail, per second."""
    series = {name: summarized(stat) for name, stat in metrics.items() if isinstance(stat, dict)}
    for stat in series.values():
        stat.pop("histogram", None)
        stat["std_dev"] = stat["std_dev"] and float(stat["std_dev"])
    tokens, span_s = metrics.get(OUTPUT, {}).get("total"), metrics[DURATION] / 1e9
    qps, tps = windowed_rates(metrics, tokens, False)
    window_qps, window_tps = windowed_rates(metrics, tokens, True)
    return metrics | series | {
        "qps": qps, "tps": tps, "window_qps": window_qps, "window_tps": window_tps,
        "answered_qps": (metrics[COMPLETED] - metrics[FAILED]) / span_s if span_s > 0 else None,
    }  # fmt: skip
