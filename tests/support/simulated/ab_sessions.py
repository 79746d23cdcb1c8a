"""Comparisons of systems with planted changes, in virtual time: nothing sleeps and no process starts.

`python -m tests.support.simulated.ab_sessions` prints the tables of docs/ab.md.

The noise model. The machine has a common speed: a drift over the session, and an autoregressive part that changes
within seconds. Each query has a speed of its own, and each system a slow autoregressive part. In turns, the common part
changes within a minute, so that it differs between the blocks of a pair, and neighboring blocks are correlated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runs.ab.ab_record import AbChange
from runs.ab.block_queries import SystemQueries
from runs.ab.changes import MIN_TAIL_QUERIES, Turns, changes_of, is_settled

Values = NDArray[np.float64]
PRECISION = 0.02
NOISES = (0.01, 0.05, 0.2)
START_S = 5.0  # time between two blocks
DURATIONS_S = (20.0, 40.0, 60.0)
TURN_S, TURN_QUERIES = 10.0, 30
SHARED_S, OWN_S = 20.0, 3.0  # correlation times of the speed of the machine and of a system
TURNS_SHARED_S = 60.0  # correlation time of the speed of the machine between blocks


@dataclass(frozen=True)
class Planted:
    """A system. Each function gets the times of the queries and returns factors on a latency."""

    ttft: Callable[[Values], Values] = np.ones_like
    tpot: Callable[[Values], Values] = np.ones_like
    tail: float = 0.0  # share of the TTFT and TPOT that is added to the slowest 3% of the queries


@dataclass
class SimulatedMachine:
    """The noise of a session."""

    seed: int
    query_noise: float = 0.05
    shared_noise: float = 0.03
    own_noise: float = 0.01
    drift: float = 0.2
    session_s: float = 600.0
    burst: tuple[float, float] | None = None  # begin and end of foreign load that makes all queries 2 times slower
    generator: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)

    def course(self, times_s: Values, noise: float, correlation_s: float) -> Values:
        """Return a stationary autoregressive course at increasing times."""
        steps = np.exp(-np.diff(times_s, prepend=times_s[0] - 1e9) / correlation_s)
        shocks = self.generator.normal(0, noise, len(times_s)) * np.sqrt(1 - steps**2)
        course = np.empty_like(times_s)
        value = 0.0
        for place, (step, shock) in enumerate(zip(steps, shocks, strict=True)):
            value = value * step + shock
            course[place] = value
        return course

    def block(self, systems: Sequence[Planted], start_s: float, block_s: float, qps: float) -> list[SystemQueries]:
        """Return the queries of an interleaved run."""
        count = max(round(qps * block_s), 10)
        gaps_s = self.generator.exponential(1 / (qps * len(systems)), count * len(systems))
        arrived_s = np.cumsum(gaps_s)
        times_s = start_s + arrived_s
        speed = self.course(times_s, self.shared_noise, SHARED_S) + self.drift * times_s / self.session_s
        if self.burst is not None:
            speed += np.log(2) * ((times_s > self.burst[0]) & (times_s < self.burst[1]))
        places = np.stack([self.generator.permutation(len(systems)) for _ in range(count)])
        parts = []
        for place, system in enumerate(systems):
            mine = np.sort(np.argmax(places == place, axis=1) + np.arange(count) * len(systems))
            own = self.course(times_s[mine], self.own_noise, OWN_S) + speed[mine]
            noise = self.generator.normal(0, self.query_noise, (2, count))
            ttft_s = 0.05 * np.exp(own + noise[0]) * system.ttft(times_s[mine])
            tpot_s = 0.01 * np.exp(own + noise[1] / 4) * system.tpot(times_s[mine])
            slow = self.generator.random(count) < 0.03
            # Each system has a tail, and a planted tail is longer.
            factor = np.where(slow, 1.6 * (1 + system.tail), 1.0)
            ttft_s, tpot_s = ttft_s * factor, tpot_s * factor
            latency_s = ttft_s + 31 * tpot_s
            parts.append(SystemQueries(arrived_s[mine], latency_s, ttft_s, tpot_s, np.full(count, 32.0), 0.0, start_s))
        return parts


@dataclass
class SimulatedSession:
    """The steps of one comparison."""

    steps: list[list[AbChange]]
    elapsed_s: float

    @property
    def last(self) -> dict[str, AbChange]:
        return {change.quantity: change for change in self.steps[-1]}

    def found_after_s(self, quantity: str) -> float | None:
        """Return the time after which a quantity was first called slower; None if it never was."""
        elapsed_s = 0.0
        for number, step in enumerate(self.steps):
            elapsed_s += START_S + DURATIONS_S[min(number, len(DURATIONS_S) - 1)]
            if any(change.quantity == quantity and change.verdict == "slower" for change in step):
                return elapsed_s
        return None

    def ever_different(self) -> set[str]:
        """Return the quantities that were called different at any step."""
        return {value.quantity for step in self.steps for value in step if value.verdict in ("faster", "slower")}


def session(
    machine: SimulatedMachine, *systems: Planted, qps: float = 8.0, max_time_s: float = 600.0, stops: bool = True
) -> SimulatedSession:
    """Simulate a comparison with steps after each block."""
    elapsed_s, blocks, steps = 0.0, [], []
    while True:
        block_s = DURATIONS_S[min(len(blocks), len(DURATIONS_S) - 1)]
        if elapsed_s + block_s + START_S > max_time_s and blocks:
            break
        blocks.append(machine.block(systems, elapsed_s + START_S, block_s, qps))
        elapsed_s += block_s + START_S
        changes = changes_of(blocks, "server", load=0, systems=len(systems), loads=1, precision=PRECISION,
                             elapsed_s=elapsed_s)  # fmt: skip
        steps.append(changes)
        queries = sum(len(block[0]) for block in blocks)
        first_tail_s = elapsed_s * MIN_TAIL_QUERIES / queries
        if stops and is_settled(changes, len(blocks), PRECISION, first_tail_s=first_tail_s, max_time_s=max_time_s):
            break
    return SimulatedSession(steps, elapsed_s)


def session_in_turns(machine: SimulatedMachine, pairs: int = 40) -> SimulatedSession:
    """Simulate two equal systems that take turns in the order A B B A, with a look after each pair.

    The machine's shared noise is that of a block. All quantities share it, and each has noise of its own.
    """
    starts_s = np.arange(2 * pairs) * (TURN_S + START_S)
    common = (
        machine.course(starts_s, machine.shared_noise, TURNS_SHARED_S) + machine.drift * starts_s / machine.session_s
    )
    own = machine.generator.normal(0, machine.own_noise, (3, 2 * pairs))
    turns: Turns = {}
    steps = []
    for block in range(2 * pairs):
        pair, place = divmod(block, 2)
        queries = np.exp(common[block] + machine.generator.normal(0, machine.query_noise, (2, TURN_QUERIES)))
        ttft_s, tpot_s = 0.05 * queries[0] * np.exp(own[0, block]), 0.01 * queries[1] * np.exp(own[1, block])
        tokens = np.full(TURN_QUERIES, 32.0)
        times_s = np.linspace(0, TURN_S, TURN_QUERIES)
        part = SystemQueries(times_s, ttft_s + 31 * tpot_s, ttft_s, tpot_s, tokens, 0.0, float(starts_s[block]))
        rate = float(1000 * np.exp(own[2, block] - common[block]))
        system = place if pair % 2 == 0 else 1 - place
        turns.setdefault(pair, {})[system] = [(part, rate)]
        if place:
            elapsed_s = float(starts_s[block]) + TURN_S
            steps.append(
                changes_of(turns, "server", load=0, systems=2, loads=1, precision=PRECISION, elapsed_s=elapsed_s)
            )
    return SimulatedSession(steps, float(starts_s[-1]) + TURN_S)


def print_power(sessions: int = 50) -> None:
    """Print for each noise how often a change of the TPOT is found, and the median time until then."""
    for noise in NOISES:
        cells = []
        for change in (0.02, 0.05, 0.10):
            results = [_changed_session(seed, noise, change) for seed in range(sessions)]
            times_s = [time_s for result in results if (time_s := result.found_after_s("TPOT mean")) is not None]
            minutes = f", {np.median(times_s) / 60:.1f} min" if times_s else ""
            cells.append(f"{len(times_s) / sessions:.0%}{minutes}")
        print(f"| {noise:.0%} | " + " | ".join(cells) + " |", flush=True)


def print_power_of_tails(sessions: int = 40) -> None:
    """Print for each noise how often a p99 that is 30% longer is found, and the median time until then."""
    for noise in NOISES:
        changed = Planted(tail=0.3)
        results = [session(_machine(seed, noise), Planted(), changed, max_time_s=1200.0) for seed in range(sessions)]
        times_of_sessions = [
            [result.found_after_s(f"{latency} p99") for latency in ("TTFT", "TPOT")] for result in results
        ]
        times_s = [min(filter(None, times)) for times in times_of_sessions if any(times)]
        print(f"| {noise:.0%} | {len(times_s) / sessions:.0%}, {np.median(times_s) / 60:.1f} min |", flush=True)


def print_errors(together: int = 200, in_turns: int = 300) -> None:
    """Print for each noise how often equal systems are called different at any look.

    Args:
        together: Number of sessions of systems that are measured at the same time.
        in_turns: Number of sessions of systems that take turns.
    """
    for noise in NOISES:
        sessions = (session(_machine(seed, noise), Planted(), Planted(), stops=False) for seed in range(together))
        errors = sum(bool(result.ever_different()) for result in sessions) / together
        turns = (session_in_turns(_machine(seed, noise)) for seed in range(in_turns))
        errors_in_turns = sum(bool(result.ever_different()) for result in turns) / in_turns
        print(f"| {noise:.0%} | {errors:.1%} | {errors_in_turns:.1%} |", flush=True)


def _machine(seed: int, noise: float) -> SimulatedMachine:
    return SimulatedMachine(seed, query_noise=noise, shared_noise=noise, own_noise=noise / 4)


def _changed_session(seed: int, noise: float, change: float) -> SimulatedSession:
    slow = Planted(tpot=lambda times: np.full_like(times, 1 + change))
    return session(_machine(seed, noise), Planted(), slow, max_time_s=1200.0)


if __name__ == "__main__":
    print_power()
    print_power_of_tails()
    print_errors()
