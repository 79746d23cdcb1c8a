"""CPU times during a run: those of the run itself, and foreign ones."""

import os
import signal
import subprocess
import sys

import pytest

from runs.record.observed import Contention, NotRecorded
from scenarios.launch import cpu_times
from scenarios.launch.cpu_times import CpuReading, ForeignLoad, contention_between, read_cpu

BURNT_S = 0.4
BURN = f"import time\nwhile time.process_time() < {BURNT_S}: pass"
TICKS_S = 0.05  # the system counts in steps of 10 ms


def cpu_reading(time_s: float, busy_s: float, own_s: dict[int, float], cores: tuple[int, ...] = (0, 1)) -> CpuReading:
    return CpuReading(time_s, cores, busy_s, 0.0, own_s, 0.5)


@pytest.mark.parametrize("is_own", [True, False])
def test_cpu_time_of_children_is_not_foreign(is_own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one process is the harness. Others of the tests' group may end children that worked before the reading."""
    monkeypatch.setattr(cpu_times, "_group", lambda _: {os.getpid() if is_own else os.getppid()})
    before = read_cpu(os.getppid())
    subprocess.run([sys.executable, "-c", BURN], check=True)
    contention = contention_between(before, read_cpu(os.getppid()))
    least_s = BURNT_S - TICKS_S * (1 + contention.usable_cores)
    if is_own:
        assert contention.own_cpu_s >= BURNT_S - TICKS_S
        assert contention.busy_cpu_s >= least_s
    else:
        assert contention.foreign_cpu_s >= least_s


@pytest.mark.parametrize(
    ("foreign_s", "taken"), [(0.0, 0), (0.4, 0), (0.49, 0), (0.67, 1), (1.0, 1), (1.4, 1), (1.6, 2), (3.0, 2)]
)
def test_a_core_used_by_others_for_half_of_the_time_counts_as_taken(foreign_s: float, taken: int) -> None:
    for window_s in (0.5, 3.0):
        end = cpu_reading(window_s, foreign_s * window_s, {1: 0.0})
        contention = contention_between(cpu_reading(0.0, 0.0, {1: 0.0}), end)
        assert isinstance(contention, Contention)
        assert contention.cores_taken == taken


def test_before_the_start_only_descendants_belong_to_the_harness() -> None:
    """A shell script has its other programs in the process group of main.py."""
    child = subprocess.Popen(
        ["sh", "-c", "(exec sleep 60) & echo $!; exec sleep 60"], stdout=subprocess.PIPE, text=True
    )
    orphan = subprocess.run(
        ["sh", "-c", "sleep 60 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True, check=True
    )
    pids = [child.pid, int(child.stdout.readline()), int(orphan.stdout)]  # type: ignore[union-attr]
    try:
        assert [pid in cpu_times._used_by_descendants() for pid in pids] == [True, True, False]
        assert {os.getpgid(pid) for pid in pids} == {os.getpgrp()}
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        child.communicate()


@pytest.mark.parametrize("lost", ["start", "end", "window"])
def test_unreadable_load_counts_no_core_as_taken(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[CpuReading | str] = [
        cpu_reading(0.0, 0.0, {}),
        cpu_reading(0.1 if lost == "window" else 1.0, 2.0, {}),
    ]
    if lost != "window":
        readings[lost == "end"] = "PermissionError"
    monkeypatch.setattr(cpu_times, "_read", lambda _: readings.pop(0))
    assert ForeignLoad().cores_taken() == 0


def test_processes_that_start_and_end_are_counted_once() -> None:
    start = cpu_reading(10.0, 100.0, {1: 5.0, 2: 3.0})
    # Process 2 used 3 more seconds and ended, so its parent 1 has them as those of children. Process 3 is new.
    end = cpu_reading(14.0, 107.0, {1: 5.0 + 6.0 + 0.5, 3: 1.0})
    contention = contention_between(start, end)
    assert isinstance(contention, Contention)
    assert (contention.own_cpu_s, contention.busy_cpu_s, contention.foreign_cpu_s) == (4.5, 7.0, 2.5)
    assert (contention.window_s, contention.usable_cores) == (4.0, 2)


def test_foreign_cpu_time_is_never_negative() -> None:
    contention = contention_between(cpu_reading(0.0, 10.0, {1: 0.0}), cpu_reading(1.0, 11.0, {1: 1.3}))
    assert isinstance(contention, Contention)
    assert contention.foreign_cpu_s == 0.0


def test_unreadable_cpu_times_are_reported_without_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> object:
        raise PermissionError("not for you")

    counters = read_cpu(os.getppid())
    monkeypatch.setattr("psutil.cpu_times", broken)
    lost = read_cpu(os.getppid())
    assert lost == "PermissionError: not for you"
    assert contention_between(counters, lost) == contention_between(lost, counters) == NotRecorded(not_recorded=lost)
    moved = contention_between(cpu_reading(0.0, 1.0, {}), cpu_reading(1.0, 2.0, {}, cores=(0,)))
    assert isinstance(moved, NotRecorded)
    assert "usable cores changed" in moved.not_recorded
    assert isinstance(contention_between(cpu_reading(1.0, 1.0, {}), cpu_reading(1.0, 1.0, {})), NotRecorded)
