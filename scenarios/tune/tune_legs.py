"""The legs of a tune: probes and confirmations at a rate, and the Offline leg behind the estimate."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from runs.benchmark import LOADGEN_SCENARIO
from runs.benchmarks import submitted_benchmark
from runs.errors import ExecutionError, SetupError
from runs.files import write_atomic
from runs.loadgen.counts import LegCount
from runs.loadgen.early_stopping import min_queries
from runs.loadgen.schedule import poisson_offsets_ns
from runs.loadgen.user_conf import with_setting
from runs.numbers.result import Result
from runs.record.layout import RunDir
from runs.record.progress import Progress
from runs.rounds import CURRENT_ROUND
from scenarios.console import say
from scenarios.leg.config import RunConfig, make_config
from scenarios.leg.forecast import count_settings, expected_count, setting
from scenarios.leg.parent import run_leg
from scenarios.leg.plan import PreparedLeg, prepare
from scenarios.tune.config import Tune
from scenarios.tune.journal import Estimate, LegRecord, Step
from scenarios.tune.option_space import Options, applied
from scenarios.tune.probe_verdict import SERVER_PERCENTILE, ProbeTally
from scenarios.tune.watch import ProbeWatch, RateWatch, Stopped

ESTIMATE_SAMPLES = 2_048  # of the Offline leg behind the estimate, at the least; it is stopped by the clock


@dataclass(frozen=True)
class LegPlanner:
    """What LoadGen makes of a rate, for the scenario being tuned."""

    leg: PreparedLeg

    def setting(self, key: str) -> str | None:
        """What user.conf has for a key of this scenario."""
        return setting(self.leg, key)

    def count(self, target_qps: float) -> LegCount:
        """How many queries a leg at this rate has, and how long it takes."""
        return expected_count(self.leg, "performance", {"target_qps": target_qps})

    @property
    def set_size(self) -> int:
        """Samples that LoadGen loads at a time, of which it issues whole multiples."""
        return count_settings(self.leg).set_size

    def refuse_hopeless(self, target_qps: float) -> None:
        """Before a leg that cannot be VALID, however fast the system is.

        Raises:
            SetupError: early stopping does not pass with so few queries.
        """
        queries, needed = self.count(target_qps).samples, min_queries(0, SERVER_PERCENTILE)
        if self.leg.plan.loadgen_scenario == "Server" and queries < needed:
            raise SetupError(
                f"at {target_qps:g} queries/s LoadGen issues {queries} queries; with fewer than {needed} none can be "
                "VALID",
                f"set *.Server.min_query_count = {needed} or a longer min_duration in user.conf",
            )

    def watch(self, target_qps: float, requests: Path) -> ProbeWatch:
        """Watches a leg at this rate."""
        percentile = self.setting("target_latency_percentile")
        return ProbeWatch(
            requests,
            poisson_offsets_ns(CURRENT_ROUND.seeds.schedule_rng_seed, target_qps, self.count(target_qps).samples),
            int(self.leg.plan.sampling["max_tokens"]),
            SERVER_PERCENTILE if percentile is None else float(percentile) / 100,
        )


def run_at(
    tune: Tune, planner: LegPlanner, step: Step, number: int, target_qps: float, options: Options, console: Console
) -> LegRecord:
    """Run one leg at a rate; a leg that can no longer be VALID is stopped.

    Args:
        options: scheduling options that a search found.

    Raises:
        HarnessError: the leg failed or was interrupted; it has no verdict.
    """
    facts = leg_facts(tune, planner, RunDir(tune.place.leg(step, number)), target_qps, options, console)
    return LegRecord.model_validate({**facts, "step": step, "number": number})


def leg_facts(
    tune: Tune,
    planner: LegPlanner,
    run_dir: RunDir,
    target_qps: float,
    options: Options,
    console: Console,
    also: Callable[[Progress], None] = lambda _: None,
) -> dict[str, Any]:
    """Run one leg at a rate, and return the fields of `MeasuredLeg` but for its number.

    Args:
        also: told of each heartbeat, after the one who stops a leg that can no longer be VALID.

    Raises:
        HarnessError: the leg failed or was interrupted; it has no verdict.
    """
    config = make_config({**applied(tune.values, options), "target_qps": target_qps, "output_log_dir": run_dir.root})
    started_s = time.monotonic()
    facts: dict[str, Any] = {
        "target_qps": target_qps,
        "queries_planned": planner.count(target_qps).samples,
        "directory": run_dir.root.name,
        "options": options,
    }
    watch = planner.watch(target_qps, run_dir.requests) if LOADGEN_SCENARIO[config.scenario] == "Server" else None

    def on_progress(progress: Progress) -> None:
        if watch is not None:
            watch(progress)
        also(progress)

    try:
        facts |= _of_result(_run(config, console, on_progress))
    except Stopped as stopped:
        assert watch is not None
        assert watch.tally is not None
        facts |= {"verdict": "INVALID", "stopped": True, "reasons": [stopped.message], **_of_tally(watch.tally)}
    finally:
        if watch is not None:
            watch.close()
    return {**facts, "wall_s": round(time.monotonic() - started_s, 1)}


def estimate_offline(tune: Tune, planner: LegPlanner, console: Console) -> Estimate:
    """Measure the Offline rate, roughly: whole data sets, stopped by the clock.

    Raises:
        HarnessError: the leg failed or was interrupted.
    """
    place = tune.place
    loadgen_key = submitted_benchmark(planner.leg.benchmark.submission_name, "Offline").loadgen_key
    text = planner.leg.user_conf
    for key, value in (("min_duration", 1), ("min_query_count", ESTIMATE_SAMPLES), ("target_qps", 1)):
        text = with_setting(text, loadgen_key, "Offline", key, str(value))
    write_atomic(place.estimate_conf, text)
    values = {key: value for key, value in tune.values.items() if key not in _NOT_OFFLINE}
    config = make_config(
        {
            **values,
            "scenario": "Offline",
            "lg_model_name": loadgen_key,
            "user_conf": place.estimate_conf,
            "output_log_dir": place.estimate,
        }
    )
    watch = RateWatch(tune.options.estimate_s)
    try:
        result = _run(config, console, watch)
    except Stopped as stopped:
        assert watch.samples_per_second is not None
        return Estimate(
            samples_per_second=watch.samples_per_second,
            source=f"an Offline leg, {stopped.message.partition(':')[0]}",
            directory=place.estimate.name,
        )
    rate = result.reported.samples_per_second if result.reported else None
    if not rate:
        raise ExecutionError(f"{place.estimate}: the Offline leg has no rate", "give --offline-qps")
    return Estimate(samples_per_second=rate, source="a whole Offline leg", directory=place.estimate.name)


# Only the latency scenarios know these, and the key of Interactive is its alone.
_NOT_OFFLINE = frozenset({"admission", "admission_tokens", "admission_queries", "lg_model_name", "enable_log_trace"})


def _run(config: RunConfig, console: Console, watch: Callable[[Progress], None]) -> Result:
    return run_leg(config, lambda: prepare(config, partial(say, console)), console, watch).result


def _of_result(result: Result) -> dict[str, Any]:
    """The facts of a leg that ran to its end; LoadGen's numbers."""
    assert result.verdict != "DONE"  # that of an accuracy leg
    facts: dict[str, Any] = {
        "verdict": result.verdict,
        "stopped": False,
        "reasons": result.reasons,
        "queries_answered": result.counts.samples or 0,
    }
    if result.reported is not None:
        facts["samples_per_second"] = result.reported.samples_per_second
        facts["tokens_per_second"] = result.reported.tokens_per_second
        for name, numbers in (("ttft", result.reported.ttft_ns), ("tpot", result.reported.tpot_ns)):
            if numbers is not None:
                facts[f"{name}_p99_ms"] = numbers.p99 / 1e6
    in_force = result.in_force
    for name, limit_ns in (("ttft", in_force.ttft_limit_ns), ("tpot", in_force.tpot_limit_ns)):
        if limit_ns is not None:
            facts[f"{name}_limit_ms"] = limit_ns / 1e6
    if result.early_stopping is not None:
        for name, verdict in result.early_stopping.verdicts.items():
            facts[f"late_{name}"] = verdict.late
            facts["late_allowed"] = verdict.allowed
    return facts


def _of_tally(tally: ProbeTally) -> dict[str, Any]:
    """The facts of a leg that was stopped; our own stamps."""
    limits = tally.limits
    return {
        "queries_answered": tally.answered,
        "late_allowed": tally.allowed,
        "late_ttft": tally.late_ttft,
        "late_tpot": tally.late_tpot,
        "ttft_p99_ms": _p99_ms(tally.ttft_ns),
        "tpot_p99_ms": _p99_ms(tally.tpot_ns),
        "ttft_limit_ms": limits.ttft_ns / 1e6,
        "tpot_limit_ms": limits.tpot_ns / 1e6,
    }


def _p99_ms(values_ns: list[int]) -> float | None:
    if not values_ns:
        return None
    return float(np.sort(values_ns)[int(len(values_ns) * 0.99)]) / 1e6
