"""Latencies that exceed their limit although few queries were open, so that a lower rate hardly helps."""

from typing import NamedTuple

from runs.numbers.numbers import LatencyNumbers

FEW_OPEN = 4.0  # mean number of open queries up to which the median TPOT is close to the TPOT of a single query


class Unloaded(NamedTuple):
    """A measured latency of queries with few or no other open queries."""

    ns: int
    of: str  # the queries of which it was measured


def unloaded(name: str, values: LatencyNumbers, limit_ns: float, mean_open: float | None) -> Unloaded | None:
    """Return the latency with little load if it exceeds the limit; otherwise None.

    TTFT grows with every waiting query, TPOT hardly with few open queries.

    Args:
        name: TTFT, TPOT or latency.
        mean_open: Mean number of open queries, if known.
    """
    if name == "TPOT" and mean_open is not None and mean_open <= FEW_OPEN and values.p50 > limit_ns:
        return Unloaded(values.p50, f"in the median, with {mean_open:.1f} queries open on average")
    return Unloaded(values.min, "in the fastest query") if values.min > limit_ns else None


def exceeded(name: str, limit: str, found: str, of: str) -> str:
    """Return the advice on a limit that is exceeded with little load."""
    return (
        f"{name} was {found} {of}, above the limit of {limit}, so a lower rate hardly helps; use a faster system, "
        "or --scenario Offline, which has no latency limit"
    )
