"""The lag of the event loop, on a clock of the test; and the limit of open files."""

import resource
import subprocess
import sys
from collections.abc import Callable

import pytest

from sut.event_loop import INTERVAL_S, LagMeter


class Loop:
    """The part of an event loop that the meter needs. The test turns it."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.planned: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        call()

    def call_at(self, due_s: float, call: Callable[[], None]) -> None:
        self.planned.append((due_s, call))

    def turn_at(self, now_s: float) -> None:
        self.now_s = now_s
        for due_s, call in [entry for entry in self.planned if entry[0] <= now_s]:
            self.planned.remove((due_s, call))
            call()


@pytest.fixture
def loop() -> Loop:
    return Loop()


def started_meter(loop: Loop) -> LagMeter:
    meter = LagMeter(loop, loop.time)  # type: ignore[arg-type]  # the few names that are used
    meter.start()
    return meter


def test_each_missed_moment_of_the_loop_is_counted(loop: Loop) -> None:
    meter = started_meter(loop)
    for step in range(1, 100):
        loop.turn_at(50 + step * INTERVAL_S + 0.001)
    loop.turn_at(52.0)  # busy for a second: 101 moments had to wait, the first of them for all of it
    meter.stop()
    lag = meter.so_far()
    assert lag.moments == 1 + 99 + 101
    assert lag.worst_ms == pytest.approx(1_000, abs=0.1)
    assert lag.p99_ms == pytest.approx(980, rel=0.03)  # the bins are 2 % wide


def test_the_first_moment_is_the_start_of_the_meter(loop: Loop) -> None:
    meter = LagMeter(loop, loop.time)  # type: ignore[arg-type]
    assert meter.so_far() is None
    meter.start()
    meter.stop()
    loop.turn_at(60.0)
    assert loop.planned == []
    lag = meter.so_far()
    assert lag.moments == 1


OPENS_FILES = """
import resource
from runs.errors import SetupError
from sut.event_loop import SPARE_FILES, allow_open_files

resource.setrlimit(resource.RLIMIT_NOFILE, (300, 1000))
allow_open_files(10, "few", "take fewer")
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
allow_open_files(1000 - SPARE_FILES, "many", "take fewer")
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
try:
    allow_open_files(1001 - SPARE_FILES, "512 replicas", "take fewer")
except SetupError as error:
    print(error)
"""


def test_the_limit_of_open_files_is_raised_to_its_maximum() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = subprocess.run([sys.executable, "-c", OPENS_FILES], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "300",
        "1000",
        "512 replicas need 1001 open files; the limit is 1000",
        "  fix: take fewer, or raise the limit (ulimit -Hn)",
    ]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
