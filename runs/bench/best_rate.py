"""The best rate of a bench, and the rate that its shares refer to."""

import math
from collections.abc import Sequence

from runs.bench.bench_record import MET, VIOLATED, BenchRun, Best


def steady_rate(runs: Sequence[BenchRun]) -> float | None:
    """Return the steady rate of the first Offline run."""
    return next((run.done_qps for run in runs if run.kind == "offline" and run.done_qps), None)


def rounded_rate(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")


def best_rate(runs: Sequence[BenchRun]) -> Best | None:
    """Return the best rate; None without a Server run that shows it.

    A rate with several runs is within the limits if more of them are within than not. If the lowest violated rate has
    lower rates, and no lower rate has a verdict on the limits, the best rate is unknown.
    """
    served = [run for run in runs if run.kind == "server" and run.verdict != "failed"]
    judged = [run for run in served if run.verdict in (*MET, *VIOLATED)]
    votes: dict[float, int] = {}
    for run in judged:
        assert run.asked_qps is not None
        votes[run.asked_qps] = votes.get(run.asked_qps, 0) + (-1 if run.verdict in VIOLATED else 1)
    violated = min((rate for rate, vote in votes.items() if vote <= 0), default=math.inf)
    low = max((rate for rate, vote in votes.items() if rate < violated), default=None)
    if low is None and (not judged or any((run.asked_qps or 0) < violated for run in served)):
        return None
    at_low = [run for run in judged if run.asked_qps == low and run.verdict not in VIOLATED]
    return Best(
        low=low,
        high=None if violated == math.inf else violated,
        tokens_per_s=at_low[0].output_tokens_per_s if at_low else None,
        run=at_low[0].number if at_low else None,
        again=next((run.number for run in judged if run.again and run.asked_qps == low), None),
    )
