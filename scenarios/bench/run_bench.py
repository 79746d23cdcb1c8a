"""The runs of a bench, one after another on one engine, and its files."""

import math
import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console

from runs.bench.bench_record import BenchRecord, BenchRun, LoadKind, write_bench
from runs.bench.best_rate import best_rate, steady_rate
from runs.bench.measure import failed_run, measure_run
from runs.errors import Ending, ExecutionError, ExitCode, HarnessError
from runs.files.temporary import temporary_folder
from runs.files.writing import remove_temporary
from runs.record.fingerprint import run_fingerprint
from runs.record.finished_run import finished_run
from runs.record.layout import RunDir
from runs.wording import four_digits
from scenarios.bench import table
from scenarios.bench.announcement import announce_bench, show_ladder
from scenarios.bench.bench_files import write_files
from scenarios.bench.bench_plan import Bench
from scenarios.bench.ladder import PlannedBenchRun, choose_percentile, lowest_rate, next_run, typical_run
from scenarios.bench.live import LiveRun
from scenarios.bench.opened_bench import conditions_with, open_bench_record, planned_conditions
from scenarios.bench.run_files import (
    repeated_rows,
    run_fields,
    run_folder,
    run_of_started_system,
    write_run_files,
)
from scenarios.console import say
from scenarios.discarded import set_aside
from scenarios.launch.parent import engine_keeper, execute_run
from scenarios.launch.plan import prepare
from scenarios.launch.rate_watch import RateWatch, Stopped
from scenarios.live.waiting import waiting
from scenarios.resumed import DISCARDED, LOCK, recorded_end, resumable
from scenarios.terminal import consoles_of_runs

if TYPE_CHECKING:
    from runs.numbers.result import RunNumbers
    from sut.replicas.kept_engine import EngineKeeper

MAX_FAILED_RUNS = 2  # maximum number of failed runs; one more failed run ends the bench
MAX_OFFLINE_QUERIES = 24_576  # rows of a dataset of about 200 MB

# A warm-up ends when its rates in two windows agree, or at the planned duration of a run. Without a rate, it sends few
# queries first, so that a slow system responds in this time, and is repeated with more.
AGREEMENT = 0.05
WINDOWS_FROM = 1 / 6  # share of the planned duration of a run
WARM_UP_QUERIES, MAX_WARM_UP_QUERIES = 8, 8_192
ENOUGH_RESPONSES = 8
WARM_UP_TRIES = 5
OFFLINE_TRIES = 3
MAX_DRAIN_S = 60.0  # a saturated run whose drain would take longer ends with its last arrival
SHORT_SHARE = 1 / 3  # an Offline run shorter than this share of the planned duration is repeated


def run_bench(bench: Bench, console: Console, *, restart_changed: bool = False, dry_run: bool = False) -> ExitCode:
    """Execute the remaining runs of a bench, and write its files after each run.

    Args:
        restart_changed: Set the runs of another configuration aside and start again.
        dry_run: Check everything and show the plan; start and write nothing.

    Returns:
        The exit code of the record.

    Raises:
        InputError: If the directory has a bench with another configuration.
        SetupError: If a run is refused, or another bench holds the directory.
        HarnessError: If the warm-up failed, or too many runs.
        Interrupted: If a signal ends the bench; the same command continues it.
    """
    with waiting(console, "checking"), temporary_folder("bench-") as folder:
        # Check before the directory is created, so that a refused bench leaves no files.
        config = write_run_files(replace(bench, folder=folder), typical_run(bench.steps[-1]))
        prepared = prepare(config, partial(say, console))
        conditions = planned_conditions(bench, prepared)
    announce_bench(bench, prepared, console)
    if dry_run:
        show_ladder(bench.ladder(), console)
        return ExitCode.OK

    def work() -> ExitCode:
        remove_temporary(bench.folder)
        record = open_bench_record(bench, conditions, console, restart_changed)
        with engine_keeper(config, bench.folder) as keeper:
            if keeper is not None:
                keeper.engine_plan = prepared.plan
            return _Runs(bench, console, record, keeper).go()

    return resumable(bench.folder / LOCK, "bench", partial(say, console), work)


# The runs ------------------------------------------------------------------------------------------------------------


class _Runs:
    """One execution of the command."""

    def __init__(self, bench: Bench, console: Console, record: BenchRecord, keeper: "EngineKeeper | None") -> None:
        self._bench, self._console, self._record, self._keeper = bench, console, record, keeper
        self._ladder = bench.ladder()
        self._warm_qps: float | None = None  # rate of the warm-up; None = the engine is not warm
        self._has_started = False  # True after a warm-up: later failures are failures of the system
        self._live_console, self._run_console = consoles_of_runs(console)

    def go(self) -> ExitCode:
        """Execute the remaining runs, and write the files at any end."""
        with recorded_end(self._end):
            if self._record.runs:
                self._say(table.column_names(self._record))
            for run in self._record.runs:
                table.show(self._console, self._record, run)
            self._climb()
        return self._record.exit_code

    def _say(self, text: str) -> None:
        say(self._console, text)

    def _climb(self) -> None:
        while True:
            lowest_qps = lowest_rate(self._ladder, steady_rate(self._record.runs))
            self._choose_percentile(lowest_qps)
            plan = replace(self._ladder, percentile=self._record.percentile)
            spec = next_run(plan, self._record.runs, self._record.rows_used)
            if spec is None:
                return
            run = self._next(spec)
            self._add(run)
            failed = [run for run in self._record.runs if run.verdict == "failed"]
            if len(failed) > MAX_FAILED_RUNS:
                raise ExecutionError(f"{len(failed)} runs failed; the last one: {'; '.join(run.reasons)}")

    def _next(self, spec: PlannedBenchRun) -> BenchRun:
        """Execute a run, after a warm-up if the engine is not warm.

        Raises:
            HarnessError: If the warm-up failed; with the failure of the run before, which is the cause.
        """
        try:
            if self._warm_qps is None and spec.kind != "concurrency":
                self._warm_qps = self._warm_up(qps=self._ladder.warm_up_qps)
            return self._offline(spec) if spec.kind == "offline" else self._measured(self._sized(spec))
        except HarnessError as error:
            before = self._record.runs[-1] if self._record.runs else None
            if before is None or before.verdict != "failed":
                raise
            cause = f"{table.run_title(before)} failed: {'; '.join(before.reasons)}"
            raise ExecutionError(f"{cause}\nthe next warm-up failed: {error.message}", error.fix) from error

    def _choose_percentile(self, lowest_qps: float | None) -> None:
        if self._record.percentile_reason or lowest_qps is None:
            return
        percentile, reason = choose_percentile(self._ladder, lowest_qps)
        self._update(percentile=percentile, percentile_reason=reason)
        effect = ", so the limits are not checked" if percentile is None and self._record.limits else ""
        self._say(f"  percentile: {percentile or 'none'}; {reason}{effect}")

    def _warm_up(self, *, concurrency: int | None = None, qps: float | None = None) -> float:
        """Return the rate of the engine, once it is stable.

        Args:
            concurrency: Number of open queries. None = all.
            qps: Rate of the arrivals. None = all queries arrive at once.
        """
        lengths, left_s = self._bench.output_len, self._ladder.duration_s
        windows_s = WINDOWS_FROM * self._ladder.duration_s
        exact = self._bench.exact_output and lengths[0] == lengths[1]
        kind: LoadKind = "server" if qps is not None else "concurrency" if concurrency is not None else "offline"
        queries = max(WARM_UP_QUERIES, 2 * (concurrency or 0)) if qps is None else math.ceil(qps * left_s)
        for _ in range(WARM_UP_TRIES):
            watch = RateWatch(
                left_s,
                agreement=AGREEMENT,
                from_s=windows_s,
                tokens_per_query=lengths[1] if exact else None,
                enough=ENOUGH_RESPONSES,
                limit_s=left_s,
            )
            spec = PlannedBenchRun(0, kind, queries, -queries, qps, concurrency=concurrency)
            folder = run_folder(self._bench, spec)
            shutil.rmtree(folder, ignore_errors=True)
            try:
                with LiveRun(self._live_console, "warm-up", spec, math.inf, watch) as live:
                    result = self._execute(spec, live)
            except Stopped:
                rate = watch.samples_per_second or 0.0
                break
            rate = result.reported.samples_per_second or 0.0 if result.reported is not None else 0.0
            left_s -= spec.queries / rate if rate else left_s
            queries = min(math.ceil(2 * windows_s * rate), MAX_WARM_UP_QUERIES)
            if queries <= spec.queries or left_s <= 0 or qps is not None:
                break
        shutil.rmtree(folder)  # not a result
        self._has_started = True
        self._say(f"  warm-up: {four_digits(rate)} queries/s" + (f" with {concurrency} open" if concurrency else ""))
        return rate

    def _sized(self, spec: PlannedBenchRun) -> PlannedBenchRun:
        """Return a run with its number of queries, and choose the percentile if this is the first rate."""
        if spec.kind != "concurrency" or spec.queries:
            return spec
        rate = self._warm_up(concurrency=spec.concurrency)
        self._choose_percentile(rate)
        percentile = self._record.percentile
        queries = replace(self._ladder, percentile=percentile).queries_at(rate)
        return replace(spec, queries=queries, percentile=percentile)

    def _offline(self, spec: PlannedBenchRun) -> BenchRun:
        """Execute the Offline run, with more queries if it was too short."""
        rate, planned_s = self._warm_qps or 1.0, self._ladder.duration_s
        for _ in range(OFFLINE_TRIES):
            most = max(MAX_OFFLINE_QUERIES, self._ladder.queries)
            spec = replace(spec, queries=spec.queries or min(self._ladder.queries_at(rate), most))
            run = self._measured(spec)
            is_short = run.duration_s is not None and run.duration_s < SHORT_SHARE * planned_s
            if not is_short or not run.done_qps or spec.queries >= most:
                break
            rate, spec = run.done_qps, replace(spec, queries=0, first_row=self._record.rows_used)
        return run

    def _measured(self, spec: PlannedBenchRun) -> BenchRun:
        """Execute a run; return its numbers."""
        bench, folder = self._bench, run_folder(self._bench, spec)
        if warning := repeated_rows(bench, spec):
            self._warn(warning)
        if folder.exists():
            set_aside([folder], bench.folder / DISCARDED)
        self._update(rows_used=spec.first_row + spec.queries)
        fields = run_fields(bench, spec, bench.folder)
        named = failed_run(folder, "", **fields)
        try:
            with LiveRun(self._live_console, table.run_title(named), spec, MAX_DRAIN_S) as live:
                self._execute(spec, live)
        except Stopped as stopped:
            return named.model_copy(update={"verdict": "saturated", "reasons": [stopped.message], **live.numbers()})
        except HarnessError as error:
            self._warm_qps = None  # the next engine is cold
            return named.model_copy(update={"reasons": [error.message]})
        exact = bench.output_len[0] if bench.exact_output else None
        percentile = self._record.percentile
        return measure_run(folder, limits=bench.limits, percentile=percentile, output_tokens=exact, **fields)

    def _execute(self, spec: PlannedBenchRun, watch: LiveRun) -> "RunNumbers":
        config = write_run_files(self._bench, spec)
        with run_of_started_system(config, has_started=self._has_started):
            return execute_run(config, self._run_console, watch=watch, keeper=self._keeper).result

    def _add(self, run: BenchRun) -> None:
        """Add a run to the files and to the table."""
        runs = [*self._record.runs, run]
        update: dict[str, Any] = {"runs": runs, "best": best_rate(runs)}
        if run.seal_sha256 is not None and not any(
            earlier.kind != "offline" and earlier.seal_sha256 for earlier in runs[:-1]
        ):
            facts = run_fingerprint(finished_run(RunDir(self._bench.folder / run.run_dir)))
            update["conditions"] = conditions_with(self._bench, facts, self._record.conditions)
        self._update(**update)
        if len(runs) == 1:
            self._choose_percentile(lowest_rate(self._ladder, steady_rate(runs)))
            self._say(table.column_names(self._record))
        table.show(self._console, self._record, run)
        write_files(self._bench, self._record)

    def _warn(self, text: str) -> None:
        self._say(f"  warning: {text}")
        self._update(warnings=[*self._record.warnings, text])

    def _update(self, **values: Any) -> None:
        self._record = self._record.model_copy(update=values)
        write_bench(self._bench.folder, self._record)

    # The end ---------------------------------------------------------------------------------------------------------

    def _end(self, status: str, error: Ending | None = None, *, has_page: bool = True) -> None:
        if self._keeper is not None and self._keeper.starts > 1:
            self._warn(f"the engine was started {self._keeper.starts} times")
        self._update(status=status, error=None if error is None else error.message)
        if not has_page:
            return
        page = write_files(self._bench, self._record)
        for text in table.bench_closing(self._record):
            self._say(text)
        self._say(page)
