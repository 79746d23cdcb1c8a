"""The numbers of a performance run, computed from the request log by LoadGen's formulae."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runs.benchmark import MIN_TOKENS_LOADGEN_ACCEPTS
from runs.errors import InputError
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.early_stopping import (
    SECOND_PERCENTILE,
    estimate_percentile,
    judge_latencies,
    late_queries_allowed,
    min_queries,
)
from runs.loadgen.trace_log import Trace
from runs.numbers.numbers import PERCENTILE_SHARES, LatencyNumbers, Numbers
from runs.numbers.result import EarlyStopping
from runs.numbers.timeline import Timeline, TimeSource, timeline
from runs.record.requests_log import RequestTable


@dataclass(frozen=True)
class Derived:
    """The recomputed numbers, and the values that they are based on."""

    source: TimeSource
    scenario: str
    sample_count: int
    query_count: int
    output_tokens: int
    duration_ns: int  # duration that LoadGen compares with the minimum duration
    numbers: Numbers
    early_stopping: EarlyStopping
    # Conditions of LoadGen's VALID, by the names of CONDITIONS; if one is False, the run is INVALID.
    conditions: dict[str, bool]
    times: Timeline
    tokens: NDArray[np.int64]  # output tokens as LoadGen counts them, in order of issue
    limits_ns: dict[str, int]  # effective limits by measure: "ttft" and "tpot", or "latency"; Server only


def derive_numbers(detail: DetailLog, requests: RequestTable, trace: Trace | None) -> Derived:
    """Compute the numbers of a performance run.

    Args:
        detail: log with the settings; its results are not used.
        requests: token counts, and times if the trace is missing.

    Raises:
        InputError: If the files do not belong together or to this run.
    """
    if trace is not None and len(trace) > 0 and not np.array_equal(trace.sample_seq, requests.seq):
        raise InputError(
            f"the trace has {len(trace)} samples and requests.jsonl has {len(requests)}, or their samples differ",
            "use the unchanged trace and requests.jsonl of one run",
        )
    return evaluate_times(detail, timeline(detail, requests, trace), requests.output_tokens)


def evaluate_times(detail: DetailLog, times: Timeline, output_tokens: NDArray[np.int64]) -> Derived:
    """Compute the numbers from prepared times; `output_tokens` is in order of issue."""
    # LoadGen logs an error for a count below 2 and continues with 0.
    tokens = np.where(output_tokens < MIN_TOKENS_LOADGEN_ACCEPTS, 0, output_tokens)
    measures_ns = {"latency": times.latency_ns}
    if times.ttft_ns is not None:
        measures_ns["tpot"] = time_per_output_token_ns(times.latency_ns, times.ttft_ns, tokens)
        measures_ns["ttft"] = times.ttft_ns
    total_tokens = int(tokens.sum())
    rates = _rates(detail.scenario, times, total_tokens if detail.uses_token_latencies else None)
    latencies = {f"{name}_ns": loadgen_statistics(values_ns) for name, values_ns in measures_ns.items()}
    numbers = Numbers.model_validate({**rates, **latencies})
    if times.ttft_ns is not None:
        del measures_ns["latency"]  # with token latencies, the total latency has no limit
    limits_ns = {name: detail.integer(_LIMITS[name]) for name in measures_ns if detail.scenario == "Server"}
    stopping = _early_stopping(detail, measures_ns, limits_ns)
    query_count = 1 if detail.scenario == "Offline" else len(times)
    duration_ns = _duration_ns(detail.scenario, times)
    return Derived(
        source=times.source,
        scenario=detail.scenario,
        sample_count=len(times),
        query_count=query_count,
        output_tokens=total_tokens,
        duration_ns=duration_ns,
        numbers=numbers,
        early_stopping=stopping,
        conditions={
            "min_duration_met": duration_ns >= detail.integer("effective_min_duration_ms") * 1_000_000,
            "min_queries_met": query_count >= detail.integer("effective_min_query_count")
            and len(times) >= detail.integer("effective_min_sample_count"),
            "perf_constraints_met": all(
                _at_share(np.sort(measures_ns[name]), stopping.percentile) <= limit_ns
                for name, limit_ns in limits_ns.items()
            ),
            "early_stopping_met": stopping.met,
        },
        times=times,
        tokens=tokens,
        limits_ns=limits_ns,
    )


def loadgen_statistics(values_ns: NDArray[np.int64]) -> LatencyNumbers:
    """Return LoadGen's statistics of a non-empty array in whole ns; the mean is truncated."""
    ordered = np.sort(values_ns)
    total = int(ordered.sum())
    mean = abs(total) // len(ordered) * (1 if total >= 0 else -1)
    percentiles = {name: _at_share(ordered, share) for name, share in PERCENTILE_SHARES.items()}
    return LatencyNumbers(min=int(ordered[0]), mean=mean, max=int(ordered[-1]), **percentiles)


def time_per_output_token_ns(
    latency_ns: NDArray[np.int64], ttft_ns: NDArray[np.int64], tokens: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return (latency - TTFT) / (tokens - 1) per sample, truncated; negative if `tokens` is 0."""
    span_ns = latency_ns - ttft_ns
    gaps = tokens - 1
    result: NDArray[np.int64] = np.abs(span_ns) // np.abs(gaps) * np.sign(span_ns) * np.sign(gaps)
    return result


def _at_share(ordered: NDArray[np.int64], share: float) -> int:
    """Return the percentile as LoadGen computes it, without interpolation."""
    return int(ordered[int(len(ordered) * share)])


def _duration_ns(scenario: str, times: Timeline) -> int:
    """Return the time that LoadGen compares with the minimum duration."""
    if scenario == "Offline":
        return int(times.latency_ns.max())
    return int(times.scheduled_ns[-1] if scenario == "Server" else times.issued_ns[-1])


def _rates(scenario: str, times: Timeline, tokens: int | None) -> dict[str, float | None]:
    """Return samples and tokens per second; without token latencies, no tokens."""
    count = len(times)
    if scenario == "Offline":
        longest_ns = int(times.latency_ns.max())
        return {
            "samples_per_second": _per_second(count, longest_ns),
            "tokens_per_second": _per_second(tokens, longest_ns),
        }
    last_issued_ns = int(times.issued_ns[-1])
    # The query that was issued last may not be the query that completed last.
    last_done_ns = int(times.scheduled_ns[-1] + times.latency_ns[-1])
    mean_latency_ns = int(times.latency_ns.sum()) // count
    rates = {
        "tokens_per_second": _per_second(tokens, last_done_ns),
        "tokens_per_second_with_overhead": _per_second(tokens, last_issued_ns),
        "tokens_per_second_without_overhead": _per_second(None if tokens is None else tokens / count, mean_latency_ns),
    }
    # The time range ends with the start of the last query, so this query is not counted.
    if scenario == "Server":
        rates["samples_per_second"] = _per_second(count - 1, last_done_ns)
        rates["scheduled_samples_per_second"] = _per_second(count - 1, int(times.scheduled_ns[-1]))
    else:
        rates["samples_per_second"] = _per_second(count - 1, last_issued_ns)
        rates["samples_per_second_without_overhead"] = _per_second(1, mean_latency_ns)
    return rates


def _per_second(amount: float | None, duration_ns: int) -> float | None:
    return None if amount is None or duration_ns <= 0 else amount * 1e9 / duration_ns


# Effective latency limits, by measure; Server only.
_LIMITS = {
    "latency": "effective_target_latency_ns",
    "tpot": "requested_server_tpot_latency",
    "ttft": "requested_server_ttft_latency",
}


def _early_stopping(
    detail: DetailLog, measures_ns: dict[str, NDArray[np.int64]], limits_ns: dict[str, int]
) -> EarlyStopping:
    percentile = detail.number("effective_target_latency_percentile")
    if not 0.01 <= percentile <= 0.9999:
        raise InputError(
            f"{detail.path}: effective_target_latency_percentile is {percentile}",
            "use the unchanged log, where LoadGen writes a share between 0.01 and 0.9999",
        )
    if detail.scenario == "Offline":
        return EarlyStopping(True, percentile, 0, {}, {})
    if detail.scenario == "Server":
        verdicts = {
            name: judge_latencies(measures_ns[name], limit_ns, percentile) for name, limit_ns in limits_ns.items()
        }
        met = all(verdict.met for verdict in verdicts.values())
        return EarlyStopping(met, percentile, min_queries(0, percentile), verdicts, {})
    estimates_ns = {
        f"{name}_p{share * 100:g}": estimate_percentile(np.sort(values_ns), share)
        for name, values_ns in measures_ns.items()
        for share in (percentile, SECOND_PERCENTILE)
    }
    # An estimate excludes at least one query.
    met = late_queries_allowed(len(next(iter(measures_ns.values()))), percentile) >= 1
    return EarlyStopping(met, percentile, min_queries(1, percentile), {}, estimates_ns)
