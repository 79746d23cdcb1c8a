"""Comparison of the numbers that LoadGen reports with those recomputed from the request log.

With LoadGen's trace everything must agree exactly: nanoseconds to the last digit, rates to the six digits that LoadGen
prints. requests.jsonl has the harness's own times: it reads the clock after LoadGen issues a query and before it
returns a token or a response. The difference is 10 to 100 µs on an idle machine. On a busy machine the process may lose
the processor between the two readings, or wait for the interpreter lock. The tolerances below allow for that, so no
honest run fails. Counts and tokens are compared exactly.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from runs.loadgen.detail_log import SIX_DIGITS, DetailLog
from runs.loadgen.early_stopping import SECOND_PERCENTILE, late_queries_allowed
from runs.loadgen.replay import expected_samples
from runs.numbers.numbers import (
    CONDITIONS,
    LATENCIES,
    PERCENTILE_SHARES,
    RATE_KEYS,
    RATES,
    LatencyNumbers,
    latency_keys,
    reported_numbers,
)
from runs.numbers.rederive import Derived, loadgen_statistics, time_per_output_token_ns
from runs.numbers.result import Disagreement

# The SingleStream test starts slightly before its first query (measured: 0.2 µs); the trace has only the query.
UNKNOWN_START_NS = 10_000
# Errors of the harness's times without a trace. STAMP_NS: of an ordinary sample. LONE_STAMP_NS: of a single sample that
# decides a minimum or maximum, during which the process may have been stopped. START_STAMP_NS: of the start of an
# Offline run, or of the ends of the time over which rates are computed.
STAMP_NS = 20_000_000
LONE_STAMP_NS = 1_000_000_000
START_STAMP_NS = 100_000_000
# LoadGen's binding takes time to issue n samples in one call, before the harness reads the clock (measured: 0.5 µs
# each).
HANDOVER_NS = 2_000
LATENCY_SHARE = 0.02
LONE_SHARE = 0.10
RATE_SHARE = 0.01
TOLERANCE_FROM = f"times may be off by {STAMP_NS // 10**6} ms, in a single sample by {LONE_STAMP_NS // 10**9} s"
# A percentile with fewer samples above it is treated as decided by a single sample.
FEW_SAMPLES = 20
# Rates over the time to the last response: LoadGen's time includes the harness's, so its rates are not higher.
_FROM_START_TO_END = frozenset({"samples_per_second", "tokens_per_second"})
SEEDS = "replay of the seeds"  # name of a source of the order of issue


def stopped_at_most(samples: int) -> int:
    """Return the number of samples of a run whose times may be off by a stop of any length."""
    return samples // 1_000 + 2


def compare_log(derived: Derived, detail: DetailLog) -> list[Disagreement]:
    """Compare LoadGen's report of a performance run with the re-derived numbers."""
    return [
        *_counts(derived, detail),
        *_rates(derived, detail),
        *_token_sum(derived, detail),
        *_latencies(derived, detail),
        *_validity(derived, detail),
    ]


def compare_order(sample_index: NDArray[np.int64], expected: NDArray[Any], source: str) -> list[Disagreement]:
    """Compare the samples with those that LoadGen issued, according to a source."""
    about: Literal["numbers", "order"] = "order" if source == SEEDS else "numbers"
    if len(sample_index) != len(expected):
        return [Disagreement(f"samples issued ({source})", len(expected), len(sample_index), 0, "samples", about)]
    different = np.flatnonzero(sample_index != expected)
    if len(different) == 0:
        return []
    seq = int(different[0])
    name = f"sample index at seq {seq} ({source}; {len(different)} differ)"
    return [Disagreement(name, int(expected[seq]), int(sample_index[seq]), 0, "", about)]


def _counts(derived: Derived, detail: DetailLog) -> Iterator[Disagreement]:
    queries = detail.integer("result_query_count")
    pairs = [
        ("result_query_count", queries, derived.query_count, "queries"),
        ("samples", expected_samples(detail), derived.sample_count, "samples"),
        ("num_errors", detail.integer("num_errors"), detail.error_count, "error records"),
    ]
    if derived.scenario == "Server" and derived.source == "trace":
        key = "result_overlatency_query_count"
        late = np.count_nonzero(derived.times.latency_ns > detail.integer("effective_target_latency_ns"))
        pairs.append((key, detail.integer(key), int(late), "queries"))
    for name, reported, recomputed, unit in pairs:
        if reported is not None and reported != recomputed:
            yield Disagreement(name, reported, recomputed, 0, unit)


def _rates(derived: Derived, detail: DetailLog) -> Iterator[Disagreement]:
    reported = reported_numbers(detail)
    exact = derived.source == "trace"
    stamp_ns = float(START_STAMP_NS + HANDOVER_NS * derived.sample_count)
    for name in RATES:
        recomputed, logged = getattr(derived.numbers, name), getattr(reported, name)
        if recomputed is None or logged is None:
            continue
        share = SIX_DIGITS
        if derived.scenario == "SingleStream":
            share += UNKNOWN_START_NS / max(_time_of_rates_ns(derived), 1)
        if not exact and name != "scheduled_samples_per_second":  # the schedule involves no time stamps
            if name.endswith("without_overhead"):  # 1 / mean latency
                base_ns, error_ns = int(derived.times.latency_ns.mean()), float(STAMP_NS)
            else:
                base_ns, error_ns = _time_of_rates_ns(derived), stamp_ns
            share = RATE_SHARE + error_ns / max(base_ns, 1)
        above = share if exact or name not in _FROM_START_TO_END else min(share, 3 * SIX_DIGITS)
        if not -share * abs(recomputed) <= logged - recomputed <= above * abs(recomputed):  # true for nan, too
            key = RATE_KEYS[derived.scenario][name]
            yield Disagreement(f"{name} ({key})", logged, recomputed, share * abs(recomputed), "1/s")


def _time_of_rates_ns(derived: Derived) -> int:
    if derived.scenario == "Offline":
        return derived.duration_ns
    return int(derived.times.scheduled_ns[-1] + derived.times.latency_ns[-1])


def _token_sum(derived: Derived, detail: DetailLog) -> Iterator[Disagreement]:
    """Compare the number of tokens. The quotient of two reported rates over one time gives it without a clock."""
    keys = RATE_KEYS[derived.scenario]
    per_token = "tokens_per_second_with_overhead" if derived.scenario == "SingleStream" else "tokens_per_second"
    if keys[per_token] not in detail.values:
        return
    samples_rate = detail.number(keys["samples_per_second"])
    counted = derived.sample_count - (derived.scenario != "Offline")
    if samples_rate <= 0 or counted <= 0:
        return
    reported = detail.number(keys[per_token]) / samples_rate * counted
    tolerance = 2 * SIX_DIGITS * derived.output_tokens
    if not abs(reported - derived.output_tokens) <= tolerance:
        yield Disagreement("output tokens", reported, derived.output_tokens, tolerance, "tokens")


def _latencies(derived: Derived, detail: DetailLog) -> Iterator[Disagreement]:
    reported = reported_numbers(detail)
    for name in LATENCIES:
        recomputed, logged = getattr(derived.numbers, name), getattr(reported, name)
        if recomputed is None and logged is None:
            continue
        if recomputed is None or logged is None:
            logged_state, here = ("nothing" if value is None else "a value" for value in (logged, recomputed))
            yield Disagreement(name, logged_state, here, 0, "")
            continue
        allowance = Allowance(derived, name.removesuffix("_ns"), recomputed)
        for statistic, key in latency_keys(name):
            value, reported_ns = getattr(recomputed, statistic), getattr(logged, statistic)
            tolerance_ns = allowance.of(statistic)
            shift_ns = allowance.shift_ns(value, reported_ns) if statistic in PERCENTILE_SHARES else 0
            if abs(value - reported_ns) > tolerance_ns + shift_ns:
                seq = allowance.outlier(statistic, value < reported_ns)
                yield Disagreement(f"{name}.{statistic} ({key})", reported_ns, value, tolerance_ns, "ns", seq=seq)


class Allowance:
    """Tolerance of the statistics of one measure (latency, ttft or tpot), compared with LoadGen's values; in ns."""

    def __init__(self, derived: Derived, measure: str, latencies: LatencyNumbers) -> None:
        self._derived = derived
        self._measure = measure
        self._latencies = latencies
        self._moved: dict[int, tuple[LatencyNumbers, LatencyNumbers]] = {}

    def of(self, statistic: str) -> float:
        """Return the tolerance of a statistic. The statistic is a field of LatencyNumbers."""
        if self._derived.source == "trace":
            return 0.0
        samples_above = self._derived.sample_count * (1 - PERCENTILE_SHARES.get(statistic, 0))
        lone = statistic in ("min", "max") or samples_above < FEW_SAMPLES
        stamp_ns, share = (LONE_STAMP_NS, LONE_SHARE) if lone else (STAMP_NS, LATENCY_SHARE)
        value: int = getattr(self._latencies, statistic)
        return self._effect_ns(statistic, stamp_ns) + share * abs(value)

    def shift_ns(self, value: int, reported_ns: int) -> int:
        """Return how far stopped samples may move a percentile `value`: far if the times form two groups. The harness's
        times contain at most as much of a stop as LoadGen's.
        """
        if self._derived.source == "trace" or (reported_ns < value and self._measure != "tpot"):
            return 0
        ordered_ns, stopped = self._ordered_ns, stopped_at_most(self._derived.sample_count)
        first, end = (int(np.searchsorted(ordered_ns, value, side)) for side in ("left", "right"))
        if first == end:  # LoadGen writes 0 for a missing estimate
            return 0
        place = min(first + stopped, len(ordered_ns) - 1) if reported_ns > value else max(end - 1 - stopped, 0)
        return abs(int(ordered_ns[place]) - value)

    def outlier(self, statistic: str, is_lower: bool) -> int | None:
        """Return the position of the sample whose value is beyond the reported minimum or maximum."""
        values_ns = _measured_ns(self._derived, self._measure)
        if statistic == "min" and is_lower:
            return int(np.argmin(values_ns))
        return int(np.argmax(values_ns)) if statistic == "max" and not is_lower else None

    @cached_property
    def _ordered_ns(self) -> NDArray[np.int64]:
        return np.sort(_measured_ns(self._derived, self._measure))

    def _effect_ns(self, statistic: str, stamp_ns: int) -> float:
        """Return the change of the statistic if all times are off by `stamp_ns`."""
        if self._derived.scenario == "Offline":
            return max(stamp_ns, START_STAMP_NS) + HANDOVER_NS * self._derived.sample_count
        if self._measure != "tpot":
            return stamp_ns
        # TPOT divides by the number of gaps between tokens, so the effect depends on the samples.
        if stamp_ns not in self._moved:
            low, high = (
                loadgen_statistics(_measured_ns(self._derived, "tpot", error)) for error in (-stamp_ns, stamp_ns)
            )
            self._moved[stamp_ns] = (low, high)
        value = getattr(self._latencies, statistic)
        return float(max(abs(getattr(moved, statistic) - value) for moved in self._moved[stamp_ns]))


def _validity(derived: Derived, detail: DetailLog) -> Iterator[Disagreement]:
    """Compare the verdict and its parts; without a trace, only the parts that timing errors cannot change."""
    count, percentile = derived.query_count, derived.early_stopping.percentile
    # The value at the percentile is in time if at most the samples above it are late.
    allowed = count - 1 - int(count * percentile)
    certain = {
        "min_duration_met": _duration_is_certain(derived, detail),
        "min_queries_met": True,
        "early_stopping_met": _limits_are_certain(derived, late_queries_allowed(count, percentile)),
    }
    if derived.scenario == "Server":
        certain["perf_constraints_met"] = _limits_are_certain(derived, allowed)
    conditions = derived.conditions
    for name, is_certain in certain.items():
        if is_certain and detail.get(CONDITIONS[name]) is not conditions[name]:
            yield Disagreement(CONDITIONS[name], str(detail.get(CONDITIONS[name])), str(conditions[name]), 0, "")
    if all(certain.values()) or any(is_certain and not conditions[name] for name, is_certain in certain.items()):
        verdict = "VALID" if all(conditions.values()) else "INVALID"
        if detail.validity != verdict:
            yield Disagreement("result_validity", detail.validity, verdict, 0, "")
    if derived.scenario == "SingleStream":
        yield from _single_stream_estimates(derived, detail)


def _duration_is_certain(derived: Derived, detail: DetailLog) -> bool:
    if derived.source == "trace" or derived.scenario == "Server":  # in Server, the duration is the schedule's length
        return True
    margin_ns = abs(derived.duration_ns - detail.integer("effective_min_duration_ms") * 1_000_000)
    return margin_ns > LONE_STAMP_NS + HANDOVER_NS * derived.sample_count


def _limits_are_certain(derived: Derived, allowed: int) -> bool:
    """Return whether no timing error could change the verdict on the limits."""
    if derived.source == "trace" or allowed < 0:
        return True
    stopped = stopped_at_most(derived.sample_count)
    fewest, most = (
        [
            int(np.count_nonzero(_measured_ns(derived, name, error_ns) > limit))
            for name, limit in derived.limits_ns.items()
        ]
        for error_ns in (-STAMP_NS, STAMP_NS)
    )
    return any(late - stopped > allowed for late in fewest) or all(late + stopped <= allowed for late in most)


def _measured_ns(derived: Derived, measure: str, error_ns: int = 0) -> NDArray[np.int64]:
    """Return a value per sample, with `error_ns` added to all completion times."""
    times = derived.times
    if measure == "latency" or times.ttft_ns is None:
        return times.latency_ns + error_ns
    if measure == "ttft":
        return times.ttft_ns + error_ns
    return time_per_output_token_ns(times.latency_ns + error_ns, times.ttft_ns, derived.tokens)


def _single_stream_estimates(derived: Derived, detail: DetailLog) -> Iterator[Disagreement]:
    """Compare LoadGen's estimates of the target percentile and p99: of TTFT with token latencies, else of latency."""
    measure, numbers = "ttft", derived.numbers.ttft_ns
    if numbers is None:
        measure, numbers = "latency", derived.numbers.latency_ns
    if numbers is None:
        return
    allowance = Allowance(derived, measure, numbers)
    for key, share in (
        ("early_stopping_latency_ss", derived.early_stopping.percentile),
        ("early_stopping_latency_ms", SECOND_PERCENTILE),
    ):
        # LoadGen writes 0 for a missing estimate.
        recomputed = derived.early_stopping.estimates_ns[f"{measure}_p{share * 100:g}"] or 0
        logged = detail.integer(key)
        # An estimate is above its percentile, in a range with fewer samples.
        tolerance_ns = allowance.of("p90" if share <= 0.9 else "p99_9")
        if abs(recomputed - logged) > tolerance_ns + allowance.shift_ns(recomputed, logged):
            yield Disagreement(key, logged, recomputed, tolerance_ns, "ns")
