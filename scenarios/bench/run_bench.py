"""The runs of a bench, one after another on one engine, and its files."""

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console

from qsl.tokenizers import BYTES
from runs.bench.bench_record import (
    BENCH_FILE,
    BenchRecord,
    BenchRun,
    Conditions,
    Fact,
    LoadKind,
    read_bench_record,
    write_bench,
)
from runs.bench.measure import failed_run, measure_run
from runs.errors import Ending, ExecutionError, ExitCode, HarnessError, InputError, Interrupted, SetupError
from runs.files.temporary import temporary_folder
from runs.files.writing import remove_temporary
from runs.processes.interrupts import if_abandoned
from runs.record.fingerprint import Facts, changes, conditions_of, run_fingerprint
from runs.record.finished_run import finished_run
from runs.record.layout import RunDir
from runs.record.planned_fingerprint import machine_now, planned_fingerprint
from runs.wording import counted, duration
from scenarios.bench import table
from scenarios.bench.bench_files import write_files
from scenarios.bench.ladder import (
    LONGEST_S,
    LadderPlan,
    PlannedBenchRun,
    best_rate,
    choose_percentile,
    lowest_rate,
    next_run,
    offline_rate,
)
from scenarios.bench.live import LiveRun
from scenarios.bench.options import Bench
from scenarios.bench.run_files import repeated_rows, run_folder, scenario_of, write_run_files
from scenarios.console import say
from scenarios.discarded import set_aside
from scenarios.launch.parent import engine_keeper, execute_run
from scenarios.launch.plan import PreparedRun, prepare
from scenarios.launch.rate_watch import RateWatch, Stopped
from scenarios.resumed import CHANGED_FIX, model_hashes, resumable
from scenarios.terminal import Terminal
from scenarios.verbosity import is_verbose
from sut.http.dialects import DIALECTS

if TYPE_CHECKING:
    from runs.numbers.result import RunNumbers
    from sut.replicas.kept_engine import EngineKeeper

LOCK, DISCARDED = "lock", "discarded"
MAX_FAILED_RUNS = 2  # maximum number of failed runs; one more failed run ends the bench
MAX_OFFLINE_QUERIES = 24_576  # rows of a dataset of about 200 MB
CHECKED_ROWS = 8  # rows of the run that is checked before the bench starts

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

OVERHEAD_S = 12.0  # time of a run's start, checks and page, for the forecast
UNOFFICIAL = "not eligible for submission: short runs with their own settings; one engine serves all runs"


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
    with console.status("checking"), temporary_folder("bench-") as folder:
        # Check before the directory is created, so that a refused bench leaves no files.
        config = write_run_files(replace(bench, folder=folder), _checked_spec(bench))
        prepared = prepare(config, partial(say, console))
        conditions = _conditions(bench, prepared)
    _announce(bench, prepared, console)
    if dry_run:
        _show_plan(ladder_plan(bench), console)
        return ExitCode.OK

    def work() -> ExitCode:
        remove_temporary(bench.folder)
        record = _opened(bench, conditions, console, restart_changed)
        with engine_keeper(config, bench.folder) as keeper:
            if keeper is not None:
                keeper.engine_plan = prepared.plan
            return _Runs(bench, console, record, keeper).go()

    return resumable(bench.folder / LOCK, "bench", partial(say, console), work)


def ladder_plan(bench: Bench) -> LadderPlan:
    """Return the loads that a bench measures."""
    longest_s = bench.duration_s if bench.is_duration_given else LONGEST_S
    return LadderPlan(
        steps=bench.steps,
        is_adaptive=bench.is_adaptive,
        duration_s=bench.duration_s,
        longest_s=longest_s,
        max_runs=bench.max_runs if bench.is_adaptive else max(bench.max_runs, len(bench.steps) + 1),
        queries=bench.queries or 0,
        repeats=bench.repeats,
    )


# Before the start ----------------------------------------------------------------------------------------------------


def _checked_spec(bench: Bench) -> PlannedBenchRun:
    """Return a run with the typical load of the bench. The engine starts with the plan of this run."""
    step = bench.steps[-1]
    rate = None if step.kind != "server" else step.qps or 1.0
    return PlannedBenchRun(0, step.kind, CHECKED_ROWS, 0, rate, concurrency=step.concurrency)


def _conditions(bench: Bench, prepared: PreparedRun) -> Conditions:
    """Return the conditions that are known before the start."""
    facts = planned_fingerprint(
        prepared.plan, prepared.user_conf, prepared.run_dir, model_hashes(prepared), machine_now()
    )
    conditions = {key: value for key, value in facts.items() if not key.startswith("user.conf ")}
    return _with_facts(bench, conditions, Conditions(equal={}, system={}))


def _with_facts(bench: Bench, facts: Facts, before: Conditions) -> Conditions:
    equal, system = conditions_of(facts, of_bench=True)
    dialect = DIALECTS.get(bench.values.get("api_dialect", ""))
    counting: dict[str, Fact] = {"token_counting": "token IDs"}
    if dialect is not None and dialect.sends_text:
        otherwise = "chunks" if bench.values.get("model_path") == BYTES else "tokenizer on text"
        counting = {"token_counting": f"usage of the server, else {otherwise}"}
    return Conditions(
        equal=before.equal | equal | counting | bench.equal_conditions(),
        system=before.system | system | bench.other_conditions(),
    )


def _announce(bench: Bench, prepared: PreparedRun, console: Console) -> None:
    data = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in bench.prompts.facts().items())
    is_closed = bench.steps[0].kind == "concurrency"
    load = "closed loop (latencies start when the harness sends a query)" if is_closed else bench.scenario
    say(console, f"bench {bench.label}: {load}, {bench.target} ({prepared.plan.engine}); {data}")
    say(console, f"  {UNOFFICIAL}")
    say(console, f"  limits: {bench.limits or 'none'}; directory {bench.folder}")
    for note in [*bench.notes, *prepared.hints]:
        say(console, f"  note: {note}")


def _show_plan(plan: LadderPlan, console: Console) -> None:
    most = plan.repeats * plan.max_runs
    fewest = most if plan.is_adaptive else plan.repeats * len(plan.steps)
    if plan.queries:
        minimum = f"at least {plan.queries:,} queries in each run, and more if the duration requires it"
        say(console, f"  {minimum} (`vllm bench serve` sends exactly this number)")
    least_s = fewest * (plan.duration_s + OVERHEAD_S)
    most_s = most * (plan.duration_s + OVERHEAD_S) + plan.repeats * 2 * (plan.longest_s - plan.duration_s)
    if plan.warm_up_qps is not None:
        say(console, f"  warm-up     {plan.warm_up_qps:g} queries/s, at most {duration(plan.duration_s)}")
    for step in plan.steps:
        at = f"{step.concurrency} open queries" if step.concurrency else "all queries at once"
        if step.share is not None:
            at = f"{100 * step.share:g}% of the Offline rate"
        elif step.qps is not None:
            at = f"{step.qps:g} queries/s"
        say(console, f"  {step.kind:<12}{at}, {duration(plan.duration_s)}")
    if plan.is_adaptive:
        say(console, "  server      at most two rates at the boundary, and the best rate again")
    say(console, f"at most {counted(most, 'run')}, {duration(least_s)} to {duration(most_s)} after the engine's start")
    say(console, "dry run: nothing was started or written")


def _opened(bench: Bench, now: Conditions, console: Console, restart_changed: bool) -> BenchRecord:
    """Return the record of the directory, or a new one.

    Raises:
        InputError: If the directory has a bench with another command or configuration.
        SetupError: If it has other files.
    """
    folder = bench.folder
    entries = sorted(path for path in folder.iterdir() if path.name not in (LOCK, DISCARDED))
    if (folder / BENCH_FILE).exists():
        record = read_bench_record(folder / BENCH_FILE)
        changes = list(_changed(bench, record, now))
        if not changes:
            # Failed and unfinished runs are repeated.
            kept = [run for run in record.runs if run.verdict != "failed"]
            record = record.model_copy(update={"runs": kept, "status": "running", "error": None})
            if kept:
                say(console, f"continued after {counted(len(kept), 'run')}")
            return record
        what = f"{folder} has a bench with another command or configuration:\n" + "\n".join(
            f"  {change}" for change in changes
        )
        if not restart_changed:
            raise InputError(what, CHANGED_FIX)
        say(console, f"{what}\nthe earlier files are now in {set_aside(entries, folder / DISCARDED)}")
    elif entries:
        raise SetupError(f"{entries[0]} already exists and does not belong to a bench", "give a new --output-log-dir")
    like = bench.like
    return BenchRecord(
        status="running",
        label=bench.label,
        metadata=bench.metadata,
        command=bench.command,
        target=bench.target,
        model=bench.values.get("api_model_name"),
        tokenizer=None if bench.values.get("model_path") == BYTES else bench.values.get("model_path"),
        conditions=now,
        limits=bench.limits,
        percentile=like.percentile if like is not None else None,
        percentile_reason=f"the percentile of {like.label}" if like is not None else "",
        accelerators=_accelerators(now),
    )


def _changed(bench: Bench, then: BenchRecord, now: Conditions) -> Iterator[str]:
    """Yield the differences between the record of a bench and the command that would continue it."""
    ignored = {"--restart-changed", "--verbose", "--resume"}
    commands = [[word for word in words if word not in ignored] for words in (then.command, bench.command)]
    if commands[0] != commands[1]:
        yield f"command: {' '.join(then.command)} in the earlier bench, {' '.join(bench.command)} now"
    facts = now.equal | now.system
    conditions = then.conditions.equal | then.conditions.system
    yield from changes({key: conditions.get(key) for key in facts}, facts)


def _accelerators(conditions: Conditions) -> int | None:
    names = conditions.system.get("accelerators.name")
    return len(names.split(", ")) if isinstance(names, str) and names else None


# The runs ------------------------------------------------------------------------------------------------------------


class _Runs:
    """One execution of the command."""

    def __init__(self, bench: Bench, console: Console, record: BenchRecord, keeper: "EngineKeeper | None") -> None:
        self._bench, self._console, self._record, self._keeper = bench, console, record, keeper
        self._ladder = ladder_plan(bench)
        self._warm_qps: float | None = None  # rate of the warm-up; None = the engine is not warm
        self._has_started = False  # True after a warm-up: later failures are failures of the system
        # The output of a run would disturb the table. With --verbose, it replaces the live line.
        quiet: Console = Terminal(quiet=True, force_terminal=False)
        self._live_console = quiet if is_verbose() else console
        self._run_console = console if is_verbose() else quiet

    def go(self) -> ExitCode:
        """Execute the remaining runs, and write the files at any end."""
        try:
            with if_abandoned(lambda error: self._end("interrupted", error, has_page=False)):
                if self._record.runs:
                    self._say(table.header(self._record))
                for run in self._record.runs:
                    table.show(self._console, self._record, run)
                self._climb()
        except Interrupted as error:
            self._end("interrupted", error)
            raise
        except HarnessError as error:
            self._end("failed", error)
            raise
        self._end("complete")
        return self._record.exit_code

    def _say(self, text: str) -> None:
        say(self._console, text)

    def _climb(self) -> None:
        while True:
            lowest_qps = lowest_rate(self._ladder, offline_rate(self._record.runs))
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
        lengths, left_s = self._bench.output_len, self._bench.duration_s
        windows_s = WINDOWS_FROM * self._bench.duration_s
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
        self._say(f"  warm-up: {rate:.4g} queries/s" + (f" with {concurrency} open" if concurrency else ""))
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
        rate, planned_s = self._warm_qps or 1.0, self._bench.duration_s
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
        names = ("number", "kind", "repetition", "again", "share", "asked_qps", "concurrency")
        of_the_spec: dict[str, Any] = {name: getattr(spec, name) for name in names} | {"folder": bench.folder}
        of_the_spec["scenario"] = scenario_of(bench, spec)
        named = failed_run(folder, "", **of_the_spec)
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
        return measure_run(folder, limits=bench.limits, percentile=percentile, output_tokens=exact, **of_the_spec)

    def _execute(self, spec: PlannedBenchRun, watch: LiveRun) -> "RunNumbers":
        config = write_run_files(self._bench, spec)
        try:
            return execute_run(config, self._run_console, watch=watch, keeper=self._keeper).result
        except (InputError, SetupError) as error:
            if not self._has_started:
                raise
            raise ExecutionError(error.message, error.fix) from error  # a system that was usable before
        finally:
            assert config.dataset_path is not None
            config.dataset_path.unlink(missing_ok=True)  # the seed recreates the file

    def _add(self, run: BenchRun) -> None:
        """Add a run to the files and to the table."""
        runs = [*self._record.runs, run]
        update: dict[str, Any] = {"runs": runs, "best": best_rate(runs)}
        if run.seal_sha256 is not None and not any(one.kind != "offline" and one.seal_sha256 for one in runs[:-1]):
            facts = run_fingerprint(finished_run(RunDir(self._bench.folder / run.run_dir)))
            update["conditions"] = _with_facts(self._bench, facts, self._record.conditions)
        self._update(**update)
        if len(runs) == 1:
            self._choose_percentile(lowest_rate(self._ladder, offline_rate(runs)))
            self._say(table.header(self._record))
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
        for text in table.closing(self._record):
            self._say(text)
        self._say(page)
