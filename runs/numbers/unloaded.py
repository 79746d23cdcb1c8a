"""Latencies that would exceed their limit also without load, so that a lower rate hardly helps."""

from typing import NamedTuple

from runs.numbers.numbers import LatencyNumbers


class Unloaded(NamedTuple):
    """A measured latency of queries with few or no other open queries."""

    ns: int
    queries: str  # words on the measured queries


def unloaded(name: str, values: LatencyNumbers, limit_ns: float, mean_open: float | None) -> Unloaded | None:
    """Return the latency with little load if it exceeds the limit; otherwise None.

    An engine computes k queries together in about k times the time of one query, or faster. So the TPOT of one query
    alone is at least about the TPOT with k open queries, divided by k.

    Args:
        name: TTFT, TPOT or latency.
        mean_open: Mean number of open queries, if known.
    """
    if name == "TPOT" and mean_open is not None and values.p50 > limit_ns * max(1.0, mean_open):
        return Unloaded(values.p50, f"in the median, with {mean_open:.1f} queries open on average")
    return Unloaded(values.min, "in the fastest query") if values.min > limit_ns else None


def exceeded(name: str, limit: str, value: str, queries: str) -> str:
    """Return the advice on a limit that is exceeded with little load."""
    return (
        f"{name} was {value} {queries}, above the limit of {limit}, so a lower rate hardly helps; use a faster system, "
        "or --scenario Offline, which has no latency limit"
    )
