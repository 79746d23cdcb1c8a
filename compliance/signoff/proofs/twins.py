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
from compliance.signoff.proofs.issued_queries import issue_delays_ns
from runs.numbers.numbers import reported_numbers


def twins(one: Evidence, other: Evidence) -> Iterator[Finding]:
    """What shows that one leg was made from the other; at most one reason."""
    for text, number in _signs(one, other):
        yield fail("H-4/same_run_twice", text, one.run.root, other.run.root, number=number)
        return


def _signs(one: Evidence, other: Evidence) -> Iterator[tuple[str, float]]:
    """The same file; the latencies of the same samples in the same order, where half of them are one leg's times one
    factor, to a microsecond; LoadGen's own statistics and clock, which are not equal by chance, also where the record
    was blurred; and its delays."""
    names = (one.run.detail.name, one.run.requests.name)
    if alike := [name for name in names if name in one.hashes and one.hashes[name] == other.hashes.get(name)]:
        yield f"two legs have the same {' and '.join(alike)}", len(alike)
    tables = [table for table in (one.requests, other.requests) if table is not None and len(table) >= FEW_SAMPLES]
    if len(tables) == 2 and np.array_equal(tables[0].sample_index, tables[1].sample_index):
        yield from _latencies(*(table.complete_ns - table.issue_ns for table in tables))
    for what, equal in (
        ("statistics of LoadGen's", _statistics(one) & _statistics(other)),
        ("readings of LoadGen's clock", one.detail.clock_ms & other.detail.clock_ms),
    ):
        if len(equal) >= EQUAL_STATISTICS:
            yield f"{len(equal)} {what} are the same in two legs, such as {min(equal)}", len(equal)
    alike_delays = _delays_alike(one, other)
    if alike_delays is not None and alike_delays > DELAYS_ALIKE:
        text = f"LoadGen was late at the same queries in two legs (correlation {alike_delays:.3f}): one run, blurred"
        yield text, alike_delays


def _latencies(ours: NDArray[np.int64], theirs: NDArray[np.int64]) -> Iterator[tuple[str, float]]:
    share = float(np.mean(ours == theirs))
    if share > EQUAL_STAMP_SHARE:
        text = f"{share:.0%} of the latencies of two legs are the same to the nanosecond: one run under two names"
        yield text, share
    elif (theirs > 0).all():
        factor = float(np.median(ours / theirs))
        if np.median(np.abs(ours - factor * theirs)) < COMPUTED_NS:
            yield f"the latencies of one leg are {factor:.4f} times the other's: computed, not measured", factor


def _statistics(evidence: Evidence) -> set[int]:
    """Of a performance leg, in ns; of few samples, p99 and the maximum are one number."""
    if not (evidence.is_performance and evidence.detail.has_results):
        return set()
    numbers = reported_numbers(evidence.detail)
    known = [measure for measure in (numbers.latency_ns, numbers.ttft_ns) if measure is not None]
    return {value for measure in known for value in measure.model_dump().values() if value > 0}


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
