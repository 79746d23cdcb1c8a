"""`execute_run` in virtual time, for a tune: many runs of the dummy engine whose results are read."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from compliance.judge.verdict import stated
from compliance.signoff.claim import Claim
from compliance.signoff.signoff_verdict import SignOff, SignOffDetails, SignOffScope
from runs.errors import Interrupted
from runs.files.writing import write_atomic
from runs.loadgen.early_stopping import PERCENTILE, judge_latencies
from runs.numbers.numbers import LatencyNumbers, Numbers
from runs.numbers.result import Counts, EarlyStopping, EffectiveSettings, RunNumbers, write_result
from runs.record.progress import Progress
from scenarios.launch.forecast import expected_count, setting
from scenarios.launch.plan import PreparedRun, prepare
from scenarios.launch.run_config import RunConfig
from sut.admission import Admission
from sut.engine import EngineLimits
from sut.engines import make_engine
from sut.feed import AdmissionControl, Feed
from tests.support.simulated.virtual_time import SEEDS, Answered, issue_all, issue_order_of, schedule_ns


@dataclass
class VirtualRuns:
    """A replacement of `execute_run` with its own clock. It records the runs."""

    ran: list[str] = field(default_factory=list)  # names of their directories
    now_s: float = 0.0
    interrupted: str = ""  # run in which a signal arrives
    refused: set[str] = field(default_factory=set)  # changed options that the sign-off refuses
    signed: list[tuple[list[str], list[str], list[str]]] = field(default_factory=list)  # options, reference, candidate

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scenarios.tune.tune_runs.execute_run", self)
        monkeypatch.setattr("scenarios.tune.signed_options.sign_off", self.sign_off)
        monkeypatch.setattr("scenarios.tune.tune_runs.time", SimpleNamespace(monotonic=lambda: self.now_s))

    def __call__(
        self,
        config: RunConfig,
        _: object,
        *,
        watch: Callable[[Progress], None] = lambda _: None,
        keeper: object = None,
        context: str = "",
    ) -> Any:
        run = prepare(config)
        name = run.run_dir.root.name
        self.ran.append(name)
        run.run_dir.root.mkdir(parents=True, exist_ok=True)
        write_atomic(run.run_dir.user_conf, run.user_conf.encode())
        if name == self.interrupted:
            raise Interrupted("interrupted by SIGINT")
        responses = _responses(run)
        begin_s, end_s = self.now_s, self.now_s + max(response.complete_ns for response in responses) / 1e9
        while self.now_s < end_s:
            self.now_s = min(self.now_s + 1.0, end_s)
            elapsed_s = self.now_s - begin_s
            completed = sum(response.complete_ns <= elapsed_s * 1e9 for response in responses)
            watch(Progress("running", 0, 0, run.plan.scenario, run.plan.mode, elapsed_s=elapsed_s, completed=completed))
        result = _result(run, responses)
        write_result(run.run_dir, result)
        return SimpleNamespace(result=result)

    def sign_off(self, scope: SignOffScope, ref: list[Path], cand: list[Path], claim: Claim) -> SignOff:
        """Return a verdict without reading the runs."""
        self.signed.append((claim.levers, [path.name for path in ref], [path.name for path in cand]))
        findings = [stated("G-4/no_real_gain", "no gain")] if self.refused & {*claim.levers} else []
        return SignOff(findings, details=SignOffDetails(scope, 0.5, "open", levers=claim.levers))


def _responses(run: PreparedRun) -> list[Answered]:
    scenario, count = run.plan.loadgen_scenario, expected_count(run, "performance").samples
    rate = float(setting(run, "target_qps") or 1)
    _, order = issue_order_of(scenario, len(run.dataset), count)
    offsets_ns = schedule_ns(rate, count) if scenario == "Server" else []

    def admission(loop: Any) -> AdmissionControl:
        planned = run.plan.admission
        if planned is None:
            return Feed(EngineLimits(queries=run.plan.engine_options["slots"] or None))
        return Admission(
            policy=planned.policy,
            prefill_tokens=planned.prefill_tokens or 8192,
            queries=planned.queries,
            ttft_limit_ns=_limit_ns(run, "ttft"),
            clock=lambda: round(loop.time() * 1e9),
        )

    return issue_all(lambda _: make_engine(run.plan), run.dataset.prompts, scenario, order, offsets_ns, admission)


def _limit_ns(run: PreparedRun, name: str) -> int:
    configured, limits = setting(run, f"{name}_latency"), run.benchmark.limits
    return round(float(configured or getattr(limits, f"{name}_ms")) * 1e6)


def _result(run: PreparedRun, responses: list[Answered]) -> RunNumbers:
    """Return the result of LoadGen on such responses, as far as a tune reads it."""
    seconds = max(response.complete_ns for response in responses) / 1e9
    min_duration_ms = int(setting(run, "min_duration") or run.benchmark.min_duration_ms)
    limits, latencies, verdicts = {}, {}, {}
    if run.plan.loadgen_scenario == "Server":
        times = {
            "ttft": np.array([response.ttft_ns for response in responses]),
            "tpot": np.array(
                [(response.complete_ns - response.first_ns) // (len(response.ids) - 1) for response in responses]
            ),
        }
        for name, values in times.items():
            limits[f"{name}_limit_ns"] = _limit_ns(run, name)
            verdicts[name] = judge_latencies(values, limits[f"{name}_limit_ns"], PERCENTILE["Server"])
            latencies[f"{name}_ns"] = _statistics(values)
    met = all(verdict.met for verdict in verdicts.values())
    valid = met and seconds * 1e3 >= min_duration_ms
    return RunNumbers(
        scenario=run.plan.scenario,
        loadgen_scenario=run.plan.loadgen_scenario,
        mode="PerformanceOnly",
        verdict="VALID" if valid else "INVALID",
        reasons=[] if valid else ["it is late or too short"],
        notes=[],
        loadgen_verdict="VALID" if valid else "INVALID",
        duration_ns=round(seconds * 1e9),
        in_force=EffectiveSettings(
            target_qps=float(setting(run, "target_qps") or 1),
            min_duration_ms=min_duration_ms,
            min_query_count=int(setting(run, "min_query_count") or 1),
            performance_sample_count=len(run.dataset),
            **{"ttft_limit_ns": None, "tpot_limit_ns": None, **limits},
            **{name: getattr(SEEDS, name) for name in ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed")},
        ),
        reported=Numbers(samples_per_second=len(responses) / seconds, **latencies),
        early_stopping=EarlyStopping(met, PERCENTILE["Server"], 459, verdicts, {}) if verdicts else None,
        counts=Counts(samples=len(responses), samples_expected=len(responses)),
    )


def _statistics(values: Any) -> LatencyNumbers:
    ordered = np.sort(values)
    places = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p97": 0.97, "p99": 0.99, "p99_9": 0.999}
    shown = {name: int(ordered[int(len(ordered) * share)]) for name, share in places.items()}
    return LatencyNumbers(min=int(ordered[0]), mean=int(ordered.mean()), max=int(ordered[-1]), **shown)
