"""The watchdog, on a clock of the test."""

import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from runs.errors import ExecutionError
from sut.watchdog import (
    POLL_S,
    WORKING_FACTOR,
    WORKING_SHARE,
    EngineWatch,
    WarmUpWatch,
    Watchdog,
    engine_is_working,
    process_tree_cpu_s,
)
from tests.support.engines.fakes import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


def look_repeatedly(
    watchdog: Watchdog, clock: Clock, seconds: float, *state: int, waiting: bool = True
) -> float | None:
    """Look each half second. Return the last result."""
    response = None
    for _ in range(round(seconds * 2)):
        clock.now += 0.5
        response = watchdog.stalled_for(waiting, *state)
    return response


def test_a_stall_beyond_the_limit_is_reported(clock: Clock) -> None:
    watchdog = Watchdog(10, now_s=clock)
    assert watchdog.stalled_for(True, 1) is None
    assert look_repeatedly(watchdog, clock, 10, 1) is None
    assert look_repeatedly(watchdog, clock, 0.5, 1) == 10.5


def test_any_progress_restarts_the_limit(clock: Clock) -> None:
    watchdog = Watchdog(10, gap_factor=0, now_s=clock)
    for step in range(6):
        assert look_repeatedly(watchdog, clock, 9.5, 7, step) is None
    assert look_repeatedly(watchdog, clock, 11, 7, 5) is not None


def test_no_open_query_is_not_a_stall(clock: Clock) -> None:
    watchdog = Watchdog(10, now_s=clock)
    assert look_repeatedly(watchdog, clock, 100, 1, waiting=False) is None
    assert look_repeatedly(watchdog, clock, 10, 1) is None
    assert look_repeatedly(watchdog, clock, 1, 1) is not None


def test_the_limit_grows_with_the_longest_recovered_gap(clock: Clock) -> None:
    watchdog = Watchdog(10, now_s=clock)
    look_repeatedly(watchdog, clock, 6, 1)  # a gap of a little under 6 s ...
    watchdog.stalled_for(True, 2)  # ... that ended well
    gap_s = watchdog.allowed_s / 5
    assert 5 <= gap_s <= 6
    look_repeatedly(watchdog, clock, 1, 3)
    watchdog.stalled_for(True, 4)
    assert watchdog.allowed_s == 5 * gap_s  # a shorter gap changes nothing
    assert look_repeatedly(watchdog, clock, 25, 4) is None
    assert look_repeatedly(watchdog, clock, 6, 4) is not None


def test_a_long_pause_counts_as_one_second(clock: Clock) -> None:
    watchdog = Watchdog(10, now_s=clock)
    watchdog.stalled_for(True, 1)
    for _ in range(10):  # a host that sleeps for an hour between two looks
        clock.now += 3600
        assert watchdog.stalled_for(True, 1) is None
    clock.now += 3600
    assert watchdog.stalled_for(True, 1) == 11


# A run's engine and system under test, as the watch sees them ---------------------------------------------------------


@dataclass
class WatchedRun:
    """The state that the watch reads. The test changes it."""

    issued: int = 0
    completed: int = 0
    handing_over_s: float = 0.0
    engine_activity: int = 0

    @property
    def outstanding(self) -> int:
        return self.issued - self.completed

    def check_alive(self) -> None: ...

    def activity(self) -> int:
        return self.engine_activity


RULE = pytest.mark.parametrize("on_cpu", [False, True], ids=["accelerator", "cpu"])


@pytest.fixture
def run() -> WatchedRun:
    return WatchedRun()


def watch_of(run: WatchedRun, clock: Clock, *, on_cpu: bool, working: bool = False) -> EngineWatch:
    return EngineWatch(
        run,  # type: ignore[arg-type]  # the few names that are used
        run,  # type: ignore[arg-type]
        20,
        on_cpu=on_cpu,
        is_working=lambda: working,
        now_s=clock,
    )


def stalls_after_s(watch: EngineWatch | WarmUpWatch, clock: Clock, within_s: float) -> float | None:
    """Look each half second until the watch ends the run. Return the time."""
    began_s = clock.now
    while clock.now < began_s + within_s:
        clock.now += 0.5
        try:
            watch.poll()
        except ExecutionError:
            return clock.now - began_s
    return None


@RULE
def test_a_long_submission_is_not_a_stall(on_cpu: bool, run: WatchedRun, clock: Clock) -> None:
    """A healthy engine must not be called stalled while the loop submits 106,944 samples."""
    run.issued = 106_944
    watch = watch_of(run, clock, on_cpu=on_cpu)
    watch.poll()
    for _ in range(120):  # half a minute without a response
        clock.now += 0.25
        run.handing_over_s += 0.25
        watch.poll()
    assert stalls_after_s(watch, clock, 60) == 20.5
    run.engine_activity += 1  # any output of the engine restarts the limit
    assert stalls_after_s(watch, clock, 20) is None
    run.completed += 1
    assert stalls_after_s(watch, clock, 20) is None


@RULE
def test_newly_issued_queries_do_not_hide_a_stalled_engine(on_cpu: bool, run: WatchedRun, clock: Clock) -> None:
    watch = watch_of(run, clock, on_cpu=on_cpu)

    def poll() -> None:
        run.issued += 50
        run.handing_over_s += 0.01
        clock.now += 0.5
        watch.poll()

    with pytest.raises(ExecutionError, match="watchdog: "):  # noqa: PT012  # which look it is does not matter
        for _ in range(60):
            poll()
    assert clock.now < 1000 + 22


def test_a_computing_cpu_engine_has_a_longer_but_finite_limit(run: WatchedRun, clock: Clock) -> None:
    run.issued = 1
    assert (
        stalls_after_s(watch_of(run, clock, on_cpu=False, working=True), clock, 60) == 21.0
    )  # the first look sees a new state
    found_s = stalls_after_s(watch_of(run, clock, on_cpu=True, working=True), clock, 10_000)
    assert 20 * WORKING_FACTOR <= found_s <= 20 * WORKING_FACTOR + 1


def test_a_silent_engine_in_the_warm_up_has_a_longer_but_finite_limit(run: WatchedRun, clock: Clock) -> None:
    watch = WarmUpWatch(run, 20, clock)  # type: ignore[arg-type]  # the few names that are used
    run.engine_activity = 1
    found_s = stalls_after_s(watch, clock, 10_000)
    assert 20 * WORKING_FACTOR <= found_s <= 20 * WORKING_FACTOR + 1


# Detection of computing processes
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "working"), [(0.0, False), (0.9, False), (1.1, True)])
def test_an_engine_that_uses_cpu_time_is_working(share: float, working: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    used_s = 5.0

    def compute(seconds: float) -> None:
        nonlocal used_s
        assert seconds == POLL_S
        used_s += share * WORKING_SHARE * seconds

    monkeypatch.setattr("sut.watchdog.process_tree_cpu_s", lambda: used_s)
    assert engine_is_working(compute) is working


def test_cpu_time_of_all_descendants_is_counted() -> None:
    before_s = process_tree_cpu_s()
    code = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        child.stdout.readline()  # it has computed and waits
        with_child_s = process_tree_cpu_s()
        assert with_child_s - before_s >= 0.25
        end_s = time.process_time() + 0.2
        while time.process_time() < end_s:
            pass
        assert process_tree_cpu_s() - with_child_s >= 0.15
    finally:
        child.kill()
        child.communicate()
