"""Settings of a process with an event loop (loop, garbage collector, open files), and the measurement of the loop's
lag.
"""

import asyncio
import gc
import resource
import time
from collections import deque
from collections.abc import Callable

from runs.errors import SetupError
from runs.record.observed import LoopLag
from sut.request_writer import Lateness

SPARE_FILES = 256  # open files of the rest of the process
INTERVAL_S = 0.01  # a hundred timers per second take about 0.1% of a core


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's if it is installed, because it takes 10% less processor time than asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def freeze_garbage_collection() -> None:
    """Freeze existing objects, and turn garbage collection off for the timed run."""
    gc.collect()
    gc.freeze()
    gc.disable()


def allow_open_files(count: int, what: str, fix: str) -> None:
    """Raise the soft limit of open files and connections to the required number.

    Args:
        count: number of files and connections, in addition to SPARE_FILES.
        what: what they are for, in the error.
        fix: how to need fewer, in the error.

    Raises:
        SetupError: If the hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SetupError(
            f"{what} need {needed} open files; the limit is {hard}", f"{fix}, or raise the limit (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class LagMeter:
    """A meter of the loop's lag at fixed moments, `INTERVAL_S` apart.

    Args:
        clock: time in seconds; the loop's own clock may have a resolution of 1 ms.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._clock = clock
        self._pending_s: deque[float] = deque()  # lags, passed from the loop's thread to the thread that calls `so_far`
        self._lateness = Lateness()
        self._due_s = 0.0
        self._over = False

    def start(self) -> None:
        """Start measuring; the first moment is now. Safe from every thread."""
        self._due_s = self._clock()
        self._loop.call_soon_threadsafe(self._poll)

    def stop(self) -> None:
        """Stop measuring. Safe from every thread."""
        self._over = True

    def so_far(self) -> LoopLag | None:
        """Return the lag up to now; None before the first turn. Call it from one thread only."""
        for _ in range(len(self._pending_s)):
            self._lateness.add(int(self._pending_s.popleft() * 1e9))
        seen = self._lateness.facts()
        if not seen["count"]:
            return None
        return LoopLag(
            p99_ms=round(min(seen["p99_ms"], seen["worst_ms"]), 3),  # the upper end of a bin may exceed the worst value
            worst_ms=round(seen["worst_ms"], 3),
            moments=seen["count"],
            interval_ms=INTERVAL_S * 1e3,
        )

    def catch_up(self) -> None:
        """Count the moments up to now, also moments that this turn of the loop missed. Call it on the loop only."""
        now_s = self._clock()
        while self._due_s <= now_s:
            self._pending_s.append(now_s - self._due_s)
            self._due_s += INTERVAL_S

    def _poll(self) -> None:
        if self._over:
            return
        self.catch_up()
        self._loop.call_at(self._due_s, self._poll)
