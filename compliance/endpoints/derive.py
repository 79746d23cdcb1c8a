"""Every number of the client's report, derived again from events.jsonl by the client's own definitions.

[mlcommons/endpoints ea332753: metrics/report.py, metrics/early_stopping.py, services/metrics_aggregator/]
  tracked    issued while the client measured; all that is reported is about tracked samples
  completed  answered, or ended by an error: what failed is in it
  duration   from the start of measuring to the last completion of a tracked sample
  window     Poisson only: from the first issue to the completion of the sample that was issued last
  QPS, TPS   completed / duration and tokens / duration; over the window (completed - 1) / window and tokens / window
  TTFT       first piece - issue; latency: completion - issue, of what failed too
  TPOT       (completion - first piece) / tokens after the first piece
  tokens     counted by the client, which tokenises the text of each answer again
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qsl.tokenizers import Tokenizer
from runs.endpoints.events import IDS, MESSAGES, NO_TIME, NOTHING, TEXT, Events
from runs.endpoints.folder import Histogram, Series
from runs.loadgen.early_stopping import latecomers_allowed

Values = NDArray[np.int64] | NDArray[np.float64]

PERCENTILES = (99.9, 99.0, 97.0, 95.0, 90.0, 80.0, 75.0, 50.0, 25.0, 10.0, 5.0, 1.0)
BUCKETS = 30
# Fields of the summary, and the metrics of the snapshot that they are made of.
TTFT, TPOT, LATENCY, INPUT, OUTPUT, CHUNKS = "ttft_ns", "tpot_ns", "sample_latency_ns", "isl", "osl", "chunk_delta_ns"
FIELDS = {
    "ttft": TTFT, "tpot": TPOT, "latency": LATENCY, "input_sequence_lengths": INPUT, "output_sequence_lengths": OUTPUT,
}  # fmt: skip
EARLY_STOPPING = (TTFT, TPOT, LATENCY)  # series that it estimates percentiles of, from the median upwards
REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call")
BATCH = 2_000  # texts that are tokenised in one call


@dataclass(frozen=True)
class Tokens:
    """Tokens of texts, counted again, in order of the samples."""

    output: NDArray[np.int64]  # of each answer
    rest: NDArray[np.int64]  # after its first piece


@dataclass(eq=False)
class Derived:
    """The numbers of one run."""

    events: Events
    streaming: bool
    counters: dict[str, int] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)  # of each series; one that is not there is not known

    @property
    def completed(self) -> int:
        return self.counters["tracked_samples_completed"]

    @property
    def failed(self) -> int:
        return self.counters["tracked_samples_failed"]

    @property
    def duration_ns(self) -> int:
        return self.counters["tracked_duration_ns"]

    @property
    def window_ns(self) -> int:
        return self.counters["legacy_loadgen_window_duration_ns"]

    def rates(self, windowed: bool, tokens: float | None) -> tuple[float | None, float | None]:
        """QPS and TPS over the window or over the duration; None where there is no time or no token."""
        span_ns = self.window_ns if windowed else self.duration_ns
        if span_ns <= 0:
            return None, None
        span_s = span_ns / 1e9
        return (self.completed - windowed) / span_s, None if tokens is None else tokens / span_s

    @property
    def answered_per_second(self) -> float | None:
        """Answers, without what failed, per second of the duration."""
        return (self.completed - self.failed) / (self.duration_ns / 1e9) if self.duration_ns > 0 else None


def derive(events: Events, *, streaming: bool | None, tokens: Tokens | None = None) -> Derived:
    """All numbers that the events tell; of tokens only with their counts.

    Args:
        streaming: as config.yaml has it; None: whether there are first tokens.
    """
    if streaming is None:
        streaming = bool(np.any(events.first_ns != NO_TIME))
    found = Derived(events, streaming)
    tracked, done = events.tracked, events.completed & events.tracked
    found.counters = {**_counts(events, done), **_times(events, done)}
    issued, first, complete = events.issued_ns, events.first_ns, events.complete_ns
    found.values[LATENCY] = (complete - issued)[done]
    if streaming:
        found.values[TTFT] = (first - issued)[tracked & (first != NO_TIME)]
        if events.chunk_ns is not None:
            found.values[CHUNKS] = events.chunk_ns
    if tokens is not None:
        found.values[OUTPUT] = tokens.output[done & (events.answer_kind != NOTHING)]
        if streaming:
            counted = done & (first != NO_TIME) & (events.rest_bytes > 0) & (tokens.rest > 0)
            found.values[TPOT] = (complete - first)[counted] / tokens.rest[counted]
    if not np.any(tracked & ((events.prompt_kind == TEXT) | (events.prompt_kind == MESSAGES))):
        found.values[INPUT] = events.prompt_size[tracked & (events.prompt_kind == IDS)]
    return found


def _counts(events: Events, done: NDArray[np.bool_]) -> dict[str, int]:
    told = Counter(events.reasons[place] for place in events.reason[done].tolist() if place >= 0)
    counters = {f"tracked_finish_reason_{name}": told.pop(name, 0) for name in REASONS}
    return counters | {
        "tracked_finish_reason_other": sum(told.values()),
        "total_samples_issued": events.counts.get("sample.issued", 0),
        "total_samples_completed": events.counts.get("sample.complete", 0),
        "total_samples_failed": events.errors,
        "tracked_samples_issued": int(events.tracked.sum()),
        "tracked_samples_completed": int(done.sum()),
        "tracked_samples_failed": int((events.failed & events.tracked).sum()),
    }


def _times(events: Events, done: NDArray[np.bool_]) -> dict[str, int]:
    duration_ns = 0
    complete, issued = events.complete_ns[done], events.issued_ns[done]
    for number, (start_ns, _) in enumerate(events.phases):
        end_ns = events.phases[number + 1][0] if number + 1 < len(events.phases) else np.iinfo(np.int64).max
        own = complete[(issued >= start_ns) & (issued < end_ns)]
        duration_ns += max(int(own.max()) - start_ns, 0) if len(own) else 0
    window_ns = 0
    if len(complete):
        last = int(np.flatnonzero(issued == issued.max())[0])
        window_ns = max(int(complete[last] - events.issued_ns[events.tracked].min()), 0)
    return {
        "tracked_duration_ns": duration_ns,
        "legacy_loadgen_window_duration_ns": window_ns,
        "total_duration_ns": max(events.last_ns - events.started_ns, 0) if events.started_ns != NO_TIME else 0,
    }


def count_tokens(events: Events, tokenizer: Tokenizer) -> Tokens | None:
    """Count the tokens of all answers; None where an answer has parts that a chat template joins."""
    if np.any(events.answer_kind[events.tracked] == MESSAGES):
        return None
    found = Tokens(np.zeros(len(events), np.int64), np.zeros(len(events), np.int64))
    special = len(tokenizer.encode(""))  # the client counts without what a tokenizer puts before or after a text
    answers = events.answers()
    while part := list(islice(answers, BATCH)):
        for column, texts in (
            (found.output, [(row, answer.text) for row, answer in part]),
            (found.rest, [(row, answer.rest) for row, answer in part if answer.rest]),
        ):
            encoded = tokenizer.encode_batch([text for _, text in texts])
            for (row, text), ids in zip(texts, encoded, strict=True):
                column[row] = len(ids) - special if text else 0
    return found


def percentile(ordered: Values, share: float) -> float:
    """The value that the client reports: an observed one, no mean of two."""
    return float(np.percentile(ordered, share, method="lower"))


def series(values: Values, *, early_stopping: bool) -> tuple[Series, float]:
    """Statistics as the client makes them, and the sum of squares that they rest on."""
    ordered: Values = values.copy()
    ordered.sort()
    count, whole = len(ordered), ordered.dtype == np.int64
    estimates = dict(_estimates(ordered)) if early_stopping else None
    if not count:
        return Series(early_stopping_percentiles=estimates), 0
    listed = ordered.tolist()
    total = sum(listed) if whole else math.fsum(listed)
    squares = float(sum(value * value for value in listed))
    spread = (squares - total * total / count) / (count - 1) if count > 1 else 0.0
    by_name: dict[str, float | int | None] = {str(share): percentile(ordered, share) for share in PERCENTILES}
    edges = bucket_edges(listed[0], listed[-1], BUCKETS)
    found = Series(
        total=total,
        min=listed[0],
        max=listed[-1],
        median=by_name["50.0"],
        avg=total / count,
        std_dev=math.sqrt(max(spread, 0.0)),
        percentiles=by_name,
        early_stopping_percentiles=estimates,
        histogram=Histogram(buckets=list(pairwise(edges)), counts=bucket_counts(ordered, edges)),
    )
    return found, squares


def _estimates(ordered: Values) -> Iterator[tuple[str, float | None]]:
    """Upper bounds of the percentiles with 99 % confidence, as LoadGen's early stopping has them."""
    count = len(ordered)
    for share in PERCENTILES:
        if share >= 50.0:
            late = latecomers_allowed(count, share / 100)
            yield str(share), float(ordered[count - late]) if late >= 1 else None


def bucket_edges(low: float, high: float, buckets: int) -> list[float]:
    """Edges in equal steps of the logarithm, from the smallest to the largest value."""
    low = max(float(low), 1.0)
    first, last = math.log(low), math.log(max(float(high), low * 10))
    return [math.exp(first + number * ((last - first) / buckets)) for number in range(buckets + 1)]


def bucket_counts(ordered: Values, edges: list[float]) -> list[int]:
    """How many values lie in each bucket; what lies outside counts in the first or the last."""
    return [int(count) for count in np.histogram(np.clip(ordered, edges[0], edges[-1]), bins=edges)[0]]


def numbers(found: Derived) -> Mapping[str, Any]:
    """For programs: everything that was derived."""
    record: dict[str, Any] = dict(found.counters)
    for name, values in found.values.items():
        statistics, _ = series(values, early_stopping=name in EARLY_STOPPING)
        record[name] = statistics.model_dump(exclude={"histogram"})
    tokens = int(found.values[OUTPUT].sum()) if OUTPUT in found.values else None
    qps, tps = found.rates(False, tokens)
    window_qps, window_tps = found.rates(True, tokens)
    return record | {
        "qps": qps,
        "tps": tps,
        "window_qps": window_qps,
        "window_tps": window_tps,
        "answered_qps": found.answered_per_second,
    }
