"""The blocks of a comparison, one after another, and its files."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console

from runs.ab import ab_text
from runs.ab.ab_record import AB_FILE, AbBlock, AbLoad, AbRecord, AbSystem, read_ab_record, write_ab
from runs.ab.block_queries import SystemQueries, read_block
from runs.ab.changes import MIN_TAIL_QUERIES, Turns, changes_of, is_settled, levels_of
from runs.bench.best_rate import rounded_rate
from runs.bench.circumstances import CACHED_SHARE
from runs.bench.measure import failed_run, measure_run
from runs.errors import Ending, ExecutionError, ExitCode, HarnessError, InputError, SetupError
from runs.files.temporary import temporary_folder
from runs.files.writing import remove_temporary
from runs.record.finished_run import finished_run
from runs.record.layout import RunDir
from runs.record.observed import Contention
from runs.wording import clock, counted, duration, four_digits
from scenarios.ab.ab_options import Ab
from scenarios.ab.block_files import PlannedBlock, bench_of, set_seeds, write_block_files
from scenarios.ab.compared_systems import facts_of_system, running_system, shares_machine
from scenarios.ab.load_ab import conditions_of_ab, loads_of
from scenarios.ab.pages import write_ab_page
from scenarios.bench.ladder import LoadStep, PlannedBenchRun, typical_run
from scenarios.bench.live import LiveRun
from scenarios.bench.run_files import run_fields, run_folder, run_of_started_system
from scenarios.console import say
from scenarios.discarded import set_aside
from scenarios.launch.parent import execute_run
from scenarios.launch.plan import prepare
from scenarios.live.waiting import waiting
from scenarios.resumed import CHANGED_FIX, DISCARDED, LOCK, recorded_end, resumable
from scenarios.terminal import consoles_of_runs

if TYPE_CHECKING:
    from sut.replicas.kept_engine import EngineKeeper

MAX_FAILED_BLOCKS = 2
OVERHEAD_S = 6.0  # time of a block's start and checks, for the plan
INTERLEAVED_S = (20.0, 40.0, 60.0)  # durations of the first blocks of a load; later blocks have the last one
TURN_QUERIES, SHORTEST_TURN_S, LONGEST_TURN_S = 30, 5.0, 60.0
WARM_UP_S = 8.0
OFFLINE_QUERIES, MAX_OFFLINE_QUERIES, OFFLINE_S = 16, 8192, 12.0
SATURATED_BLOCKS = 2  # blocks, or pairs of blocks, after which a saturated load ends
TURN_STARTS = 2.0  # a turn lasts at least this multiple of the start of its system
FAILED_SHARE, SHORT_SHARE, TOKENS_SHARE, LATE_SHARE = 0.01, 0.01, 0.01, 0.05
FOREIGN_SHARE = 0.2  # other processes used so much more of the cores' time than in the median block
UNOFFICIAL = "not eligible for submission: short runs with their own settings"


def run_ab(ab: Ab, console: Console, *, restart_changed: bool = False, dry_run: bool = False) -> ExitCode:
    """Execute the remaining blocks of a comparison, and write its files after each block.

    Raises:
        InputError: If the directory has a comparison with another command.
        SetupError: If a run is refused, or another comparison holds the directory.
        HarnessError: If too many blocks failed.
        Interrupted: If a signal ends the comparison; the same command continues it.
    """
    if ab.systems[0].serve is None:
        with waiting(console, "checking"), temporary_folder("ab-") as folder:
            for block in _checked_blocks(ab):
                prepare(write_block_files(replace(ab, folder=folder), block), partial(say, console))
    _announce(ab, console)
    if dry_run:
        _show_plan(ab, console)
        return ExitCode.OK

    def work() -> ExitCode:
        remove_temporary(ab.folder)
        return _Session(ab, console, _opened(ab, console, restart_changed)).go()

    return resumable(ab.folder / LOCK, "comparison", partial(say, console), work)


def _checked_blocks(ab: Ab) -> Iterator[PlannedBlock]:
    """Yield blocks with a typical load, which are checked before anything starts."""
    everyone, spec = [*range(len(ab.systems))], typical_run(ab.steps[-1])
    yield from (
        [PlannedBlock(spec, 0, 0, everyone)]
        if ab.method == "interleaved"
        else (PlannedBlock(spec, 0, 0, [system]) for system in everyone)
    )


def _announce(ab: Ab, console: Console) -> None:
    data = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in ab.base.prompts.facts().items())
    how = "each query goes to one of the systems" if ab.method == "interleaved" else "the systems take turns (A B B A)"
    say(console, f"comparison of {counted(len(ab.systems), 'system')}: {how}; {data}")
    for system in ab.systems:
        say(console, f"  {system.name} {system.target}")
    say(console, f"  {UNOFFICIAL}")
    say(console, f"  precision {ab.precision:.3g}, at most {duration(ab.max_time_s)}; directory {ab.folder}")
    for note in ab.notes:
        say(console, f"  note: {note}")


def _show_plan(ab: Ab, console: Console) -> None:
    for step in loads_of(ab.steps):
        at = f"{step.concurrency} open queries" if step.concurrency else "all queries at once"
        if step.kind == "server":
            at = f"{step.share:.0%} of the Offline rate of A" if step.share is not None else f"{step.qps:g} queries/s"
        if ab.method == "interleaved":
            blocks = [ab.block_s] if ab.block_s else INTERLEAVED_S
            say(console, f"  {at} for each system: blocks of {', '.join(duration(block) for block in blocks)}")
        else:
            block_s = ab.block_s or _turn_s(step.qps or 1.0)
            pair_s = len(ab.systems) * (block_s + OVERHEAD_S)
            starts = ", and the starts of the systems" if ab.systems[0].bench.values.get("api_server") is None else ""
            say(console, f"  {at}: a pair of blocks takes {duration(pair_s)}{starts}")
    say(console, f"at most {duration(ab.max_time_s)}")
    say(console, "dry run: nothing was started or written")


def _turn_s(qps: float) -> float:
    return min(max(TURN_QUERIES / qps, SHORTEST_TURN_S), LONGEST_TURN_S)


def _opened(ab: Ab, console: Console, restart_changed: bool) -> AbRecord:
    """Return the record of the directory, or a new one.

    Raises:
        InputError: If the directory has a comparison with another command.
        SetupError: If it has other files.
    """
    folder = ab.folder
    entries = sorted(path for path in folder.iterdir() if path.name not in (LOCK, DISCARDED))
    if (folder / AB_FILE).exists():
        record = read_ab_record(folder / AB_FILE)
        ignored = {"--restart-changed", "--verbose"}
        commands = [[word for word in words if word not in ignored] for words in (record.command, ab.command)]
        if commands[0] == commands[1]:
            kept = [block for block in record.blocks if block.run.verdict != "failed"]
            if kept:
                say(console, f"continued after {counted(len(kept), 'block')}")
            return record.model_copy(update={"blocks": kept, "status": "running", "error": None})
        earlier = f"command: {' '.join(commands[0])} in the earlier comparison, {' '.join(commands[1])} now"
        what = f"{folder} has a comparison with another command:\n  {earlier}"
        if not restart_changed:
            raise InputError(what, CHANGED_FIX)
        say(console, f"{what}\nthe earlier files are now in {set_aside(entries, folder / DISCARDED)}")
    elif entries:
        raise SetupError(f"{entries[0]} already exists and does not belong to a comparison",
                         "give a new --output-log-dir")  # fmt: skip
    return AbRecord(
        status="running",
        command=ab.command,
        method=ab.method,
        systems=[
            AbSystem(name=system.name, target=system.target, facts=facts_of_system(system)) for system in ab.systems
        ],
        loads=[],
        precision=ab.precision,
        max_time_s=ab.max_time_s,
        fail_if_slower=ab.fail_if_slower,
        seed=ab.seed,
        conditions=conditions_of_ab(ab),
        limits=ab.base.limits,
        shares_machine=ab.method == "interleaved" and shares_machine(ab.systems),
    )


class _Session:
    """One execution of the command."""

    def __init__(self, ab: Ab, console: Console, record: AbRecord) -> None:
        self._ab, self._console, self._record = ab, console, record
        self._everyone = [*range(len(ab.systems))]
        self._queries: dict[int, list[SystemQueries]] = {}  # number of the block → queries of its systems
        self._live_console, self._run_console = consoles_of_runs(console)
        self._has_started = False

    def go(self) -> ExitCode:
        """Execute the remaining blocks, and write the files at any end."""
        with recorded_end(self._end):
            if self._ab.method == "interleaved":
                self._choose_loads(None)
                self._interleave()
            else:
                self._take_turns()
        return self._record.exit_code

    # Loads -----------------------------------------------------------------------------------------------------------

    def _choose_loads(self, keeper: "EngineKeeper | None") -> None:
        """Set the loads, after a run that measures the Offline rate if they are shares of it, or a warm-up."""
        steps = loads_of(self._ab.steps)
        if self._record.loads:
            return
        began_s = time.monotonic()
        systems = self._everyone if self._ab.method == "interleaved" else [0]
        rate = None
        if any(step.share is not None for step in steps):
            rate = self._offline_rate(systems, keeper)
            say(self._console, f"  Offline rate of A: {four_digits(rate)} queries/s")
        loads = [_load(step, rate) for step in steps]
        if rate is None and self._ab.method == "interleaved":
            self._warm_up(loads[0], systems, keeper)
        self._update(loads=loads, other_s=self._record.other_s + time.monotonic() - began_s)

    def _offline_rate(self, systems: list[int], keeper: "EngineKeeper | None") -> float:
        """Return the rate at which the base completes queries, while the other systems are as busy."""
        queries = OFFLINE_QUERIES * len(systems)
        rate = 0.0
        for _ in range(4):
            spec = PlannedBenchRun(0, "offline", queries, -queries)
            parts = self._unmeasured(PlannedBlock(spec, 0, 0, systems), keeper)
            done_s = float(max(parts[0].done_s))
            rate = len(parts[0]) / max(done_s, 1e-3)
            wanted = min(math.ceil(OFFLINE_S * rate) * len(systems), MAX_OFFLINE_QUERIES)
            if done_s > OFFLINE_S / 3 or wanted <= queries:
                break
            queries = wanted
        return rate

    def _warm_up(self, load: AbLoad, systems: list[int], keeper: "EngineKeeper | None") -> list[SystemQueries]:
        rate = None if load.qps is None else load.qps * len(systems)
        queries = math.ceil(rate * WARM_UP_S) if rate is not None else 2 * (load.concurrency or OFFLINE_QUERIES)
        queries = max(4 * len(systems), math.ceil(queries / len(systems)) * len(systems))
        spec = PlannedBenchRun(0, load.kind, queries, -queries, rate, concurrency=load.concurrency)
        return self._unmeasured(PlannedBlock(spec, 0, 0, systems), keeper)

    def _unmeasured(self, block: PlannedBlock, keeper: "EngineKeeper | None") -> list[SystemQueries]:
        """Execute a run that belongs to no pair; return its queries."""
        folder = run_folder(bench_of(self._ab, block), block.spec)
        self._discard(folder)
        with LiveRun(self._live_console, "warm-up", block.spec, math.inf) as live:
            self._execute(block, live, keeper)
        self._has_started = True
        parts = read_block(folder, len(block.systems))
        self._discard(folder)
        return parts

    # Interleaved -----------------------------------------------------------------------------------------------------

    def _interleave(self) -> None:
        while (load := self._next_load()) is not None:
            pair = 1 + max((block.pair for block in self._record.blocks if block.load == load), default=-1)
            block_s = self._ab.block_s or INTERLEAVED_S[min(pair, len(INTERLEAVED_S) - 1)]
            qps = self._record.loads[load].qps
            assert qps is not None
            groups = max(math.ceil(qps * block_s), 10)
            self._measured(self._planned("server", load, pair, self._everyone, groups), None)

    def _next_load(self) -> int | None:
        """Return the load of the next block: of the loads that are not precise, the one with the fewest blocks."""
        record = self._record
        typical_s = max((block.seconds for block in record.blocks), default=0.0)
        if record.blocks and record.elapsed_s + typical_s > record.max_time_s:
            return None
        counts = {load: sum(block.load == load for block in record.blocks) for load in range(len(record.loads))}
        open_loads = [load for load in counts if not self._is_done(load)]
        return min(open_loads, key=lambda load: counts[load], default=None)

    def _is_done(self, load: int) -> bool:
        record = self._record
        blocks = len({block.pair for block in record.blocks if block.load == load})
        if record.saturated_at(load):
            return blocks >= SATURATED_BLOCKS
        first_tail_s = record.elapsed_s * MIN_TAIL_QUERIES / max(record.queries(load, 0), 1)
        return is_settled(
            [change for change in record.changes if change.load == load], blocks, record.precision,
            first_tail_s=first_tail_s, max_time_s=record.max_time_s,
        )  # fmt: skip

    # Turns -----------------------------------------------------------------------------------------------------------

    def _take_turns(self) -> None:
        turn = max((block.pair for block in self._record.blocks), default=-1)
        done = {system for block in self._record.blocks if block.pair == turn for system in block.systems}
        if len(done) == len(self._everyone):
            turn += 1
        turn = max(turn, 0)
        # Blocks of an unfinished pair are repeated, so that both blocks of a pair are neighbors.
        self._update(blocks=[block for block in self._record.blocks if block.pair < turn])
        while turn == 0 or self._next_load() is not None:
            if turn and self._record.elapsed_s * (turn + 1) / turn > self._record.max_time_s:
                return
            for system in self._everyone[:: -1 if turn % 2 else 1]:
                self._turn(turn, system)
            turn += 1

    def _turn(self, turn: int, system: int) -> None:
        """Measure all open loads on one system."""
        began_s = time.monotonic()
        with running_system(self._ab, self._ab.systems[system], partial(say, self._console)) as (keeper, learned):
            if learned:
                self._learn(system, learned)
            if not self._record.loads:
                self._choose_loads(keeper)
            loads = [load for load in range(len(self._record.loads)) if turn == 0 or not self._is_done(load)]
            is_new = self._ab.systems[system].serve is not None or keeper is not None
            if turn == 0 or is_new:
                self._warm_up(self._record.loads[loads[0]], [system], keeper)
            start_s = time.monotonic() - began_s
            self._update(other_s=self._record.other_s + start_s)
            least_s = TURN_STARTS * start_s if is_new else 0.0
            for load in loads:
                queries = self._turn_size(load, system, keeper, least_s)
                kind = self._record.loads[load].kind
                self._measured(self._planned(kind, load, turn, [system], queries), keeper)

    def _turn_size(self, load: int, system: int, keeper: "EngineKeeper | None", least_s: float) -> int:
        """Return the number of queries of a block. All blocks of a load have the number of the first block.

        Args:
            least_s: Minimum duration, so that the starts of the systems do not dominate.
        """
        step = self._record.loads[load]
        earlier = next((block for block in self._record.blocks if block.load == load), None)
        if earlier is not None:
            return earlier.run.queries
        rate = step.qps
        if step.kind == "offline":
            rate = self._offline_rate([system], keeper)
        elif rate is None:
            parts = self._warm_up(step, [system], keeper)
            rate = len(parts[0]) / max(float(max(parts[0].done_s)), 1e-3)
        block_s = self._ab.block_s or min(max(_turn_s(rate), least_s), LONGEST_TURN_S)
        queries = math.ceil(rate * block_s)
        return max(queries, 2) if step.qps is not None else min(max(queries, TURN_QUERIES), MAX_OFFLINE_QUERIES)

    def _learn(self, system: int, facts: dict[str, Any]) -> None:
        """Add the facts that a started server reports."""
        systems = list(self._record.systems)
        systems[system] = systems[system].model_copy(update={"facts": {**systems[system].facts, **facts}})
        self._update(systems=systems)

    # Blocks ----------------------------------------------------------------------------------------------------------

    def _planned(self, kind: Any, load: int, pair: int, systems: list[int], queries: int) -> PlannedBlock:
        """Return the next block. The blocks of a pair have equal rows.

        Args:
            queries: Number of queries of each system.
        """
        step, record = self._record.loads[load], self._record
        number = max((block.number for block in record.blocks), default=0) + 1
        rate = None if step.qps is None else step.qps * len(systems)
        twin = next((block for block in record.blocks if (block.load, block.pair) == (load, pair)), None)
        if twin is None:
            first_row = record.rows_used
            distinct = len(self._everyone) if self._ab.has_equal_urls else 1  # queries with different prompts
            self._update(rows_used=first_row + queries * distinct)
        else:  # the prompts of a pair are equal, except those of one server
            first_row = twin.first_row + queries * self._ab.has_equal_urls
        spec = PlannedBenchRun(
            number, kind, queries * len(systems), first_row, rate, concurrency=step.concurrency, share=step.share
        )
        return PlannedBlock(spec, load, pair, systems)

    def _measured(self, block: PlannedBlock, keeper: "EngineKeeper | None") -> None:
        """Execute a block, and add it with the changes so far."""
        bench, spec, began_s = bench_of(self._ab, block), block.spec, time.monotonic()
        folder = run_folder(bench, spec)
        self._discard(folder)
        fields = run_fields(bench, spec, self._ab.folder)
        parts: list[SystemQueries] = []
        try:
            with LiveRun(self._live_console, self._title(block), spec, math.inf) as live:
                self._execute(block, live, keeper)
            exact = bench.output_len[0] if bench.exact_output else None
            run = measure_run(folder, limits=None, percentile=None, output_tokens=exact, **fields)
            if run.verdict != "failed":
                parts = read_block(folder, len(block.systems))
        except (InputError, SetupError):
            raise
        except HarnessError as error:
            run = failed_run(folder, error.message, **fields)
        is_open_loop = spec.kind == "server"
        ttft_s = [part.ttft_s if part.ttft_s is not None else part.latency_s for part in parts]
        done = AbBlock(
            number=spec.number,
            load=block.load,
            pair=block.pair,
            systems=block.systems,
            first_row=spec.first_row,
            run=run,
            seconds=time.monotonic() - began_s,
            levels=levels_of(parts),
            saturated=[
                system
                for system, part in zip(block.systems, parts, strict=bool(parts))
                if is_open_loop and part.is_saturated
            ],
            late_share=parts[0].late_s / max(float(ttft_s[0].mean()), 1e-9) if parts and is_open_loop else None,
            foreign_share=_foreign_share(folder) if parts else None,
            within=[part.within(limits) for part in parts] if (limits := self._ab.base.limits) is not None else [],
        )
        self._has_started = True
        self._queries[spec.number] = parts
        self._add(done)

    def _title(self, block: PlannedBlock) -> str:
        load = self._record.loads[block.load]
        names = "" if len(block.systems) > 1 else f" {self._ab.systems[block.systems[0]].name}"
        return f"block {block.spec.number}{names}, {load}"

    def _execute(self, block: PlannedBlock, watch: LiveRun, keeper: "EngineKeeper | None") -> None:
        config = write_block_files(self._ab, block)
        seeds = partial(set_seeds, self._ab, block)
        with run_of_started_system(config, has_started=self._has_started):
            execute_run(config, self._run_console, watch=watch, keeper=keeper, prepared=seeds)

    def _discard(self, folder: Any) -> None:
        if folder.exists():
            set_aside([folder], self._ab.folder / DISCARDED)

    def _add(self, block: AbBlock) -> None:
        self._update(blocks=[*self._record.blocks, block])
        if block.run.verdict == "failed":
            say(self._console, f"  block {block.number} failed: {'; '.join(block.run.reasons)}")
            failed = sum(done_block.run.verdict == "failed" for done_block in self._record.blocks)
            if failed > MAX_FAILED_BLOCKS:
                raise ExecutionError(f"{failed} blocks failed; the last one: {'; '.join(block.run.reasons)}")
        self._compute_changes()
        self._show(block)

    def _compute_changes(self) -> None:
        """Compute the changes and the sentences from all blocks."""
        record = self._record
        changes = [
            change
            for load in range(len(record.loads))
            for change in changes_of(
                self._blocks_of(load), record.loads[load].kind, load=load, systems=len(record.systems),
                loads=len(record.loads), precision=record.precision, elapsed_s=record.elapsed_s,
            )
        ]  # fmt: skip
        record = record.model_copy(
            update={"changes": changes, "withheld": list(self._reasons()), "notes": list(self._notes())}
        )
        self._update(changes=changes, withheld=record.withheld, notes=record.notes, sentences=ab_text.sentences(record))

    def _parts(self, block: AbBlock) -> list[SystemQueries]:
        """Return the queries of a block; those of an earlier execution come from its files."""
        if block.number not in self._queries:
            is_read = block.run.verdict != "failed"
            folder = self._ab.folder / block.run.run_dir
            self._queries[block.number] = read_block(folder, len(block.systems)) if is_read else []
        return self._queries[block.number]

    def _blocks_of(self, load: int) -> list[list[SystemQueries]] | Turns:
        blocks = [block for block in self._record.blocks if block.load == load and self._parts(block)]
        if self._record.method == "interleaved":
            return [self._parts(block) for block in blocks]
        turns: Turns = {}
        for block in blocks:
            (queries,) = self._parts(block)
            side = turns.setdefault(block.pair, {}).setdefault(block.systems[0], [])
            side.append((queries, block.run.output_tokens_per_s))
        return turns

    def _reasons(self) -> Iterator[str]:
        """Yield the reasons why the changes support no statement."""
        done = [block for block in self._record.blocks if self._parts(block)]
        queries = sum(block.run.queries for block in done)
        errors = sum(block.run.errors for block in done)
        if errors > FAILED_SHARE * queries:
            yield f"{errors:,} of {queries:,} requests failed"
        if (short := sum(block.run.short_responses for block in done)) > SHORT_SHARE * queries:
            yield f"{short:,} of {queries:,} responses are shorter than requested"
        if cached := [
            block.run.cached_share or 0.0 for block in done if (block.run.cached_share or 0.0) > CACHED_SHARE
        ]:
            yield f"up to {max(cached):.0%} of the prompt tokens were read from a cache; disable prefix caching"
        tokens = {
            system: sum(float(part.output_tokens.sum()) for part in parts) / max(1, sum(map(len, parts)))
            for system in self._everyone
            if (parts := [self._parts(block)[block.systems.index(system)] for block in done if system in block.systems])
        }
        for system, mean in tokens.items():
            if 0 in tokens and abs(mean - tokens[0]) > TOKENS_SHARE * tokens[0]:
                yield (
                    f"the responses have different lengths: {tokens[0]:.4g} tokens of A, {mean:.4g} of "
                    f"{self._record.systems[system].name}"
                )
        late = [block for block in done if (block.late_share or 0.0) > LATE_SHARE]
        if len(late) * 2 > len(done):
            worst = max(block.late_share or 0.0 for block in late)
            yield f"the client was late: its delay is up to {worst:.0%} of the TTFT in {counted(len(late), 'block')}"

    def _notes(self) -> Iterator[str]:
        """Yield sentences about blocks with foreign load, and about systems that share a machine."""
        if self._record.shares_machine:
            yield "the systems share this machine: each was measured beside the other"
        shares = sorted(block.foreign_share for block in self._record.blocks if block.foreign_share is not None)
        if not shares:
            return
        usual = shares[len(shares) // 2]
        for block in self._record.blocks:
            if block.foreign_share is not None and block.foreign_share > usual + FOREIGN_SHARE:
                yield (
                    f"block {block.number}: other processes used {block.foreign_share:.0%} of the cores' time, "
                    f"{usual:.0%} in the median block"
                )

    def _show(self, block: AbBlock) -> None:
        """Print a line with the changes so far."""
        parts = [f"  block {block.number}", clock(self._record.elapsed_s)]
        for change in self._record.changes:
            if change.load == block.load and change.is_main and not block.saturated:
                name = self._record.systems[change.system].name if len(self._everyone) > 2 else ""
                interval = (
                    "" if change.low is None or change.high is None else f" ±{(change.high - change.low) / 2:.1%}"
                )
                parts.append(f"{name}{' ' * bool(name)}{change.quantity} {change.change:+.1%}{interval}")
        if block.saturated:
            parts.append(f"{', '.join(self._record.systems[system].name for system in block.saturated)} saturated")
        say(self._console, "  ".join(parts))

    def _update(self, **values: Any) -> None:
        self._record = self._record.model_copy(update=values)
        write_ab(self._ab.folder, self._record)

    def _end(self, status: str, error: Ending | None = None, *, has_page: bool = True) -> None:
        self._update(status=status, error=None if error is None else error.message)
        if not has_page:
            return
        if self._record.changes or self._record.sentences:
            for line in ab_text.closing_lines(self._record):
                say(self._console, line)
        say(self._console, write_ab_page(self._ab.folder))


def _load(step: LoadStep, offline_qps: float | None) -> AbLoad:
    qps = step.qps
    if step.share is not None:
        assert offline_qps is not None
        qps = rounded_rate(step.share * offline_qps)
    return AbLoad(kind=step.kind, qps=qps, share=step.share, concurrency=step.concurrency)


def _foreign_share(folder: Any) -> float | None:
    """Return the share of the cores' time that processes outside the run used, with servers on this machine."""
    manifest = finished_run(RunDir(folder)).manifest
    seen = None if manifest is None else manifest.observed.contention
    return seen.foreign_share if isinstance(seen, Contention) else None
