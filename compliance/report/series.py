"""The course of a run, and the distribution of a latency, as a few hundred numbers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runs.record.requests_log import NO_TIME, RequestTable

CDF_POINTS = 400
BINS = 240

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def cdf(values_ns: Ints) -> tuple[Floats, Floats]:
    """Return the distribution of a latency: at most CDF_POINTS values in ms, and the share of queries up to each value.

    Half of the points are in the last two percent, where limits are decided.
    """
    ordered = np.sort(values_ns) / 1e6
    half = CDF_POINTS // 2
    shares = np.unique(np.concatenate((np.linspace(0, 0.98, half), np.linspace(0.98, 1, half))))
    places = np.unique((shares * (len(ordered) - 1)).astype(np.int64))
    return ordered[places], (places + 1) / len(ordered)


@dataclass(frozen=True)
class TimeSeries:
    """The course of a run in intervals. Rates belong to intervals, counts to their limits (`edges_s`)."""

    edges_s: Floats
    waiting: Floats | None  # queries before their first token; None if first tokens are not reported
    computing: Floats  # queries after their first token, or all open queries if first tokens are not reported
    tokens_per_second: Floats  # rate of tokens, spread from first token to completion, or counted at completion
    lateness_ms: Floats | None  # per interval: the largest delay with which LoadGen issued a query
    late: Ints | None  # queries that exceeded a limit, by interval of issue


def time_series(
    requests: RequestTable, *, lateness_ns: Ints | None = None, late: NDArray[np.bool_] | None = None
) -> TimeSeries:
    """Return the time series of a run in BINS intervals.

    Args:
        requests: At least one request.
        lateness_ns: Delay of LoadGen for each query, in order of issue.
        late: Whether each query exceeded a limit.
    """
    start_ns = int(requests.issue_ns.min())
    issued = (requests.issue_ns - start_ns) / 1e9
    completed = (requests.complete_ns - start_ns) / 1e9
    edges = np.linspace(0, max(float(completed.max()), 1e-6), BINS + 1)
    has_first_tokens = bool((requests.first_token_ns != NO_TIME).all())
    first = (requests.first_token_ns - start_ns) / 1e9 if has_first_tokens else completed
    done, begun, answered = (
        np.searchsorted(np.sort(moments), edges, side="right").astype(np.float64)
        for moments in (completed, issued, first if has_first_tokens else issued)
    )
    made = _tokens_until(first, completed, requests.output_tokens, edges)
    bins = np.clip(np.searchsorted(edges, issued, side="right") - 1, 0, BINS - 1)
    lateness_ms = None
    if lateness_ns is not None:
        lateness_ms = np.zeros(BINS)
        np.maximum.at(lateness_ms, bins, lateness_ns / 1e6)
    return TimeSeries(
        edges_s=edges,
        waiting=begun - answered if has_first_tokens else None,
        computing=answered - done,
        tokens_per_second=np.diff(made, prepend=0)[1:] / np.diff(edges),
        lateness_ms=lateness_ms,
        late=None if late is None else np.bincount(bins, weights=late, minlength=BINS).astype(np.int64),
    )


def _tokens_until(first: Floats, last: Floats, tokens: Ints, edges: Floats) -> Floats:
    """Return the tokens generated until each edge: one at `first`, the others at a constant rate until `last`.

    The result is the sum of one ramp per query, from cumulative sums over sorted starts and ends.
    """
    rest = np.maximum(tokens - 1, 0).astype(np.float64)
    span = last - first
    steep = span <= 0
    slopes = np.where(steep, 0.0, rest / np.where(steep, 1.0, span))
    jumps = np.where(steep, tokens, np.minimum(tokens, 1)).astype(np.float64)

    def summed(moments: Floats, weights: Floats) -> Floats:
        order = np.argsort(moments)
        sums = np.concatenate(([0.0], np.cumsum(weights[order])))
        chosen: Floats = sums[np.searchsorted(moments[order], edges, side="right")]
        return chosen

    rising = edges * summed(first, slopes) - summed(first, slopes * first)
    falling = edges * summed(last, slopes) - summed(last, slopes * last)
    return summed(first, jumps) + rising - falling
