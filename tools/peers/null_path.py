"""(b) The harness's path between LoadGen and a null engine, against a bare null SUT."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import get_args

from runs.numbers.numbers import Numbers

from .report import PeerPart, at_least, at_most
from .sizes import Sizes
from .support.null_run import NullSpec, Side, null_run

LATENCY_QPS = 1_000.0
RATE_STEP = 1.15  # ratio of neighboring rates
HELD_SHARE = 0.99  # minimum of completed ÷ scheduled rate; below, a queue grows
TRIES = 2  # tries per rate: other programs can make a rate fail, but cannot make it pass
SIDES: tuple[Side, ...] = get_args(Side)


def run(work: Path, sizes: Sizes) -> PeerPart:
    """Measure both sides in turns."""
    part = PeerPart("b", "the harness's path with a null engine against a bare LoadGen null SUT in Python")
    duration_ms = int(sizes.null_seconds * 1e3)
    latency: dict[Side, list[Numbers]] = {side: [] for side in SIDES}
    for repeat in range(sizes.null_latency_pairs):
        for side in _in_turns(repeat):
            latency[side].append(null_run(NullSpec(work / f"latency-{repeat}-{side}", side, LATENCY_QPS, duration_ms)))
    rates_of: dict[Side, list[float]] = {side: [] for side in SIDES}
    for repeat in range(sizes.null_searches):
        for side in _in_turns(repeat):
            holds = partial(_holds, work / f"rate-{repeat}-{side}", side, duration_ms)
            rates_of[side].append(highest(ladder(sizes.null_rates), holds))

    own_figure = part.add("Server rate held, ours", "queries/s", rates_of["ours"], at_least(20_000))
    part.add_ratio("ours ÷ bare", own_figure, part.add("Server rate held, bare", "queries/s", rates_of["bare"]))
    p99_ms: dict[Side, list[float]] = {}
    for side in SIDES:
        p99_ms[side] = [numbers.latency_ns.p99 / 1e6 for numbers in latency[side] if numbers.latency_ns]
        part.add(f"p99 latency at {LATENCY_QPS:,.0f} qps, {side}", "ms", p99_ms[side])
    added = [own_ms - bare_ms for own_ms, bare_ms in zip(p99_ms["ours"], p99_ms["bare"], strict=True)]
    part.add("added p99", "ms", added, at_most(1.0))
    part.notes.append(
        f"held: LoadGen's completed rate is at least {HELD_SHARE} of the scheduled one over {sizes.null_seconds:g} s, "
        f"in one of {TRIES} tries; rates tried are a factor {RATE_STEP} apart, up to {sizes.null_rates[1]:,.0f}. "
        "Latencies are LoadGen's, from the scheduled time."
    )
    return part


def _in_turns(repeat: int) -> tuple[Side, ...]:
    return SIDES if repeat % 2 else SIDES[::-1]


def _holds(folder: Path, side: Side, duration_ms: int, qps: float) -> bool:
    for attempt in range(TRIES):
        numbers = null_run(NullSpec(folder / f"{qps:.0f}-{attempt}", side, qps, duration_ms))
        completed, scheduled = numbers.samples_per_second or 0.0, numbers.scheduled_samples_per_second or 0.0
        if completed >= HELD_SHARE * scheduled:
            return True
    return False


def ladder(ends: tuple[float, float]) -> list[float]:
    """Return rates from the lowest to the highest, evenly spaced by ratio."""
    rates = [ends[0]]
    while rates[-1] * RATE_STEP <= ends[1]:
        rates.append(rates[-1] * RATE_STEP)
    return rates


def highest(rates: list[float], holds: Callable[[float], bool]) -> float:
    """Return the highest of ascending rates that holds, found by bisection; 0 if no rate holds."""
    low, high = -1, len(rates)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(rates[middle]):
            low = middle
        else:
            high = middle
    return rates[low] if low >= 0 else 0.0
