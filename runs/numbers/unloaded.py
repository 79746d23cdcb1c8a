"""Latencies that exceed their limit at any load, so that a lower rate does not help."""

from runs.numbers.numbers import LatencyNumbers

FEW_OPEN = 4.0  # mean number of open queries up to which the median TPOT is about that of a single query


def unloaded_ns(name: str, values: LatencyNumbers, limit_ns: float, mean_open: float | None) -> int | None:
    """Return the latency without load if it exceeds the limit; otherwise None.

    The minimum of any run is without load. TTFT grows with every waiting query, TPOT hardly with few open queries.

    Args:
        name: TTFT, TPOT or latency.
        mean_open: Mean number of open queries, if known.
    """
    if name == "TPOT" and mean_open is not None and mean_open <= FEW_OPEN and values.p50 > limit_ns:
        return values.p50
    return values.min if values.min > limit_ns else None


def no_rate_meets(name: str, limit: str, unloaded: str) -> str:
    """Return the advice on a limit that is exceeded at any load."""
    return (
        f"no rate meets the {name} limit of {limit}, because {name} without load is {unloaded}; use a faster system, "
        "or --scenario Offline, which has no latency limit"
    )
