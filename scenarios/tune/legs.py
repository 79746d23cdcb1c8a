"""The legs of a tune: probes and confirmations at a rate, and the Offline leg behind the estimate."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from runs.benchmarks import submitted_benchmark
from runs.errors import ExecutionError, HarnessError, Interrupted, SetupError
from runs.files import write_atomic
from runs.loadgen.conf_lines import encode_conf, with_setting
from runs.loadgen.counts import LegCount
from runs.loadgen.early_stopping import min_queries
from runs.numbers.result import Result
from runs.record.layout import RunDir
from runs.record.progress import Progress
from runs.wording import counted, duration
from scenarios.console import say
from scenarios.leg.config import RunConfig, make_config
from scenarios.leg.forecast import count_settings, expected_count, setting
from scenarios.leg.parent import run_leg
from scenarios.leg.plan import PreparedLeg
from scenarios.resumed import set_aside
from scenarios.tune.config import Tune
from scenarios.tune.journal import Estimate, Journal, LegRecord, Options, Step
from scenarios.tune.option_space import applied
from scenarios.tune.watch import SERVER_PERCENTILE, ProbeWatch, RateWatch, Stopped

ESTIMATE_SAMPLES = 2_048  # of the Offline leg behind the estimate, at the least; it is stopped by the clock
# Only the latency scenarios know these, and the key of Interactive is its alone.
_NOT_OFFLINE = frozenset({"admission", "admission_tokens", "admission_queries", "lg_model_name", "enable_log_trace"})


class _TimeIsUp(Interrupted):
    """The time of a search was over in the middle of a leg."""


@dataclass(frozen=True)
class TuneLegs:
    """Runs and records the legs of a tune."""

    tune: Tune
    leg: PreparedLeg  # of the scenario being tuned; each leg is as this one, but for the rate and searched options
    journal: Journal
    console: Console

    def say(self, text: str) -> None:
        say(self.console, text)

    def setting(self, key: str) -> int | float | None:
        """Return the number that user.conf sets for a key of this scenario."""
        return setting(self.leg, key)

    @property
    def min_duration_ms(self) -> int:
        found = self.setting("min_duration")
        return self.leg.benchmark.min_duration_ms if found is None else int(found)

    @property
    def set_size(self) -> int:
        """Samples that LoadGen loads at a time, of which it issues whole multiples."""
        return count_settings(self.leg).set_size

    def count(self, target_qps: float) -> LegCount:
        """How many queries a leg at this rate has, and how long it takes."""
        return expected_count(self.leg, "performance", {"target_qps": target_qps})

    def make_room(self, folder: Path) -> None:
        """A step that has no line in the journal was interrupted: its files go aside, and it is run again."""
        if folder.exists():
            aside = set_aside([folder], self.tune.place.discarded)
            self.say(f"an unfinished {folder.name} is now in {aside}")

    def run(
        self,
        step: Step,
        rate: float,
        options: Options,
        title: str = "",
        *,
        time_s: float = math.inf,
        may_fail: bool = False,
        **of_a_search: Any,
    ) -> LegRecord:
        """Run the next leg of a step at a rate, and record it in the journal.

        Args:
            options: scheduling options that a search set.
            title: more words for the line that announces the leg.
            time_s: end the leg after so long, without a verdict.
            may_fail: a leg that fails has no verdict, and is no error.
            of_a_search: more fields of the record.

        Raises:
            SetupError: early stopping does not pass with so few queries, however fast the system is.
            HarnessError: the leg failed; it has no verdict. Interrupted: by a signal.
        """
        number, planned = self.journal.next_number(step), self.count(rate)
        self._refuse_too_few(rate, planned)
        self.say(
            f"\n{step} {number}{title}: {rate:g} samples/s, {counted(planned.samples, 'sample')}, "
            f"{duration(planned.expected_s)} ({planned.why})"
        )
        run_dir = RunDir(self.tune.place.leg(step, number))
        self.make_room(run_dir.root)
        started_s = time.monotonic()
        values = {**applied(self.tune.values, options), "target_qps": rate, "output_log_dir": run_dir.root}
        outcome_facts = self._run(make_config(values), run_dir, planned, started_s + time_s, may_fail=may_fail)
        record = LegRecord(
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

    def _refuse_too_few(self, rate: float, planned: LegCount) -> None:
        if self._is_server and planned.samples < (needed := min_queries(0, SERVER_PERCENTILE)):
            raise SetupError(
                f"at {rate:g} queries/s LoadGen issues {planned.samples} queries; with fewer than {needed} none can be "
                "VALID",
                f"set *.Server.min_query_count = {needed} or a longer min_duration in user.conf",
            )

    @property
    def _is_server(self) -> bool:
        return self.leg.plan.loadgen_scenario == "Server"

    def _run(
        self, config: RunConfig, run_dir: RunDir, planned: LegCount, end_s: float, *, may_fail: bool
    ) -> dict[str, Any]:
        """Run a leg until its end, or until it can no longer be VALID; the fields of its record that it decides."""
        watch = None
        if self._is_server:
            percentile = self.setting("target_latency_percentile")
            share = SERVER_PERCENTILE if percentile is None else percentile / 100
            watch = ProbeWatch(run_dir.requests, planned.samples, share)

        def on_progress(progress: Progress) -> None:
            if watch is not None:
                watch(progress)
            if time.monotonic() > end_s:
                raise _TimeIsUp("stopped: the search's time is over")

        try:
            return _of_result(run_watched(config, self.console, on_progress))
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

    def estimate_offline(self) -> Estimate:
        """Measure the Offline rate, roughly: whole data sets, stopped by the clock.

        Raises:
            HarnessError: the leg failed. Interrupted: by a signal.
        """
        place, text = self.tune.place, self.leg.user_conf
        self.say("\nestimate: an Offline leg")
        self.make_room(place.estimate)
        key = submitted_benchmark(self.leg.benchmark.submission_name, "Offline").loadgen_key
        for name, value in (("min_duration", 1), ("min_query_count", ESTIMATE_SAMPLES), ("target_qps", 1)):
            text = with_setting(text, key, "Offline", name, str(value))
        write_atomic(place.estimate_conf, encode_conf(text))
        values = {name: value for name, value in self.tune.values.items() if name not in _NOT_OFFLINE}
        values |= {"scenario": "Offline", "lg_model_name": key, "user_conf": place.estimate_conf}
        watch = RateWatch(self.tune.options.estimate_s)
        rate, source = None, "a whole Offline leg"
        try:
            result = run_watched(make_config({**values, "output_log_dir": place.estimate}), self.console, watch)
            rate = result.reported.samples_per_second if result.reported else None
        except Stopped as stopped:
            rate, source = watch.samples_per_second, f"an Offline leg, {stopped.message.partition(':')[0]}"
        if not rate:
            raise ExecutionError(f"{place.estimate}: the Offline leg has no rate", "give --offline-qps")
        return Estimate(samples_per_second=rate, source=source, directory=place.estimate.name)


def run_watched(config: RunConfig, console: Console, watch: Callable[[Progress], None]) -> Result:
    """Run a leg that `watch` may end."""
    return run_leg(config, console, watch=watch).result


def _of_result(result: Result) -> dict[str, Any]:
    """The fields of a leg that ran to its end; LoadGen's numbers."""
    assert result.verdict != "DONE"  # that of an accuracy leg
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


def outcome(leg: LegRecord) -> str:
    """The verdict and its numbers, in one line."""
    if leg.verdict is None:
        return f"no verdict: {'; '.join(leg.reasons)}"
    parts: list[str] = [leg.verdict]
    for name in ("ttft", "tpot"):
        value, limit = getattr(leg, f"{name}_p99_ms"), getattr(leg, f"{name}_limit_ms")
        if value is not None and limit is not None:
            parts.append(f"p99 {name.upper()} {value:,.1f} of {limit:g} ms")
    if leg.samples_per_second is not None:
        parts.append(f"{leg.samples_per_second:,.4g} samples/s done")
    if leg.late_allowed is not None:
        late = f"late {leg.late_ttft or 0:,} (TTFT) and {leg.late_tpot or 0:,} (TPOT), allowed {leg.late_allowed:,}"
        parts.append(f"{late} of {leg.queries_planned:,}")
    elif not leg.valid:
        parts += leg.reasons[:1]
    if leg.stopped:
        parts.append(f"stopped after {leg.queries_answered:,} answers")
    return ", ".join(parts)
