"""The load of a Server run: offered and completed rates, open queries, and whether the engine kept up."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runs.wording import counted, per_second, two_digits

if TYPE_CHECKING:  # not needed to show a load
    import numpy as np
    from numpy.typing import NDArray

_SAMPLES = 400  # number of moments at which open queries are counted
_LATER = 0.05  # allowed excess of the completions' time, as a share of the arrivals' time
_TOLERANCE = 0.03  # allowed growth of open queries, as a share of the arrivals
_DEVIATIONS = 3.0  # allowed growth of open queries, in standard deviations of a Poisson count
_LONG_DRAIN = 3.0  # duration of a long drain, in median latencies


@dataclass(frozen=True)
class Load:
    """The load of one run. Arrivals are the scheduled times.

    Both rates count all queries except the first: from the first to the last arrival, and from the first to the last
    completion. An engine with a constant latency of 5 s therefore completes the offered rate, although its last
    completion is 5 s after the last arrival.
    """

    offered_per_second: float
    completed_per_second: float
    mean_open: float  # mean over the time from the first to the last arrival
    open_at_end: int  # queries that arrived before the last one and were open when it arrived
    drain_s: float  # from the last arrival to the last completion
    kept_up: bool

    def __str__(self) -> str:
        return (
            f"offered {per_second(self.offered_per_second)}, completed {per_second(self.completed_per_second)}, "
            f"{two_digits(self.mean_open)} open on average"
        )

    @property
    def warning(self) -> str:
        """The warning of an engine that did not keep up; otherwise empty."""
        if self.kept_up:
            return ""
        waiting = counted(self.open_at_end, "request")
        return (
            f"the engine did not keep up: {per_second(self.offered_per_second)} offered, "
            f"{per_second(self.completed_per_second)} completed; {waiting} "
            f"{'was' if self.open_at_end == 1 else 'were'} waiting at the end"
        )


def load_of(scheduled_ns: "NDArray[np.int64]", latency_ns: "NDArray[np.int64]") -> Load | None:
    """Compute the load from queries in order of arrival; None if all arrived at one time.

    The engine did not keep up if the completions took over 5% longer than the arrivals, and one of these conditions is
    true:

    - Open queries grew, after the first third of the arrivals' time, by more than 3% of the arrivals in that time and
      by more than 3 × √(1 + their mean number). Growth is the rise of a straight line through all moments, so a burst
      of arrivals does not count.
    - The drain took longer than 3 median latencies. Single stragglers (1 %, at least one query) do not count.
    """
    import numpy as np

    if len(scheduled_ns) < 2 or scheduled_ns[-1] <= scheduled_ns[0]:
        return None
    arrived = (scheduled_ns - scheduled_ns[0]) / 1e9
    completed_at = arrived + latency_ns / 1e9
    completed = np.sort(completed_at)
    window_s = float(arrived[-1])
    completing_s = max(float(completed[-1] - completed[0]), 1e-9)
    intervals = len(arrived) - 1
    later_s = completing_s - window_s
    grew = _grew(arrived, completed)
    without_stragglers = float(completed[-1 - max(1, len(completed) // 100)]) - window_s
    long_drain = without_stragglers > _LONG_DRAIN * float(np.median(latency_ns)) / 1e9
    return Load(
        offered_per_second=intervals / window_s,
        completed_per_second=intervals / completing_s,
        mean_open=float((np.minimum(completed_at, window_s) - arrived).clip(0).sum()) / window_s,
        open_at_end=intervals - int(np.searchsorted(np.sort(completed_at[:-1]), window_s, side="right")),
        drain_s=max(0.0, float(completed[-1]) - window_s),
        kept_up=not (later_s > _LATER * window_s and (grew or long_drain)),
    )


def _grew(arrived: "NDArray[np.float64]", completed: "NDArray[np.float64]") -> bool:
    import numpy as np

    begin_s, end_s = float(arrived[-1]) / 3, float(arrived[-1])
    moments = np.linspace(begin_s, end_s, _SAMPLES)
    before = np.searchsorted(arrived, moments, side="right")
    still_open = before - np.searchsorted(completed, moments, side="right")
    growth = float(np.polyfit(moments, still_open, 1)[0]) * (end_s - begin_s)
    noise = _DEVIATIONS * (1 + float(still_open.mean())) ** 0.5
    return bool(growth > max(noise, _TOLERANCE * int(before[-1] - before[0])))
