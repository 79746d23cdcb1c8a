"""Measures an event loop's lag: how long something that is due has to wait for the loop's next turn."""

import asyncio
from array import array

import numpy as np

from runs.record.loop_lag import LoopLag

INTERVAL_S = 0.01  # a hundred timers a second take the loop about a thousandth of a core


class LagMeter:
    """Looks at fixed moments, `INTERVAL_S` apart. Moments that a busy loop slept through count too, each with its own
    delay: the figures are those of moments, not of turns.

    Keeps 4 bytes a moment, 1.4 MB an hour.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lags_s = array("f")
        self._due_s = 0.0
        self._over = False

    def start(self) -> None:
        """Begin. Safe from every thread."""
        self._loop.call_soon_threadsafe(self._begin)

    def stop(self) -> LoopLag | None:
        """No more looks; what came of them. None if there was none. Safe from every thread."""
        self._over = True
        lags_ms = np.array(self._lags_s, dtype=np.float64) * 1e3
        if not len(lags_ms):
            return None
        return LoopLag(
            p99_ms=round(float(np.percentile(lags_ms, 99)), 3),
            worst_ms=round(float(lags_ms.max()), 3),
            moments=len(lags_ms),
            interval_ms=INTERVAL_S * 1e3,
        )

    def _begin(self) -> None:
        self._due_s = self._loop.time() + INTERVAL_S
        self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        if self._over:
            return
        now_s = self._loop.time()
        while self._due_s <= now_s:
            self._lags_s.append(now_s - self._due_s)
            self._due_s += INTERVAL_S
        self._loop.call_at(self._due_s, self._look)
