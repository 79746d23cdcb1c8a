"""(b) The harness's path from and to LoadGen around a null engine, against a bare null SUT."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

from runs.numbers.numbers import Numbers

from .report import BenchPart, Goal, at_least, at_most
from .sizes import Sizes
from .tools.null_run import NullSpec, Side, null_run

LATENCY_QPS = 1_000.0
RATE_STEP = 1.15  # between neighbouring rates of the ladder
HELD_SHARE = 0.99  # completed ÷ scheduled: less means that a queue grows
TRIES = 2  # other programs can only make a rate fail, never hold
SIDES: tuple[Side, ...] = get_args(Side)


def run(work: Path, sizes: Sizes) -> BenchPart:
    """Measure, both sides in turns."""
    part = BenchPart("b", "our path with a null engine against a bare LoadGen null SUT in Python")
    latency: dict[Side, list[Numbers]] = {side: [] for side in SIDES}
    for repeat in range(sizes.null_latency_pairs):
        for side in _in_turns(repeat):
            numbers, _ = _server(work / f"latency-{repeat}-{side}", side, LATENCY_QPS, sizes)
            latency[side].append(numbers)
    offline: dict[Side, list[float]] = {side: [] for side in SIDES}
    cpu_us: dict[Side, list[float]] = {side: [] for side in SIDES}
    held: dict[Side, list[float]] = {side: [] for side in SIDES}
    for repeat in range(sizes.null_searches):
        for side in _in_turns(repeat):
            folder = work / f"rate-{repeat}-{side}"
            count = sizes.null_offline_samples
            numbers, cpu_s = null_run(NullSpec(str(folder / "offline"), side=side, min_query_count=count))
            offline[side].append(numbers.samples_per_second or 0.0)
            cpu_us[side].append(cpu_s / count * 1e6)
            held[side].append(highest(ladder(sizes.null_rates), _holds(folder, side, sizes)))

    _both(part, "Server rate held", "queries/s", held, at_least(20_000))
    for name in ("p50", "p99"):
        ms = {side: [getattr(numbers.latency_ns, name) / 1e6 for numbers in latency[side]] for side in SIDES}
        for side in SIDES:
            part.add(f"{name} latency at {LATENCY_QPS:,.0f} qps, {side}", "ms", ms[side])
        added = [one - other for one, other in zip(ms["ours"], ms["bare"], strict=True)]
        part.add(f"added {name}", "ms", added, at_most(1.0) if name == "p99" else None)
    _both(part, "Offline rate", "samples/s", offline, None)
    _both(part, "Offline CPU time a sample", "µs", cpu_us, None)
    part.notes.append(
        f"held: LoadGen's completed rate is at least {HELD_SHARE} of the scheduled one over {sizes.null_seconds:g} s, "
        f"in one of {TRIES} tries; rates tried are a factor {RATE_STEP} apart, up to {sizes.null_rates[1]:,.0f}. Every "
        "answer has a first token (Server) and 128 ids, and on our side its line in requests.jsonl. Latencies are "
        "LoadGen's, from the scheduled time; CPU time is of all threads, LoadGen's too."
    )
    return part


def _in_turns(repeat: int) -> tuple[Side, ...]:
    return SIDES if repeat % 2 else SIDES[::-1]


def _both(part: BenchPart, name: str, unit: str, runs: dict[Side, list[float]], target: Goal | None) -> None:
    ours = part.add(f"{name}, ours", unit, runs["ours"], target)
    bare = part.add(f"{name}, bare", unit, runs["bare"])
    part.add_ratio(f"{name}, ours ÷ bare", ours, bare)


def _server(folder: Path, side: Side, qps: float, sizes: Sizes) -> tuple[Numbers, float]:
    duration_ms = int(sizes.null_seconds * 1e3)
    return null_run(NullSpec(str(folder), "Server", side, qps, duration_ms))


def _holds(folder: Path, side: Side, sizes: Sizes) -> Callable[[float], bool]:
    def held(qps: float, attempt: int) -> bool:
        numbers, _ = _server(folder / f"{qps:.0f}-{attempt}", side, qps, sizes)
        completed, scheduled = numbers.samples_per_second or 0.0, numbers.scheduled_samples_per_second or 0.0
        return completed >= HELD_SHARE * scheduled

    return lambda qps: any(held(qps, attempt) for attempt in range(TRIES))


def ladder(ends: tuple[float, float]) -> list[float]:
    """Rates from the lowest to the highest, evenly spaced by ratio."""
    rates = [ends[0]]
    while rates[-1] * RATE_STEP <= ends[1]:
        rates.append(rates[-1] * RATE_STEP)
    return rates


def highest(rates: list[float], holds: Callable[[float], bool]) -> float:
    """The highest of ascending rates that holds, found by halving; 0 when none does."""
    low, high = -1, len(rates)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(rates[middle]):
            low = middle
        else:
            high = middle
    return rates[low] if low >= 0 else 0.0
