"""LoadGen's early stopping: the number of late queries that a run of a given length may have.

A run must show with 99% confidence that a share p of the queries is in time. With t late queries of n, this holds if
BinomCDF(t; n, 1 - p) < 0.01. LoadGen uses h(t, p), the smallest number of timely queries for t late queries: the run
passes if n >= h + t.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # not needed by modules that use only the percentages
    import numpy as np
    from numpy.typing import NDArray

# Share of queries that must be in time, by scenario. [conf] target_latency_percentile
PERCENTILE = {"Server": 0.99, "SingleStream": 0.90}
CONFIDENCE = 0.99  # [loadgen] early_stopping, fixed
SECOND_PERCENTILE = 0.99  # SingleStream also estimates this percentile


@dataclass(frozen=True)
class LatencyVerdict:
    """The verdict on a latency limit: whether enough queries met it."""

    met: bool
    query_count: int
    late: int
    allowed: int  # allowed late queries; -1 = the run is too short for a verdict
    queries_needed: int  # required number of queries with this many late queries

    def __str__(self) -> str:
        if self.allowed < 0:
            return f"{self.query_count} queries are too few; {self.queries_needed} are needed if {self.late} are late"
        return f"late queries: {self.late} of {self.query_count:,}, allowed: {self.allowed}"


def min_queries(late: int, percentile: float) -> int:
    """Return h(t, p) + t, the smallest number of queries of which `late` may be late.

    Args:
        late: number of late queries t, at least 0.
        percentile: share p, 0 < p < 1 (0.99 for Server).
    """
    low, high = late, max(1, 2 * late)
    while late_queries_allowed(high, percentile) < late:
        low, high = high, 2 * high
    while high - low > 1:  # invariant: low fails, high passes
        middle = (low + high) // 2
        if late_queries_allowed(middle, percentile) < late:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=4096)
def late_queries_allowed(query_count: int, percentile: float) -> int:
    """Return the largest number of late queries of `query_count`; -1 if the run is too short for a verdict."""
    if query_count <= 0:
        return -1
    share_late = 1 - percentile
    log_none_late = query_count * math.log1p(-share_late)
    # log P(X = k) for k = 0, 1, … up to the mean of X ~ Binomial(query_count, share_late), where P(X <= k) is about 1/2
    import numpy as np

    k = np.arange(1, math.ceil(query_count * share_late) + 1, dtype=np.float64)
    steps = np.log(query_count - k + 1) - np.log(k) + (math.log(share_late) - math.log1p(-share_late))
    terms = np.concatenate(([0.0], np.cumsum(steps))) + log_none_late
    return int(np.searchsorted(np.cumsum(np.exp(terms)), 1 - CONFIDENCE, side="left")) - 1


def is_supported(query_count: int, percentile: float) -> bool:
    """Return whether a run is long enough to prove a percentile (a share) if no query is late. The minimum h(0, p) is 7
    for 0.5, 44 for 0.9 and 459 for 0.99.
    """
    return query_count > 0 and percentile**query_count < 1 - CONFIDENCE


def judge_latencies(values_ns: "NDArray[np.int64]", limit_ns: int, percentile: float) -> LatencyVerdict:
    """Return LoadGen's Server verdict on latencies and a limit."""
    count = len(values_ns)
    import numpy as np

    late = int(np.count_nonzero(values_ns > limit_ns))
    allowed = late_queries_allowed(count, percentile)
    return LatencyVerdict(late <= allowed, count, late, allowed, min_queries(late, percentile))


def estimate_percentile(sorted_values_ns: "NDArray[np.int64]", percentile: float) -> int | None:
    """Return LoadGen's SingleStream estimate: an upper bound of the percentile with 99% confidence, in ns.

    It is None if the run is too short (fewer than 64 queries for p = 0.9, or 662 for p = 0.99).
    """
    count = len(sorted_values_ns)
    late = late_queries_allowed(count, percentile)
    return int(sorted_values_ns[count - late]) if late >= 1 else None
