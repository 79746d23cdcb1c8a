"""What an acceptance runs, one step after the other, and what it reads from their records."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qsl.dataset import load_dataset
from runs.benchmark import SamplingPolicy
from runs.errors import HarnessError
from runs.numbers.result import Result, read_result
from runs.reading import read_object
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.record.requests_log import read_requests
from scripts.bench.report import Goal, at_least, at_most
from scripts.bench.tools.llm_server import llm_server

from .machine import Engines
from .sizes import AcceptSizes
from .steps import Outcome, Steps
from .table import AcceptTable

SHARE_OF_OFFLINE = {"Server": at_least(0.90), "Interactive": at_least(0.75)}
LEG_SHARE = at_least(0.98)  # of LLM.generate's rate
COPY_SHARE = at_least(0.95)  # of as many single engines, where each has devices of its own
LAG_P99_MS, LAG_WORST_MS = at_most(20.0), at_most(200.0)
CALLS = 2  # of LLM.generate; the better one counts
FEWEST_QUERIES = 459  # fewer cannot pass LoadGen's early stopping at p99


@dataclass(frozen=True)
class Asked:
    """What is to be accepted."""

    engine: list[str]  # arguments that name the engine, and others of the user's for every leg
    data: list[str]  # arguments that name model and data set
    accuracy_data: list[str]  # the same for the accuracy leg
    real_engine: bool  # whether vLLM is measured, so that there is an `LLM.generate` to compare with
    sizes: AcceptSizes  # how much is done


@dataclass
class Acceptance:
    """The steps of an acceptance.

    Args:
        asked: what is to be accepted.
        layouts: numbers of engines; the last is the one that a submission would take.
        conf: the user.conf of all legs.
    """

    asked: Asked
    layouts: list[Engines]
    steps: Steps
    conf: Path
    table: AcceptTable = field(default_factory=AcceptTable)
    _offline: dict[str, float] = field(default_factory=dict)  # samples/s, by layout

    def run(self) -> None:
        """All steps, those first whose figures the others need."""
        one, best = self.layouts[0], self.layouts[-1]
        for layout in self.layouts:
            self._offline_rate(layout)
            if layout is one and self.asked.real_engine:
                self._llm_generate(one)
        self._scaling()
        for scenario in SHARE_OF_OFFLINE:
            self._server(scenario, best)
        self._accuracy(best)
        self._caching(best)
        if one is not best:
            for scenario in SHARE_OF_OFFLINE:
                self._server(scenario, one)

    # Rates ----------------------------------------------------------------------------------------------------------

    def _offline_rate(self, layout: Engines) -> None:
        sizes, known = self.asked.sizes, self._offline.get(self.layouts[0].name)
        options = ["--estimate-s", str(sizes.estimate_s)]
        if layout is not self.layouts[0] and known:
            options = ["--offline-qps", f"{known * layout.faster:.4g}"]
        expected_s = 2 * sizes.start_s + sizes.estimate_s + sizes.leg_s
        outcome = self._tune("Offline", layout, options, expected_s)
        result = self._confirmed(f"Offline, {layout.words}", outcome)
        estimate = (outcome.answer.get("tune") or {}).get("estimate") or {}
        rate = result.reported.samples_per_second if result and result.reported else estimate.get("samples_per_second")
        self.table.figure(f"Offline, {layout.words}: rate", rate, "samples/s")
        if rate:
            self._offline[layout.name] = rate

    def _server(self, scenario: str, layout: Engines) -> None:
        name, sizes = f"{scenario}, {layout.words}", self.asked.sizes
        offline = self._offline.get(layout.name)
        share = SHARE_OF_OFFLINE[scenario]
        if not offline:
            self.table.missing(f"{name}: ÷ Offline (no Offline rate to begin at)", str(share))
            return
        options = ["--offline-qps", f"{offline:.4g}", "--max-probes", str(sizes.probes)]
        seconds = max(sizes.leg_s, FEWEST_QUERIES / offline)
        outcome = self._tune(scenario, layout, options, (sizes.probes + 1) * (sizes.start_s + seconds))
        result = self._confirmed(name, outcome)
        rate = (outcome.answer.get("tune") or {}).get("target_qps")
        self.table.figure(f"{name}: highest rate confirmed", rate, "queries/s")
        self.table.figure(f"{name}: ÷ Offline", rate and rate / offline, "", share)
        if result and result.reported:
            for what, numbers, limit_ns in (
                ("TTFT", result.reported.ttft_ns, result.in_force.ttft_limit_ns),
                ("TPOT", result.reported.tpot_ns, result.in_force.tpot_limit_ns),
            ):
                if numbers and limit_ns:
                    self.table.figure(f"{name}: p99 {what}", numbers.p99 / 1e6, "ms", at_most(limit_ns / 1e6))

    def _tune(self, scenario: str, layout: Engines, options: list[str], expected_s: float) -> Outcome:
        name = f"{layout.name}-{scenario}"
        arguments = ["tune", "--scenario", scenario, *self._leg(name, layout), *options]
        return self.steps.command(
            name, arguments, expected_s=expected_s, environment=layout.environment, continues=True
        )

    def _confirmed(self, what: str, outcome: Outcome) -> Result | None:
        """The leg that confirmed a rate: its verdict, the loop's lag, the warm-up."""
        run = _leg_of(outcome, self.steps.place(outcome.name))
        self.table.verdict(what, "VALID", "VALID" if run else outcome.error or "no rate was VALID", run is not None)
        if run is None:
            return None
        result, manifest = read_result(run.result), read_manifest(run.manifest)
        if result.loadgen_scenario == "Offline":
            requests = read_requests(run.requests)
            first_s = float(requests.complete_ns.min() - requests.issue_ns.min()) / 1e9
            self.table.figure(f"{what}: first answer", first_s, "s")
        if result.loop_lag is not None:
            self.table.figure(f"{what}: loop lag, p99", result.loop_lag.p99_ms, "ms", LAG_P99_MS)
            self.table.figure(f"{what}: loop lag, worst", result.loop_lag.worst_ms, "ms", LAG_WORST_MS)
        warm = manifest.engine["warm_up"]
        self.table.figure(f"{what}: warm-up", warm["seconds"], "s")
        if manifest.resolved.compiles:
            limit = manifest.engine["configuration"]["max_num_seqs"] * max(1, len(manifest.replicas))
            self.table.figure(f"{what}: queries at once in the warm-up", warm["queries_at_once"], "", at_least(limit))
        return result

    def _scaling(self) -> None:
        one, best = self.layouts[0], self.layouts[-1]
        if one is best or not {one.name, best.name} <= self._offline.keys():
            return
        share = self._offline[best.name] / (best.faster * self._offline[one.name])
        times = f"{best.faster} × one engine" if best.faster > 1 else "one engine on all cores"
        target: Goal | None = COPY_SHARE if best.faster > 1 else None
        self.table.figure(f"Offline: {best.words} ÷ {times}", share, "", target)

    # The others -----------------------------------------------------------------------------------------------------

    def _llm_generate(self, layout: Engines) -> None:
        """`LLM.generate` with the prompts, the order and the options of the Offline leg, when that is over."""
        what, name = "Offline leg ÷ LLM.generate", f"{layout.name}-generate"
        leg = next((one for one in self.steps.outcomes if one.name == f"{layout.name}-Offline"), None)
        run = None if leg is None else _leg_of(leg, self.steps.place(leg.name))
        if run is None:
            self.table.missing(what, str(LEG_SHARE))
            return
        seconds = read_result(run.result).duration_ns or 0
        expected_s = self.asked.sizes.start_s + CALLS * seconds / 1e9

        arguments = [str(run.root), str(read_manifest(run.manifest).start_time_ns)]

        def call() -> Outcome:
            return Outcome(name, arguments, 0, 0.0, answer=_generate(run, self.steps.place(name), layout.environment))

        outcome = self.steps.step(name, arguments, call, expected_s)
        rate = outcome.answer.get("samples_per_second")
        self.table.figure("LLM.generate, same prompts and options", rate, "samples/s")
        ours = self._offline.get(layout.name)
        self.table.figure(what, ours / rate if ours and rate else None, "", LEG_SHARE)

    def _accuracy(self, layout: Engines) -> None:
        name = f"{layout.name}-accuracy"
        rate = self._offline.get(layout.name) or 1.0
        run = self._any_leg()
        rows = read_manifest(run.manifest).resolved.sample_count if run else 0
        arguments = [
            "run", "--scenario", "Offline", "--accuracy", *self.asked.engine, *self.asked.accuracy_data,
            *layout.arguments, "--output-log-dir", str(self.steps.place(name)),
        ]  # fmt: skip
        expected_s = self.asked.sizes.start_s + rows / rate
        self.steps.command(name, arguments, expected_s=expected_s, environment=layout.environment)
        what = f"accuracy, {layout.words}"
        try:
            found = read_object(RunDir(self.steps.place(name)).accuracy_json, "")
        except HarnessError:
            self.table.missing(what, "passed")
            return
        if found["passed"] is None:
            self.table.verdict(what, "", f"{found['label']}: nothing to compare with", met=True)
        else:
            scores = ", ".join(f"{name} {value:,.6g}" for name, value in found["scores"].items())
            word = "passed" if found["passed"] else "failed"
            self.table.verdict(what, "passed", f"{word}: {scores}", bool(found["passed"]))

    def _any_leg(self) -> RunDir | None:
        legs = (_leg_of(one, self.steps.place(one.name)) for one in self.steps.outcomes)
        return next((run for run in legs if run), None)

    def _caching(self, layout: Engines) -> None:
        name = f"{layout.name}-caching"
        arguments = ["audit", "--test", "output_caching", "--scenario", "Offline", *self._leg(name, layout)]
        expected_s = 3 * (self.asked.sizes.start_s + 64 / self._offline.get(layout.name, 1.0))
        outcome = self.steps.command(name, arguments, expected_s=expected_s, environment=layout.environment)
        found = outcome.answer.get("audit")
        what = f"caching audit, {layout.words}"
        if found:
            self.table.verdict(
                what, "PASS", f"{'PASS' if found['passed'] else 'FAIL'}: {found['reason']}", found["passed"]
            )
        else:
            self.table.missing(what, "PASS")

    def _leg(self, name: str, layout: Engines) -> list[str]:
        """What all performance legs of a layout are given."""
        sampling = self.asked.sizes.output_tokens
        short = ["--sampling-arg", f"max_tokens={sampling}"] if sampling else []
        return [
            *self.asked.engine, *self.asked.data, *layout.arguments, *short,
            "--user-conf", str(self.conf), "--output-log-dir", str(self.steps.place(name)),
        ]  # fmt: skip


def user_conf(sizes: AcceptSizes) -> str:
    """LoadGen's settings of all performance legs; the rates are a tune's."""
    duration_ms = round(sizes.leg_s * 1e3)
    return "".join(
        f"*.{key} = {value}\n"
        for key, value in (
            ("*.performance_sample_count_override", sizes.set_size),
            ("Offline.min_duration", duration_ms),
            ("Offline.min_query_count", sizes.set_size),
            ("Server.min_duration", duration_ms),
            ("Server.min_query_count", FEWEST_QUERIES),
            *((f"Server.{key}", limit_ms) for key, limit_ms in sizes.limits.items()),
        )
    )


def _leg_of(outcome: Outcome, place: Path) -> RunDir | None:
    """The leg that confirmed a tune's rate."""
    confirmed = (outcome.answer.get("tune") or {}).get("confirmed_by")
    return RunDir(place / confirmed) if confirmed else None


def _generate(run: RunDir, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    manifest, requests = read_manifest(run.manifest), read_requests(run.requests)
    plan = manifest.resolved
    rows = load_dataset(plan.dataset_path).prompts
    prompts = [rows[index] for index in requests.sample_index]
    variables = {**plan.environment, **environment}
    model, sampling = Path(plan.model_path), SamplingPolicy(**plan.sampling)
    with llm_server(folder, model, plan.engine_options, variables, prompts, sampling) as server:
        seconds = [server.ask("all").seconds for _ in range(CALLS)]
    return {"calls_s": seconds, "samples": len(prompts), "samples_per_second": len(prompts) / min(seconds)}
