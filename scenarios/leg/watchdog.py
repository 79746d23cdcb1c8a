"""When to call a leg stalled, without ever calling a slow machine stalled."""

import time

# Engine steps on a slow machine can take long: the limit follows the longest gap that was seen to end well.
GAP_FACTOR = 5.0


class Watchdog:
    """Counts how long queries have been waiting while nothing at all moved.

    Args:
        limit_s: a stall this long ends the leg, unless the engine was seen to recover from gaps of more than a
            fifth of it; then five times the longest such gap.
        gap_factor: that five; 0 for a limit that never grows.
    """

    def __init__(self, limit_s: float, gap_factor: float = GAP_FACTOR) -> None:
        self._limit_s = limit_s
        self._gap_factor = gap_factor
        self._longest_gap_s = 0.0
        self._waited_s = 0.0
        self._state: tuple[int, ...] = ()
        self._last_look = time.monotonic()

    @property
    def allowed_s(self) -> float:
        return max(self._limit_s, self._gap_factor * self._longest_gap_s)

    def stalled_for(self, waiting: bool, *state: int) -> float | None:
        """Look once; to be called at least every second.

        Args:
            waiting: whether any query is outstanding.
            state: numbers of which at least one changes whenever there is progress.

        Returns:
            The length of the stall in seconds once it is over the limit, else None.
        """
        now = time.monotonic()
        # A machine that slept or was stopped makes one long look out of many short ones: it counts as one second.
        passed = min(now - self._last_look, 1.0)
        self._last_look = now
        if not waiting or state != self._state:
            self._longest_gap_s = max(self._longest_gap_s, self._waited_s)
            self._waited_s = 0.0
            self._state = state
            return None
        self._waited_s += passed
        return self._waited_s if self._waited_s > self.allowed_s else None
