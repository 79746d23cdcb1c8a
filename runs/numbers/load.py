"""The load of a Server run: offered and completed rates, open queries, and whether the engine kept up."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runs.wording import counted, per_second, two_digits

if TYPE_CHECKING:  # not needed to show a load
    import numpy as np
    from numpy.typing import NDArray

_SAMPLES = 400  # number of moments at which open queries are counted
LATER = 0.05  # allowed excess of the completions' time, as a share of the arrivals' time
_TOLERANCE = 0.03  # allowed growth of open queries, as a share of the arrivals
_DEVIATIONS = 3.0  # allowed growth of open queries, in standard deviations of a Poisson count
_MUCH_LATER = 0.40  # excess of the completions' time with which half of these deviations are allowed
_LONG_DRAIN = 3.0  # duration of a long drain, in median latencies
_LONGER = 1.2  # and in multiples of the longest latency in the first two thirds of the arrivals' time


@dataclass(frozen=True)
class ArrivalWindow:
    """The last two thirds of the time from the first to the last arrival. Times are in s."""

    begin_s: float  # from the first arrival
    end_s: float
    arrivals: int
    mean_open: float
    most_open: int
    growth: float  # growth of the number of open queries during the run, from a straight line through the numbers
    later: float = 0.0  # excess of the completions' time over the arrivals' time of the run, as a share
    long_drain: bool = False  # after the last arrival, the run took long to finish; see `load_of`
    much_later: bool = False  # without stragglers, the completions took over 40% longer than the arrivals
    completions: int | None = None  # completions in the window; None if unknown

    @property
    def tolerated(self) -> float:
        """The growth that is 3% of the arrivals."""
        return _TOLERANCE * self.arrivals

    @property
    def noise(self) -> float:
        """The growth that is 3 × √(1 + mean number of open queries)."""
        return _DEVIATIONS * math.sqrt(1 + self.mean_open)

    @property
    def allowed(self) -> tuple[float, str]:
        """The growth that is allowed, and its rule."""
        factor = 0.5 if self.later > _MUCH_LATER else 1.0
        deviations = f"{_DEVIATIONS * factor:g} standard deviations"
        return max((self.tolerated, f"{_TOLERANCE:.0%} of the arrivals"), (self.noise * factor, deviations))

    @property
    def completions_late(self) -> bool:
        return self.later > LATER

    @property
    def grew(self) -> bool:
        return self.growth > self.allowed[0]

    @property
    def is_saturated(self) -> bool:
        """True if the engine did not keep up; see `load_of`."""
        return self.completions_late and (self.grew or self.long_drain)


def rise(moments_s: "NDArray[np.float64]", still_open: "NDArray[np.int64]") -> float:
    """Return the growth of the number of open queries during the run, from a straight line through the numbers."""
    import numpy as np

    return float(np.polyfit(moments_s, still_open, 1)[0]) * float(moments_s[-1] - moments_s[0])


def arrival_window(arrived_s: "NDArray[np.float64]", latency_s: "NDArray[np.float64]") -> ArrivalWindow | None:
    """Measure the last two thirds of the arrivals' time; None if all queries arrived at the same time.

    Args:
        arrived_s: arrivals in order, from the first one.
        latency_s: time from arrival to completion.
    """
    import numpy as np

    if len(arrived_s) < 2 or arrived_s[-1] <= 0:
        return None
    completed_at = arrived_s + latency_s
    completed = np.sort(completed_at)
    begin_s, end_s = float(arrived_s[-1]) / 3, float(arrived_s[-1])
    moments = np.linspace(begin_s, end_s, _SAMPLES)
    before = np.searchsorted(arrived_s, moments, side="right")
    still_open = before - np.searchsorted(completed, moments, side="right")
    earlier_s = float(latency_s[arrived_s <= 2 * begin_s].max())
    finished_s = float(completed[-1 - max(1, len(completed) // 100)])  # without stragglers
    return ArrivalWindow(
        begin_s=begin_s,
        end_s=end_s,
        arrivals=int(before[-1] - before[0]),
        mean_open=float((np.minimum(completed_at, end_s) - np.maximum(arrived_s, begin_s)).clip(0).sum())
        / (end_s - begin_s),
        most_open=int(still_open.max()),
        growth=rise(moments, still_open),
        later=float(completed[-1] - completed[0]) / end_s - 1,
        long_drain=finished_s - end_s > max(_LONG_DRAIN * float(np.median(latency_s)), _LONGER * earlier_s),
        much_later=finished_s - float(completed[0]) > (1 + _MUCH_LATER) * end_s,
        completions=int(((completed > begin_s) & (completed <= end_s)).sum()),
    )


@dataclass(frozen=True)
class Load:
    """The load of one run. Arrivals are the scheduled times.

    Both rates count all queries except the first: from the first to the last arrival, and from the first to the last
    completion. An engine with a constant latency of 5 s therefore completes the offered rate, although its last
    completion is 5 s after the last arrival.
    """

    offered_per_second: float
    completed_per_second: float
    mean_open: float  # mean number of open queries between the first and the last arrival
    open_at_end: int  # earlier queries that were open when the last query arrived
    drain_s: float  # from the last arrival to the last completion
    kept_up: bool

    def __str__(self) -> str:
        return (
            f"offered {per_second(self.offered_per_second)}, completed {per_second(self.completed_per_second)}, "
            f"{two_digits(self.mean_open)} open on average"
        )

    @property
    def warning(self) -> str:
        """Warning that the engine did not keep up; empty if it kept up."""
        if self.kept_up:
            return ""
        waiting = counted(self.open_at_end, "request")
        return (
            f"the engine did not keep up: {per_second(self.offered_per_second)} offered, "
            f"{per_second(self.completed_per_second)} completed; {waiting} "
            f"{'was' if self.open_at_end == 1 else 'were'} waiting at the end"
        )


def load_of(scheduled_ns: "NDArray[np.int64]", latency_ns: "NDArray[np.int64]") -> Load | None:
    """Compute the load from queries in order of arrival; None if all arrived at the same time.

    The engine did not keep up if the completions took over 5% longer than the arrivals, and one of these conditions is
    true:

    - In the last two thirds of the arrivals' time, open queries grew by more than 3% of the arrivals in that time and
      by more than 3 × √(1 + their mean number); by half of that, if the completions took over 40% longer. Growth is
      the rise of a straight line through all moments, so a burst of arrivals does not count.
    - The drain took longer than 3 median latencies, and 1.2 times the longest latency in the first two thirds of the
      arrivals' time: responses that are late at random are late there too. Single stragglers (1 %, at least one query)
      do not count.
    """
    import numpy as np

    arrived, latency = (scheduled_ns - scheduled_ns[:1]) / 1e9, latency_ns / 1e9
    window = arrival_window(arrived, latency)
    if window is None:
        return None
    completed_at = arrived + latency
    first, last = float(completed_at.min()), float(completed_at.max())
    window_s, intervals = window.end_s, len(arrived) - 1
    return Load(
        offered_per_second=intervals / window_s,
        completed_per_second=intervals / max(last - first, 1e-9),
        mean_open=float((np.minimum(completed_at, window_s) - arrived).clip(0).sum()) / window_s,
        open_at_end=int((completed_at[:-1] > window_s).sum()),
        drain_s=max(0.0, last - window_s),
        kept_up=not window.is_saturated,
    )
