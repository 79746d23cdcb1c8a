"""Waits for processes of a test: a wait fails if the processes make no progress.

A fixed number of seconds would depend on the speed and the load of the host. Progress is processor time of the
processes below this one, or a log that grows. A heartbeat alone is not progress.
"""

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psutil

T = TypeVar("T")

IDLE_S = 120.0  # maximum time without progress
PROGRESS_CPU_S = 1.0  # minimum in IDLE_S; polls and heartbeats use much less
POLL_S = 1.0  # between two looks at the progress
LONGEST_POLL_S = 0.2


class StartedProcess(Protocol):
    """A started process: a Popen, or one of tests.support.processes.warm."""

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def communicate(self, *, timeout: float | None = None) -> tuple[Any, Any]: ...


class Patience:
    """A check of the progress of the started processes.

    Args:
        log: File that one of them writes.
    """

    def __init__(self, log: Path | None = None) -> None:
        self._log = log
        self._me = psutil.Process()
        self._seen = self._cpu_s(), self._log_size()
        self._last = time.monotonic()
        self._idle_s = 0.0

    def check(self, what: str) -> None:
        """Fail if there was no progress for too long. Call it repeatedly while you wait."""
        now = time.monotonic()
        if now - self._last < POLL_S:
            return
        # If the host did not let this process look, it did not let the others work, either.
        self._idle_s += min(now - self._last, 2 * POLL_S)
        self._last = now
        cpu_s, size = self._cpu_s(), self._log_size()
        if abs(cpu_s - self._seen[0]) >= PROGRESS_CPU_S or size != self._seen[1]:
            self._seen, self._idle_s = (cpu_s, size), 0.0
        assert self._idle_s < IDLE_S, f"no progress for {IDLE_S:g} s while waiting for {what}"

    def _cpu_s(self) -> float:
        """Return the processor time of all processes below this one, ended ones included."""
        total = sum(self._me.cpu_times()[2:4])
        for process in self._me.children(recursive=True):
            try:
                total += sum(process.cpu_times()[:4])
            except psutil.Error:
                continue
        return total

    def _log_size(self) -> int:
        return self._log.stat().st_size if self._log and self._log.exists() else 0


def until(
    condition: Callable[[], Any], what: str, *, process: StartedProcess | None = None, log: Path | None = None
) -> Any:
    """Wait until a condition is true, and return its value.

    Args:
        process: Process that should make it true. If it ended before, the wait fails.
        log: File that it writes.
    """
    patience, poll_s = Patience(log), 0.02
    while True:
        ended = process is not None and process.poll() is not None
        if value := condition():
            return value
        assert not ended, f"the process ended with code {process and process.returncode} before {what}"
        patience.check(what)
        time.sleep(poll_s)
        poll_s = min(1.2 * poll_s, LONGEST_POLL_S)


def finish(process: StartedProcess, what: str = "the end of a process") -> tuple[Any, Any]:
    """Wait for the end of a process. Return its standard output and standard error."""
    patience = Patience()
    while True:
        try:
            return process.communicate(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            patience.check(what)


async def patiently(work: Awaitable[T], what: str) -> T:
    """Wait for work on this event loop, which other processes may do."""
    patience, task = Patience(), asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=POLL_S))[0]:
            patience.check(what)
        return task.result()
    finally:
        task.cancel()
