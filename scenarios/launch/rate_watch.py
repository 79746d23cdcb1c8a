"""The early end of an Offline run whose rate is precise enough, for an estimate or a warm-up."""

import math

from runs.errors import ExitCode, Interrupted
from runs.record.progress import Progress

# A rate ignores the time in which the engine fills up: this share, and the time to the first completion. It needs some
# responses.
FILLING_SHARE = 1 / 3
ENOUGH_RESPONSES = 64


class Stopped(Interrupted):
    """A watch ended a run early."""

    exit_code = ExitCode.NEGATIVE


class RateWatch:
    """A watch that ends an Offline run when its rate is precise enough. It is called with each heartbeat.

    Args:
        stop_after_s: Time after which the rate is precise enough.
        agreement: Maximum difference of the rates in the second and the last third of the time, as a share, with which
            the rate is precise enough earlier. None = by time only.
        from_s: Minimum time for `agreement`.
        tokens_per_query: Output tokens of every query, so that unfinished queries count too. None = unknown.
        enough: Minimum number of responses after the first third of the time.
        limit_s: Time after which the run ends with any rate. Before the first response, it does not end.

    Attributes:
        samples_per_second: Rate after the first third of the time; None before.
    """

    def __init__(
        self,
        stop_after_s: float,
        *,
        agreement: float | None = None,
        from_s: float = 0.0,
        tokens_per_query: int | None = None,
        enough: int = ENOUGH_RESPONSES,
        limit_s: float = math.inf,
    ) -> None:
        self._stop_after_s, self._agreement, self._from_s = stop_after_s, agreement, from_s
        self._tokens_per_query, self._enough, self._limit_s = tokens_per_query, enough, limit_s
        self._seen: list[tuple[float, float]] = []  # elapsed time in s, finished queries
        self._first_s = math.inf  # time of the first heartbeat with a completed query
        self.samples_per_second: float | None = None

    def __call__(self, progress: Progress) -> None:
        if progress.phase != "running":
            return
        now_s, done = progress.elapsed_s, float(progress.completed)
        if self._tokens_per_query is not None:
            done = progress.output_tokens / self._tokens_per_query
        self._seen.append((now_s, done))
        if progress.completed:
            self._first_s = min(self._first_s, now_s)
        filled_s, filled = self._since(FILLING_SHARE * now_s)
        middle_s, middle = self._since((1 + FILLING_SHARE) / 2 * now_s)
        if done - filled < self._enough or filled_s < self._first_s or not filled_s < middle_s < now_s:
            if now_s < self._limit_s or not done:
                return
            self.samples_per_second = done / now_s
            raise Stopped(f"stopped after {now_s:.0f} s, the time limit")
        self.samples_per_second = (done - filled) / (now_s - filled_s)
        if now_s < self._stop_after_s:
            windows = (middle - filled) / (middle_s - filled_s), (done - middle) / (now_s - middle_s)
            if self._agreement is None or now_s < self._from_s:
                return
            if abs(windows[0] - windows[1]) > self._agreement * max(windows):
                return
        raise Stopped(f"stopped after {now_s:.0f} s, because the rate is precise enough")

    def _since(self, time_s: float) -> tuple[float, float]:
        """Return the first heartbeat from a time on."""
        return next(seen for seen in self._seen if seen[0] >= time_s)
