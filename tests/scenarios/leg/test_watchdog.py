"""The watchdog, on a clock of the test's own."""

from dataclasses import dataclass

import pytest

from scenarios.leg import watchdog as watchdog_module
from scenarios.leg.watchdog import Watchdog


@dataclass
class Clock:
    now_s: float = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(watchdog_module, "time", clock)
    return clock


def look_for(watchdog: Watchdog, clock: Clock, seconds: float, *state: int, waiting: bool = True) -> float | None:
    """Look every half second; the last answer."""
    answer = None
    for _ in range(round(seconds * 2)):
        clock.now_s += 0.5
        answer = watchdog.stalled_for(waiting, *state)
    return answer


def test_stall(clock: Clock) -> None:
    watchdog = Watchdog(10)
    assert watchdog.stalled_for(True, 1) is None
    assert look_for(watchdog, clock, 10, 1) is None
    assert look_for(watchdog, clock, 0.5, 1) == 10.5


def test_any_progress_starts_anew(clock: Clock) -> None:
    watchdog = Watchdog(10, gap_factor=0)
    for step in range(6):
        assert look_for(watchdog, clock, 9.5, 7, step) is None
    assert look_for(watchdog, clock, 11, 7, 5) is not None


def test_nothing_waiting_is_no_stall(clock: Clock) -> None:
    watchdog = Watchdog(10)
    assert look_for(watchdog, clock, 100, 1, waiting=False) is None
    assert look_for(watchdog, clock, 10, 1) is None
    assert look_for(watchdog, clock, 1, 1) is not None


def test_limit_follows_the_longest_gap_that_ended_well(clock: Clock) -> None:
    watchdog = Watchdog(10)
    look_for(watchdog, clock, 6, 1)  # a gap of a little under 6 s ...
    watchdog.stalled_for(True, 2)  # ... that ended well
    gap_s = watchdog.allowed_s / 5
    assert 5 <= gap_s <= 6
    look_for(watchdog, clock, 1, 3)
    watchdog.stalled_for(True, 4)
    assert watchdog.allowed_s == 5 * gap_s  # a shorter gap changes nothing
    assert look_for(watchdog, clock, 25, 4) is None
    assert look_for(watchdog, clock, 6, 4) is not None


def test_short_gaps_do_not_raise_the_limit(clock: Clock) -> None:
    watchdog = Watchdog(10)
    for step in range(5):
        look_for(watchdog, clock, 1.5, step)
    assert watchdog.allowed_s == 10


def test_limit_without_a_factor_never_grows(clock: Clock) -> None:
    watchdog = Watchdog(10, gap_factor=0)
    look_for(watchdog, clock, 9, 1)
    watchdog.stalled_for(True, 2)
    assert watchdog.allowed_s == 10


def test_a_long_pause_counts_as_one_second(clock: Clock) -> None:
    watchdog = Watchdog(10)
    watchdog.stalled_for(True, 1)
    for _ in range(10):  # a machine that sleeps for an hour between two looks
        clock.now_s += 3600
        assert watchdog.stalled_for(True, 1) is None
    clock.now_s += 3600
    assert watchdog.stalled_for(True, 1) == 11
