"""H-4: are two legs two runs, or one run under two names?

Two runs never take the same times. A copy has them, whatever was done to its clocks and names; one that was computed
from another has them in one proportion. Where every time was blurred, LoadGen is still late at the same queries.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from compliance.finding import Finding, fail
from compliance.signoff.evidence import Evidence
from compliance.signoff.limits import (
    COMPUTED_NS,
    DELAYS_ALIKE,
    EQUAL_STAMP_SHARE,
    EQUAL_STATISTICS,
    FEW_SAMPLES,
    FIRST_QUERIES,
    MANY_SAMPLES,
)
from compliance.signoff.proofs.schedule import issue_delays_ns
from runs.numbers.numbers import STATISTICS, reported_numbers


def twins(one: Evidence, other: Evidence) -> Iterator[Finding]:
    """What shows that one leg was made from the other; at most one reason.

    The latencies of the same samples in the same order, where half of them are one leg's times one factor, to a
    microsecond. And LoadGen's own statistics, which are not equal by chance, also where the record was blurred.
    """
    roots = one.run.root, other.run.root
    ours, theirs = one.requests, other.requests
    as_many = ours is not None and theirs is not None and len(ours) == len(theirs) >= FEW_SAMPLES
    if as_many and ours is not None and theirs is not None and np.array_equal(ours.sample_index, theirs.sample_index):
        spans = [table.complete_ns - table.issue_ns for table in (ours, theirs)]
        share = float(np.mean(spans[0] == spans[1]))
        if share > EQUAL_STAMP_SHARE:
            text = f"{share:.0%} of the latencies of two legs are the same to the nanosecond: one run under two names"
            yield fail("H-4/same_run_twice", text, *roots, share=share)
            return
        if (spans[1] > 0).all():
            factor = float(np.median(spans[0] / spans[1]))
            if np.median(np.abs(spans[0] - factor * spans[1])) < COMPUTED_NS:
                text = f"the latencies of one leg are {factor:.4f} times the other's: computed, not measured"
                yield fail("H-4/same_run_twice", text, *roots, factor=factor)
                return
    equal = _equal_statistics(one, other)
    if len(equal) >= EQUAL_STATISTICS:
        text = f"{len(equal)} statistics of LoadGen's are the same to the nanosecond in two legs, first {equal[0]}"
        yield fail("H-4/same_run_twice", text, *roots, equal=len(equal))
        return
    readings = one.detail.clock_ms & other.detail.clock_ms
    if len(readings) >= EQUAL_STATISTICS:
        text = f"{len(readings)} readings of LoadGen's clock are the same in two legs, first {min(readings)} ms"
        yield fail("H-4/same_run_twice", text, *roots, equal=len(readings))
        return
    alike = _delays_alike(one, other)
    if alike is not None and alike > DELAYS_ALIKE:
        text = f"LoadGen was late at the same queries in two legs (correlation {alike:.3f}): one run, blurred"
        yield fail("H-4/same_run_twice", text, *roots, correlation=alike)


def _delays_alike(one: Evidence, other: Evidence) -> float | None:
    """Correlation of how late each query was issued, the most extreme delays cut off; None where that says nothing.

    How late a query is depends on what else the machine did at that moment, which no repeat has again.
    """
    if one.part is None or other.part is None or one.detail.scenario != other.detail.scenario:
        return None
    ours, theirs = _cut_delays(one), _cut_delays(other)
    if ours is None or theirs is None or len(ours) != len(theirs) or not ours.std() or not theirs.std():
        return None
    return float(np.corrcoef(ours, theirs)[0, 1])


def _cut_delays(evidence: Evidence) -> NDArray[np.float64] | None:
    delays_ns = issue_delays_ns(evidence)
    if delays_ns is None or len(delays_ns) < MANY_SAMPLES:
        return None
    later = delays_ns[FIRST_QUERIES:].astype(np.float64)
    low, high = np.quantile(later, (0.005, 0.995)).tolist()
    return np.clip(later, low, high)


def _equal_statistics(one: Evidence, other: Evidence) -> list[str]:
    if not (one.is_performance and other.is_performance and one.detail.has_results and other.detail.has_results):
        return []
    both = [reported_numbers(evidence.detail) for evidence in (one, other)]
    equal: dict[int, str] = {}  # by value: of few samples, p99 and the maximum are one number
    for measure in ("latency_ns", "ttft_ns"):
        mine, their = (getattr(numbers, measure) for numbers in both)
        if mine is None or their is None:
            continue
        for name in STATISTICS:
            value = getattr(mine, name)
            if value == getattr(their, name) and value > 0:
                equal[value] = f"{name} {measure.removesuffix('_ns')} {value} ns"
    return list(equal.values())
