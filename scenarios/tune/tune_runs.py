"""The runs of a tuning: probes and confirmation runs, and the Offline run of the estimate."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from runs.benchmarks import submitted_benchmark
from runs.errors import ExecutionError, HarnessError, Interrupted, SetupError
from runs.files.writing import write_atomic
from runs.loadgen.conf_lines import encode_conf, with_setting
from runs.loadgen.counts import RunCount
from runs.loadgen.early_stopping import min_queries
from runs.numbers.result import RunNumbers
from runs.record.layout import RunDir
from runs.record.progress import Progress
from runs.wording import counted, duration, four_digits
from scenarios.console import say
from scenarios.discarded import set_aside
from scenarios.launch.forecast import count_settings, expected_count, setting
from scenarios.launch.parent import execute_run
from scenarios.launch.plan import PreparedRun
from scenarios.launch.rate_watch import RateWatch, Stopped
from scenarios.launch.run_config import RunConfig, make_config
from scenarios.tune.journal import AccuracyRun, Estimate, Journal, SchedulingOptions, TuneRun, TuneStep
from scenarios.tune.option_space import applied, shown
from scenarios.tune.tune_config import Tune
from scenarios.tune.watch import SERVER_PERCENTILE, ProbeWatch

if TYPE_CHECKING:
    from sut.replicas.kept_engine import EngineKeeper

ESTIMATE_SAMPLES = 2_048  # minimum number of samples in the Offline run of the estimate, which ends by time
# Options of the latency scenarios that Offline refuses, and the model key of Interactive.
_NOT_OFFLINE = frozenset({"admission", "admission_tokens", "admission_queries", "lg_model_name", "enable_log_trace"})


class _TimeIsUp(Interrupted):
    """The time of a search ended during a run."""


@dataclass(frozen=True)
class TuneRuns:
    """The execution of the runs of a tuning. Each finished run is written to the journal."""

    tune: Tune
    prepared: PreparedRun  # checked run of the tuned scenario; the runs differ in rate and searched options only
    journal: Journal
    console: Console
    keeper: "EngineKeeper | None" = None  # keeps the engine for all runs except confirmation runs

    def say(self, text: str) -> None:
        say(self.console, text)

    def setting(self, key: str) -> int | float | None:
        """Return the number that user.conf sets for a key of this scenario."""
        return setting(self.prepared, key)

    @property
    def min_duration_ms(self) -> int:
        setting = self.setting("min_duration")
        return self.prepared.benchmark.min_duration_ms if setting is None else int(setting)

    @property
    def set_size(self) -> int:
        """The number of samples that LoadGen loads at a time; it issues whole multiples of this number."""
        return count_settings(self.prepared).set_size

    def count(self, target_qps: float) -> RunCount:
        """Return the number of queries and the duration of a run at this rate."""
        return expected_count(self.prepared, "performance", {"target_qps": target_qps})

    def set_unfinished_aside(self, folder: Path) -> None:
        """Set the files of an interrupted step aside, so that it is repeated."""
        if folder.exists():
            aside = set_aside([folder], self.tune.place.discarded)
            self.say(f"an unfinished {folder.name} is now in {aside}")

    def run(
        self,
        step: TuneStep,
        rate: float,
        options: SchedulingOptions,
        title: str = "",
        *,
        time_s: float = math.inf,
        may_fail: bool = False,
        **of_a_search: Any,
    ) -> TuneRun:
        """Start the next run of a step at a rate, and write it to the journal.

        Args:
            options: Scheduling options of a search.
            title: Additional words for the announcement of the run.
            time_s: Time after which the run ends without a verdict.
            may_fail: True if a failed run has no verdict instead of raising.
            of_a_search: Additional fields of the journal line.

        Raises:
            SetupError: If early stopping cannot pass with so few queries.
            HarnessError: If the run failed.
            Interrupted: If a signal ends the run.
        """
        number, planned = self.journal.next_number(step), self.count(rate)
        self._refuse_too_few(rate, planned)
        self.say(
            f"\n{step} {number}{title}: {rate:g} samples/s, {counted(planned.samples, 'sample')}, "
            f"{duration(planned.expected_s)} ({planned.why})"
        )
        run_dir = RunDir(self.tune.place.run(step, number))
        self.set_unfinished_aside(run_dir.root)
        started_s = time.monotonic()
        values = {**applied(self.tune.values, options), "target_qps": rate, "output_log_dir": run_dir.root}
        keeper = self.keeper
        if step == "confirm" and keeper is not None:
            keeper.stop()  # A confirmation run is like a run for a submission.
            keeper = None
        end_s = started_s + time_s
        context = f"{step} {number} at {rate:g}/s"
        config = make_config(values)
        outcome_facts = self._run(config, run_dir, planned, end_s, keeper, context, may_fail=may_fail)
        record = TuneRun(
            step=step,
            number=number,
            target_qps=rate,
            queries_planned=planned.samples,
            directory=run_dir.root.name,
            options=options,
            **of_a_search,
            **outcome_facts,
            wall_s=round(time.monotonic() - started_s, 1),
        )
        self.journal.add(record)
        self.say(f"{step} {number}: {rate:g} samples/s {outcome(record)}")
        return record

    def _refuse_too_few(self, rate: float, planned: RunCount) -> None:
        if self._is_server and planned.samples < (needed := min_queries(0, SERVER_PERCENTILE)):
            raise SetupError(
                f"at {rate:g} queries/s LoadGen issues {planned.samples} queries, but a run with fewer than "
                f"{needed} queries cannot be VALID",
                f"set *.Server.min_query_count = {needed} or a longer min_duration in user.conf",
            )

    @property
    def _is_server(self) -> bool:
        return self.prepared.plan.loadgen_scenario == "Server"

    def _run(
        self,
        config: RunConfig,
        run_dir: RunDir,
        planned: RunCount,
        end_s: float,
        keeper: "EngineKeeper | None",
        context: str,
        *,
        may_fail: bool,
    ) -> dict[str, Any]:
        """Follow a run until its end, or until it can no longer be VALID; return its fields of the journal line."""
        watch = None
        if self._is_server:
            percentile = self.setting("target_latency_percentile")
            share = SERVER_PERCENTILE if percentile is None else percentile / 100
            watch = ProbeWatch(run_dir.requests, planned.samples, share)

        def on_progress(progress: Progress) -> None:
            if watch is not None:
                watch(progress)
            if progress.phase != "done" and time.monotonic() > end_s:
                raise _TimeIsUp("stopped: the search's time is over")

        try:
            run_outcome = execute_run(config, self.console, watch=on_progress, keeper=keeper, context=context)
            return _of_result(run_outcome.result)
        except Stopped as stopped:
            assert watch is not None
            assert watch.tally is not None
            return {"verdict": "INVALID", "stopped": True, "reasons": [stopped.message], **watch.tally.facts()}
        except _TimeIsUp as error:
            return {"verdict": None, "reasons": [error.message], "cut": True}
        except HarnessError as error:
            if not may_fail:
                raise
            return {"verdict": None, "reasons": [error.message]}
        finally:
            if watch is not None:
                watch.close()

    def accuracy_run(self, rate: float, options: SchedulingOptions) -> Path:
        """Return the directory of an accuracy run with these options. The run is started at the first call.

        Raises:
            HarnessError: If the run failed.
            Interrupted: If a signal ends the run.
        """
        place, recorded = self.tune.place, self.journal.accuracy_run(options)
        if recorded is None:
            number = self.journal.next_number("accuracy")
            self.say(f"\naccuracy {number}: for the sign-off ({shown(options)})")
            root = place.run("accuracy", number)
            self.set_unfinished_aside(root)
            values = {"target_qps": rate, "accuracy": True, "output_log_dir": root}
            config = make_config(applied(self.tune.values, options) | values)
            execute_run(config, self.console, keeper=self.keeper, context=f"accuracy {number}")
            recorded = AccuracyRun(number=number, directory=root.name, options=options)
            self.journal.add(recorded)
        return place.root / recorded.directory

    def estimate_offline(self) -> Estimate:
        """Estimate the Offline rate with a run over whole datasets that ends by time.

        Raises:
            HarnessError: If the run failed.
            Interrupted: If a signal ends the run.
        """
        place, text = self.tune.place, self.prepared.user_conf
        self.say("\nestimate: an Offline run")
        self.set_unfinished_aside(place.estimate)
        key = submitted_benchmark(self.prepared.benchmark.submission_name, "Offline").loadgen_key
        for name, value in (("min_duration", 1), ("min_query_count", ESTIMATE_SAMPLES), ("target_qps", 1)):
            text = with_setting(text, key, "Offline", name, str(value))
        write_atomic(place.estimate_conf, encode_conf(text))
        values = {name: value for name, value in self.tune.values.items() if name not in _NOT_OFFLINE}
        values |= {"scenario": "Offline", "lg_model_name": key, "user_conf": place.estimate_conf}
        watch = RateWatch(self.tune.options.estimate_s)
        rate, source = None, "a full Offline run"
        config = make_config({**values, "output_log_dir": place.estimate})
        try:
            if self.keeper is not None:
                self.keeper.engine_plan = self.prepared.plan  # plan of the probes' engine
            result = execute_run(config, self.console, watch=watch, keeper=self.keeper, context="estimate").result
            rate = result.reported.samples_per_second if result.reported else None
        except Stopped as stopped:
            rate, source = watch.samples_per_second, f"an Offline run, {stopped.message.partition(':')[0]}"
        finally:
            if self.keeper is not None:
                self.keeper.engine_plan = None
        if not rate:
            raise ExecutionError(f"{place.estimate}: the Offline run has no rate", "give --offline-qps QPS")
        return Estimate(samples_per_second=rate, source=source, directory=place.estimate.name)


def _of_result(result: RunNumbers) -> dict[str, Any]:
    """Return the journal fields of a finished run, with LoadGen's numbers."""
    assert result.verdict != "DONE"  # the verdict of an accuracy run
    facts: dict[str, Any] = {
        "verdict": result.verdict,
        "reasons": result.reasons,
        "queries_answered": result.counts.samples or 0,
    }
    if result.reported is not None:
        row = result.reported.flat("p99")
        facts |= {name: value for name, value in row.items() if name != "latency_p99_ms"}
    for name in ("ttft", "tpot"):
        if (limit_ns := getattr(result.in_force, f"{name}_limit_ns")) is not None:
            facts[f"{name}_limit_ms"] = limit_ns / 1e6
    if result.early_stopping is not None:
        for name, verdict in result.early_stopping.verdicts.items():
            facts |= {f"late_{name}": verdict.late, "late_allowed": verdict.allowed}
    return facts


def outcome(run: TuneRun) -> str:
    """Return the verdict and its numbers in one line."""
    if run.verdict is None:
        return f"no verdict: {'; '.join(run.reasons)}"
    parts: list[str] = [run.verdict]
    for name in ("ttft", "tpot"):
        value, limit = getattr(run, f"{name}_p99_ms"), getattr(run, f"{name}_limit_ms")
        if value is not None and limit is not None:
            parts.append(f"p99 {name.upper()} {value:,.1f} of {limit:g} ms")
    if run.samples_per_second is not None:
        parts.append(f"{four_digits(run.samples_per_second)} samples/s done")
    if run.late_allowed is not None:
        late = f"late {run.late_ttft or 0:,} (TTFT), {run.late_tpot or 0:,} (TPOT), allowed {run.late_allowed:,}"
        parts.append(f"{late} of {run.queries_planned:,}")
    elif not run.valid:
        parts += run.reasons[:1]
    if run.stopped:
        parts.append(f"stopped after {run.queries_answered:,} responses")
    return ", ".join(parts)
