"""A process with an event loop: the kind of loop, the garbage collector, open files, and the loop's lag: how long
something that is due has to wait for the next turn."""

import asyncio
import gc
import resource
import time
from collections import deque
from collections.abc import Callable

from runs.errors import SetupError
from runs.record.observed import LoopLag
from sut.request_log import Lateness

SPARE_FILES = 256  # everything else that the process has open
INTERVAL_S = 0.01  # a hundred timers a second take the loop about a thousandth of a core


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's factory if it is installed: it takes a tenth less processor time than asyncio's own."""
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
    """Raise the soft limit of open files and connections as far as is needed.

    Args:
        count: files and connections, besides what every process has.
        what: they are for.
        fix: how to need fewer.

    Raises:
        SetupError: the hard limit is lower.
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
    """Measures at fixed moments, `INTERVAL_S` apart. Moments that a busy loop missed count too, each with its delay, so
    that the figures are those of moments and not of turns.

    Args:
        clock: the loop's own may have whole milliseconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._clock = clock
        self._pending_s: deque[float] = deque()  # from the loop's thread to that of `so_far`
        self._lateness = Lateness()
        self._due_s = 0.0
        self._over = False

    def start(self) -> None:
        """Begin; the first moment is now. Safe from every thread."""
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
        """Count the moments that are over, also those that the present turn missed. On the loop only."""
        now_s = self._clock()
        while self._due_s <= now_s:
            self._pending_s.append(now_s - self._due_s)
            self._due_s += INTERVAL_S

    def _poll(self) -> None:
        if self._over:
            return
        self.catch_up()
        self._loop.call_at(self._due_s, self._poll)
