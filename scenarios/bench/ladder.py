"""The choice of the next run of a bench from its runs so far, so that a bench continues from bench.json.

The default ladder measures the Offline rate, then ascends by shares of this rate until a run is saturated. It halves
the distance between the highest rate within the limits and the lowest violated rate, and repeats the best rate.
Requested rates and numbers of open queries are all measured, in ascending order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from runs.bench.bench_record import NEEDED, BenchRun, Best, LoadKind
from runs.bench.best_rate import best_rate, rounded_rate, steady_rate

# Default rates as shares of the Offline rate.
SHARES = {"Server": (0.25, 0.5, 0.75, 0.9), "Interactive": (0.25, 0.5, 0.7, 0.85)}
MAX_RUNS = 8
# Increases of the highest share if it is within the limits.
UPWARDS = (0.07, 0.05)
REFINEMENTS = 2

CHECKED_ROWS = 8  # rows of the run that is checked before anything starts
LONGEST_S = 180.0  # maximum duration of a run that waits for the queries of the percentile


@dataclass(frozen=True)
class PlannedBenchRun:
    """One run of a bench, before it starts."""

    number: int  # from 1; 0 = the warm-up
    kind: LoadKind
    queries: int  # 0 = the warm-up decides the number
    first_row: int  # number of rows that earlier runs used; -queries for the warm-up, so that no run uses its rows
    asked_qps: float | None = None
    share: float | None = None
    concurrency: int | None = None
    percentile: str | None = None  # percentile of the limits: p99, p95 or p90
    repetition: int = 1
    again: bool = False


@dataclass(frozen=True)
class LoadStep:
    """The load of one run: a share of the Offline rate, a rate, or a number of open queries."""

    kind: LoadKind
    share: float | None = None
    qps: float | None = None
    concurrency: int | None = None

    @classmethod
    def of(cls, run: BenchRun) -> "LoadStep":
        qps = run.asked_qps if run.share is None else None
        return cls(run.kind, run.share, qps, run.concurrency)


def typical_run(step: LoadStep) -> PlannedBenchRun:
    """Return a run with the load of a step, to check options and files before anything starts."""
    rate = None if step.kind != "server" else step.qps or 1.0
    return PlannedBenchRun(0, step.kind, CHECKED_ROWS, 0, rate, concurrency=step.concurrency)


@dataclass(frozen=True)
class LadderPlan:
    """The loads that a bench measures, and the rules for further loads."""

    steps: tuple[LoadStep, ...]  # in their order
    is_adaptive: bool  # True if the ascent ends at saturation, and the bench refines the best rate
    duration_s: float
    longest_s: float  # maximum duration of a run that waits for the queries of the percentile
    max_runs: int  # maximum number of runs in one repetition
    queries: int = 0  # minimum number of queries of each run
    repeats: int = 1
    percentile: str | None = None  # the percentile of the bench, once it is known

    @property
    def warm_up_qps(self) -> float | None:
        """Rate of the warm-up: the lowest requested rate; None if the bench has an Offline run or a closed loop."""
        rates = [step.qps for step in self.steps]
        return None if None in rates else min(rate for rate in rates if rate is not None)

    @property
    def needed(self) -> int:
        """Number of queries that the percentile requires."""
        return NEEDED.get(self.percentile or "", 1)

    def queries_at(self, qps: float) -> int:
        """Return the number of queries of a run at a rate."""
        return max(math.ceil(qps * self.duration_s), self.needed, self.queries)

    def is_feasible(self, qps: float) -> bool:
        """Return whether a run at a rate below the planned rates reaches the percentile's queries in time."""
        return self.needed <= max(math.ceil(self.longest_s * qps), self.queries)


def default_steps(scenario: str) -> tuple[LoadStep, ...]:
    """Return the steps of a bench without rates."""
    return (LoadStep("offline"), *(LoadStep("server", share=share) for share in SHARES[scenario]))


def lowest_rate(plan: LadderPlan, offline_qps: float | None) -> float | None:
    """Return the lowest likely rate in queries/s: half of the lowest planned rate, if the bench refines the best rate.

    It is None if it is unknown, or without a Server run.
    """
    rates = [_rate(step, offline_qps) for step in plan.steps if step.kind == "server"]
    lowest = min((rate for rate in rates if rate is not None), default=None)
    return lowest if lowest is None or not plan.is_adaptive else lowest / 2


def choose_percentile(plan: LadderPlan, lowest_qps: float | None) -> tuple[str | None, str]:
    """Return the percentile that every run of a bench supports, and the reason.

    Args:
        lowest_qps: Lowest likely rate of a run.
    """
    if lowest_qps is None:
        return None, "no run has measured a rate"
    most = max(int(lowest_qps * plan.longest_s), plan.queries)
    longest = f"{most:,} queries in {plan.longest_s:.0f} s at {lowest_qps:.3g} queries/s"
    missing = ""
    for name, needed in NEEDED.items():
        if most >= needed:
            return name, missing or f"each run has at least {needed} queries"
        missing = f"{longest}, but {name} needs {needed} queries"
    return None, missing


def next_run(plan: LadderPlan, done: Sequence[BenchRun], first_row: int = 0) -> PlannedBenchRun | None:
    """Return the next run of a bench; None if it is complete, or if the rate of the Offline run is missing.

    Args:
        first_row: Number of rows that the earlier runs used.
    """
    number = max((run.number for run in done), default=0) + 1
    for repetition in range(1, plan.repeats + 1):
        runs = [run for run in done if run.repetition == repetition]
        if len(runs) < plan.max_runs:
            spec = _first(plan, runs, number) if repetition == 1 else _repeated(done, runs, number)
            if spec is not None:
                return replace(spec, repetition=repetition, percentile=plan.percentile, first_row=first_row)
    return None


def _first(plan: LadderPlan, runs: Sequence[BenchRun], number: int) -> PlannedBenchRun | None:
    """Return the next run of the first repetition."""
    # A failed Offline run is repeated, because the shares need its rate.
    measured = {LoadStep.of(run) for run in runs if run.kind != "offline" or run.done_qps}
    offline_qps = steady_rate(runs)
    saturated = {LoadStep.of(run) for run in runs if run.verdict == "saturated"}
    for step in plan.steps:
        if step not in measured:
            return _spec(plan, step, offline_qps, number)
        if plan.is_adaptive and step in saturated:
            break
    best = best_rate(runs)
    if plan.is_adaptive and offline_qps and best is not None and len(runs) < plan.max_runs - 1:
        share = _refined(plan, runs, best)
        if share is not None and plan.is_feasible(share * offline_qps):
            return _spec(plan, LoadStep("server", share=share), offline_qps, number)
    if plan.repeats == 1 and best is not None and best.low is not None and not any(run.again for run in runs):
        return replace(_again(next(run for run in runs if run.number == best.run), number), again=True)
    return None


def _repeated(done: Sequence[BenchRun], runs: Sequence[BenchRun], number: int) -> PlannedBenchRun | None:
    """Return the next run of a repetition. Each repetition has the loads of the first repetition."""
    measured = {LoadStep.of(run) for run in runs}
    missing = (run for run in done if run.repetition == 1 and LoadStep.of(run) not in measured)
    return next((_again(run, number) for run in missing), None)


def _again(run: BenchRun, number: int) -> PlannedBenchRun:
    return PlannedBenchRun(number, run.kind, run.queries, 0, run.asked_qps, run.share, run.concurrency)


def _refined(plan: LadderPlan, runs: Sequence[BenchRun], best: Best) -> float | None:
    """Return a share above the planned shares, or halfway to the lowest share over a limit. None ends the bench."""
    planned = [step.share for step in plan.steps if step.share is not None]
    shares = {run.asked_qps: run.share for run in runs if run.share is not None}
    refined = len({*shares.values()} - {*planned})
    low, high = shares.get(best.low) or 0.0, shares.get(best.high)
    if refined >= REFINEMENTS:
        return None
    if high is not None:
        share = rounded_rate((low + high) / 2)
    elif low >= max(planned):
        share = rounded_rate(low + UPWARDS[refined])
    else:
        return None
    return None if share in shares.values() else share


def _rate(step: LoadStep, offline_qps: float | None) -> float | None:
    if step.share is None:
        return step.qps
    return None if offline_qps is None else rounded_rate(step.share * offline_qps)


def _spec(plan: LadderPlan, step: LoadStep, offline_qps: float | None, number: int) -> PlannedBenchRun | None:
    """Return the run of a step; None if it is a share of an unknown rate."""
    rate = _rate(step, offline_qps)
    if step.kind == "server" and rate is None:
        return None
    queries = 0 if rate is None else plan.queries_at(rate)
    return PlannedBenchRun(number, step.kind, queries, 0, rate, step.share, step.concurrency)
