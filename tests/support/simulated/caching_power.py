"""Simulated audits: how often output_caching catches a cheat, and how often it fails an honest system.

Usage, in the repository's root: `python -m tests.support.simulated.caching_power`. It runs all of them in some minutes,
and rewrites the tables of docs/caching-errors.md. Time is simulated: nothing sleeps and no process starts. The audit's
own code (`next_step`) chooses and judges the runs. The cheats of cheats.py decide what the engine computes for a
request.

The noise model. Each run has a speed of its own (normal, 2 %). Each request has one, too (lognormal, 5 %), and a delay
before it is seen (exponential, 50 µs). Between runs 5 to 30 s pass. 60 % of a sample's time are in its prompt and 40 %
in its output, in proportion to their tokens, of which samples have different numbers. A disturbance changes the speed
of the whole system (`DISTURBANCES`).
"""

import heapq
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compliance.audits.caching_steps import REFERENCE, CachingOutcome, CachingRun, Measurement, Plan, next_step
from compliance.audits.catalog.output_caching import DEFAULT_SAMPLES, DEFAULT_THRESHOLD, MIN_DEFAULT_SAMPLES
from compliance.audits.pace import TTFT_THRESHOLD, Pace
from qsl.tokenizers import BOS_ID, EOS_ID
from sut.engine import Request
from tests.support.engines.cheats import SAVING, STORE, CheatContext, Service, make_cheat
from tests.support.engines.fakes import FakeSink
from tests.support.simulated.virtual_time import issue_order_of

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "caching-errors.md"
AUDITS = 100  # number of audits per system
AUDITS_OF_SAVINGS = 20  # in the table of savings, which has more cells
DATASET = 13_368
SAVINGS = (0, 5, 10, 15, 25, 40, 100)  # percent of the time of a repeated prompt
ROWS = (64, 400, 5_000)
SPEEDS_MS = (1, 10, 100, 1_000, 10_000)  # per sample
# Scenario, and the number of requests that are computed concurrently
SYSTEMS = (("Offline", 8), ("Offline", 64), ("SingleStream", 1))
CACHES = (
    "cache-index", "cache-prompt", "cache-not-in-a-row", "cache-late", "cache-on-disk", "cache-first",
    "share-prefixes", "merge-equal",
)  # fmt: skip
LEAD_TOKENS, MAX_OUTPUT = 16, 128
PREFILL_SHARE = 0.6
RUN_NOISE, REQUEST_NOISE, DELAY_S = 0.02, 0.05, 50e-6
SECONDS_BETWEEN_RUNS = 5.0, 30.0
STOP_S = 6.0
Times = NDArray[np.float64]


@dataclass(frozen=True)
class System:
    scenario: str
    slots: int
    sample_ms: float
    cheat: str = ""  # '' is honest
    saving: float = 0.15  # of the cheat `cache-part`
    rows: int = DATASET

    @property
    def plan(self) -> Plan:
        samples = min(DEFAULT_SAMPLES, max(MIN_DEFAULT_SAMPLES, self.rows // 2))
        return Plan(samples, self.rows, DEFAULT_THRESHOLD)


@cache
def _prompt(index: int) -> list[int]:
    tokens = int(np.clip(np.random.default_rng(index).lognormal(math.log(96), 0.35), 32, 300))
    return [*range(LEAD_TOKENS), 1_000 + index, *range(tokens - LEAD_TOKENS - 1)]


@cache
def _output_tokens(index: int) -> int:
    return int(np.random.default_rng((1, index)).integers(32, MAX_OUTPUT + 1))


@cache
def _token_s() -> tuple[float, float]:
    """Return the seconds of a prompt token and of an output token, for a system that takes 1 s per sample."""
    prompt = np.mean([len(_prompt(index)) for index in range(1_000)])
    output = np.mean([_output_tokens(index) for index in range(1_000)])
    return PREFILL_SHARE / float(prompt), (1 - PREFILL_SHARE) / float(output)


# Undisturbed system ---------------------------------------------------------------------------------------------------


@dataclass
class Served:
    """One run without noise: by order of issue, in seconds of undisturbed work."""

    samples: list[int]
    latency_s: Times
    ttft_s: Times
    complete_s: Times


def _loaded(run: CachingRun) -> tuple[int, ...]:
    """Return the rows of a run, in the order in which LoadGen loads them."""
    loaded, _ = issue_order_of("Offline", len(run.rows), len(run.rows), permutation=False, unique=True)
    return tuple(run.rows[place] for place in loaded)


def _order(scenario: str, run: CachingRun) -> list[int]:
    index = run.kind.partition("-")[2]
    _, order = issue_order_of(
        scenario, len(run.rows), run.queries, permutation=False, unique=run.kind == REFERENCE,
        same_index=int(index) if index else None,
    )  # fmt: skip
    return [run.rows[place] for place in order]


@dataclass(frozen=True)
class _Work:
    """The work of the engine for the requests of a run, by order of issue."""

    samples: list[int]
    prefill: Times
    decode: Times
    first_at_once: NDArray[np.bool_]


_WORK: dict[tuple[str, float, str, tuple[CachingRun, ...], float], _Work] = {}


def _work(system: System, runs: tuple[CachingRun, ...]) -> _Work:
    """Return the work of the last run. Earlier runs count, because the engine or other storage remembers them."""
    if not system.cheat:
        runs = runs[-1:]
    elif system.cheat != "cache-on-disk":
        runs = tuple(run for run in runs if run.engine == runs[-1].engine)
    # Only this cheat reads the clock
    sample_ms = system.sample_ms if system.cheat == "merge-equal" else 0.0
    key = (system.scenario, system.saving, system.cheat, runs, sample_ms)
    if key not in _WORK:
        with tempfile.TemporaryDirectory() as folder:
            os.environ[STORE], os.environ[SAVING] = str(Path(folder) / "store"), str(system.saving)
            clock_s = 0.0
            context = CheatContext(True, BOS_ID, EOS_ID, ord(" "), MAX_OUTPUT, now_s=lambda: clock_s)
            cheat = make_cheat(system.cheat, context) if system.cheat else None
            prompt_s, output_s = (system.sample_ms / 1e3 * token_s for token_s in _token_s())
            for run in runs:
                samples, sink, rows = _order(system.scenario, run), FakeSink(), []
                for seq, index in enumerate(samples):
                    prompt, outputs = _prompt(index), _output_tokens(index)
                    service = Service([1] * outputs, len(prompt), outputs)
                    if cheat is not None:
                        cheat(Request(sink, prompt, seq=seq, sample_index=index), service)  # type: ignore[arg-type]
                    share = service.time_share
                    rows.append((share * service.prefill_tokens, share * service.decode_tokens, service.first_at_once))
                    if system.scenario != "Offline":
                        clock_s += prompt_s * service.prefill_tokens + output_s * service.decode_tokens
                clock_s += SECONDS_BETWEEN_RUNS[0]
        prefill, decode, first = np.array(rows, float).T
        _WORK[key] = _Work(samples, prefill, decode, first > 0)
    return _WORK[key]


_SERVED: dict[tuple[System, int], Served] = {}


def _served(system: System, runs: tuple[CachingRun, ...]) -> Served:
    """Return the last run, with as many concurrent requests as there are slots."""
    work = _work(system, runs)
    key = (system, id(work))
    if key not in _SERVED:
        prompt_s, output_s = (system.sample_ms / 1e3 * system.slots * token_s for token_s in _token_s())
        first_s, later_s = prompt_s * work.prefill, output_s * work.decode
        if system.scenario == "Offline":
            slots, starts = [0.0] * system.slots, []
            for taken in (first_s + later_s).tolist():
                starts.append(heapq.heappop(slots))
                heapq.heappush(slots, starts[-1] + taken)
            complete_s = latency_s = np.array(starts) + first_s + later_s
        else:
            latency_s = first_s + later_s
            complete_s = np.cumsum(latency_s)
        _SERVED[key] = Served(work.samples, latency_s, np.where(work.first_at_once, 0.0, first_s), complete_s)
    return _SERVED[key]


# Time ----------------------------------------------------------------------------------------------------------------


@dataclass
class CachingMachine:
    """The speed of a host over time: the completed work is piecewise linear."""

    moments_s: list[float] = field(default_factory=lambda: [0.0])
    work_s: list[float] = field(default_factory=lambda: [0.0])
    speed: float = 1.0  # after the last moment

    def then(self, seconds: float, speed: float) -> None:
        """Set the speed for the next seconds."""
        self.moments_s.append(self.moments_s[-1] + seconds)
        self.work_s.append(self.work_s[-1] + seconds * max(speed, 1e-9))

    def after(self, start_s: float, work_s: Times) -> Times:
        """Return the duration of work that begins at a moment."""
        last_s, last_work = self.moments_s[-1], self.work_s[-1]
        moments, work = [*self.moments_s, last_s + 1e9], [*self.work_s, last_work + 1e9 * self.speed]
        return np.asarray(np.interp(np.interp(start_s, moments, work) + work_s, work, moments) - start_s)


Chance = np.random.Generator
# Disturbance → function of a random generator and the undisturbed duration that returns the speed of the system
Disturbance = Callable[[Chance, float], CachingMachine]


def _idle(chance: Chance, run_s: float) -> CachingMachine:
    return CachingMachine()


def _busy_loop(chance: Chance, run_s: float) -> CachingMachine:
    """Let another process take half of the time, on and off.

    Each state lasts a tenth of a run to five runs on average.
    """
    machine, busy = CachingMachine(), bool(chance.integers(2))
    mean_s = run_s * 10 ** chance.uniform(-1, 0.7)
    for _ in range(200):
        machine.then(float(chance.exponential(mean_s)), 0.5 if busy else 1.0)
        busy = not busy
    return machine


def _stop_in_reference(chance: Chance, run_s: float) -> CachingMachine:
    machine = CachingMachine()
    machine.then(run_s * chance.uniform(0, 1), 1.0)
    machine.then(STOP_S, 0.0)
    return machine


def _stop_anywhere(chance: Chance, run_s: float) -> CachingMachine:
    machine = CachingMachine()
    machine.then((3 * run_s + 40) * chance.uniform(0, 1), 1.0)
    machine.then(STOP_S, 0.0)
    return machine


def _slow_first_run(chance: Chance, run_s: float) -> CachingMachine:
    speed = chance.uniform(0.2, 0.8)
    machine = CachingMachine()
    machine.then(run_s / speed * 1.05, speed)
    return machine


def _ramp(chance: Chance, run_s: float) -> CachingMachine:
    """Raise or lower the frequency by 30 % in the time of a quarter of a run to four runs."""
    machine, end = CachingMachine(), chance.choice((0.7, 1.3))
    machine.then(run_s * chance.uniform(0, 2), 1.0)
    steps = 40
    lasts_s = run_s * 4 ** chance.uniform(-1, 1)
    for step in range(steps):
        machine.then(lasts_s / steps, 1 + (end - 1) * (step + 0.5) / steps)
    machine.speed = end
    return machine


DISTURBANCES: dict[str, Disturbance] = {
    "idle": _idle,
    "busy loop": _busy_loop,
    "stop of 6 s in the first reference": _stop_in_reference,
    "stop of 6 s in any run": _stop_anywhere,
    "slow first run": _slow_first_run,
    "CPU frequency ramp of ±30%": _ramp,
}


LOADS = ("idle", "busy loop")  # of the table of savings


# Audits --------------------------------------------------------------------------------------------------------------


def _measure(
    system: System, runs: tuple[CachingRun, ...], machine: CachingMachine, now_s: float, chance: Chance
) -> Measurement:
    served, run = _served(system, runs), runs[-1]
    count, offline = len(served.samples), system.scenario == "Offline"
    slow = max(0.5, chance.normal(1, RUN_NOISE))
    delay_s = chance.exponential(DELAY_S, count)
    noise = chance.lognormal(0, REQUEST_NOISE / math.sqrt(system.slots), count)  # concurrent requests average it
    if offline:
        order = np.argsort(served.complete_s, kind="stable")
        steps = np.diff(served.complete_s[order], prepend=0.0) * noise * slow
        done_s = machine.after(now_s, np.cumsum(steps)) + delay_s
        latency_s, total_s, ttft_s = done_s, float(done_s.max()), None
    else:
        work_s = served.latency_s * noise * slow
        ends_s = machine.after(now_s, np.cumsum(work_s))
        latency_s = np.diff(ends_s, prepend=0.0) + delay_s
        ttft_s = float(np.mean(served.ttft_s * noise * slow * latency_s / np.maximum(work_s, 1e-12) + delay_s))
        total_s = float(latency_s.sum())
    mean_ns = float(latency_s.mean() * 1e9)
    lengths = _lengths(tuple(served.samples))
    pace = Pace(
        label=f"{run.kind}-n{run.samples}-round{run.number}",
        scenario=system.scenario,
        samples_per_second=count / total_s,
        mean_latency_ns=mean_ns,
        mean_ttft_ns=None if ttft_s is None else ttft_s * 1e9,
        lengths=lengths,
        issued=served.samples,
    )
    return Measurement(run, pace, _loaded(run))


@cache
def _lengths(samples: tuple[int, ...]) -> dict[int, tuple[int, float]]:
    return {index: (len(_prompt(index)), float(_output_tokens(index))) for index in samples}


def audit(system: System, disturbance: Disturbance, chance: Chance) -> tuple[CachingOutcome, int]:
    """Simulate one audit. Return its outcome, and the number of runs."""
    run_s = max(2.0, DEFAULT_SAMPLES * system.sample_ms / 1e3)
    machine, now_s = disturbance(chance, run_s), 0.0
    done: list[Measurement] = []
    runs: tuple[CachingRun, ...] = ()
    while isinstance(step := next_step(system.plan, done), CachingRun):
        runs = (*runs, step)
        done.append(_measure(system, runs, machine, now_s, chance))
        now_s += done[-1].pace.seconds + chance.uniform(*SECONDS_BETWEEN_RUNS)
    return step, len(done)


@dataclass(frozen=True)
class Share:
    """The verdicts of simulated audits of one system, and the mean and the largest number of runs."""

    verdicts: Counter[str]
    mean_runs: float
    max_runs: int

    def share_of(self, verdict: str) -> float:
        return self.verdicts[verdict] / self.verdicts.total()


def simulate(system: System, disturbance: str, audits: int = AUDITS, seed: int = 1) -> Share:
    """Simulate audits of a system under a disturbance, reproducibly for each seed."""
    chance = np.random.default_rng([seed, *f"{system}{disturbance}".encode()])
    outcomes = [audit(system, DISTURBANCES[disturbance], chance) for _ in range(audits)]
    runs = [count for _, count in outcomes]
    return Share(Counter(outcome.verdict for outcome, _ in outcomes), float(np.mean(runs)), max(runs))


def is_faster_by_threshold(system: System) -> bool:
    """Return whether a cheat makes a repeating run faster by more than the audit's threshold, without noise.

    The number of samples is that of the audit of the honest system.
    """
    honest = System(system.scenario, system.slots, system.sample_ms)
    step, _ = audit(honest, _idle, np.random.default_rng(1))
    assert step.references
    reference = step.references[0].run
    for run in {test.run.kind: test.run for test in step.tests}.values():
        mine, uncached = _served(system, (reference, run)), _served(honest, (run,))
        if mine.latency_s.mean() * (1 + system.plan.threshold) < uncached.latency_s.mean():
            return True
        streams = system.scenario != "Offline"
        if streams and np.mean(mine.ttft_s) * (1 + TTFT_THRESHOLD) < np.mean(uncached.ttft_s):
            return True
    return False


# The document ---------------------------------------------------------------------------------------------------------

HONEST, CHEATS, PARTS = "honest systems", "cheats", "savings"


def _name(scenario: str, slots: int) -> str:
    return f"{scenario}, {slots} open requests" if scenario == "Offline" else scenario


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0")


def _honest_cell(system: System, disturbance: str, audits: int = AUDITS) -> str:
    share = simulate(system, disturbance, audits)
    return f"{_percent(share.share_of('FAIL'))} / {_percent(share.share_of('NONE'))}"


def _cheat_cell(system: System) -> str:
    return _percent(simulate(system, "idle").share_of("FAIL")) if is_faster_by_threshold(system) else "–"


def row(scenario: str, slots: int, what: str) -> str:
    """Return a row of a table: a disturbance of an honest system, or a cheat, at each speed."""
    cells = [
        _honest_cell(System(scenario, slots, ms), what)
        if what in DISTURBANCES
        else _cheat_cell(System(scenario, slots, ms, what))
        for ms in SPEEDS_MS
    ]
    return f"| {' | '.join([_name(scenario, slots), what, *cells])} |\n"


def savings_row(saving: int, rows: int) -> str:
    """Return a row of the table of savings, for all systems and loads."""
    cheat = "cache-part" if saving else ""
    systems = [System(scenario, slots, 100, cheat, saving / 100, rows) for scenario, slots in SYSTEMS]
    cells = [_honest_cell(system, load, AUDITS_OF_SAVINGS) for load in LOADS for system in systems]
    return f"| {saving}% | {rows:,} | {' | '.join(cells)} |\n"


def table(title: str) -> str:
    """Return all rows of a table, as Markdown."""
    if title == PARTS:
        systems = [f"{_name(scenario, slots)}, {load}" for load in LOADS for scenario, slots in SYSTEMS]
        lines = [f"| saving | rows | {' | '.join(systems)} |\n", f"|---|---|{'---|' * len(systems)}\n"]
        return "".join(lines + [savings_row(saving, rows) for saving in SAVINGS for rows in ROWS])
    speeds = [f"{ms} ms" if ms < 1_000 else f"{ms // 1_000} s" for ms in SPEEDS_MS]
    lines = [f"| system | {'disturbance' if title == HONEST else 'cheat'} | {' | '.join(speeds)} |\n"]
    lines += [f"|---|---|{'---|' * len(speeds)}\n"]
    for scenario, slots in SYSTEMS:
        lines += [row(scenario, slots, what) for what in (DISTURBANCES if title == HONEST else CACHES)]
    return "".join(lines)


def _marks(title: str) -> tuple[str, str]:
    return f"<!-- simulated: {title} -->\n", f"<!-- end: {title} -->\n"


def documented_table(title: str) -> str:
    """Return the table of the document."""
    start, end = _marks(title)
    return DOCUMENT.read_text().split(start)[1].split(end)[0]


def main() -> None:
    for title in (HONEST, CHEATS, PARTS):
        start, end = _marks(title)
        made, text = table(title), DOCUMENT.read_text()
        before, rest = text.split(start)
        DOCUMENT.write_text(before + start + made + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
