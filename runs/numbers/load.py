"""The load of a Server run: offered and completed rates, open queries, and whether the engine kept up."""

import math
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
_STEADY_SHARE = 0.05  # allowed difference of mean open queries and rate × mean latency
_FILL_UPS = 3.5  # shortest Offline run with a steady part, in times to the first completion
_OFFLINE_SHARE = 0.85  # the steady part of an Offline run ends at this share of its time, or before


@dataclass(frozen=True)
class SteadyPart:
    """A run from the end of the first third of the arrivals' time to the last arrival. Times are in s."""

    begin_s: float  # from the first arrival
    end_s: float
    arrivals: int
    mean_open: float
    most_open: int
    growth: float  # rise of a straight line through the number of open queries, in queries
    mean_latency_s: float  # of the queries that arrived in this part
    open_noise: float  # standard deviation of `mean_open` - rate × mean latency, for independent queries
    completions_late: bool  # the completions of the run took over 5% longer than the arrivals
    long_drain: bool  # the drain took longer than 3 median latencies

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s

    @property
    def grew(self) -> bool:
        """Whether open queries grew by more than 3% of the arrivals and by more than 3 × √(1 + their mean number)."""
        return self.growth > max(_TOLERANCE * self.arrivals, self._deviations)

    @property
    def is_saturated(self) -> bool:
        """Whether the engine did not keep up; see `load_of`."""
        return self.completions_late and (self.grew or self.long_drain)

    @property
    def is_unclear(self) -> bool:
        """Whether there is evidence of saturation, but not enough. Growth by more than 3% of the arrivals alone is
        likely in a run with few arrivals, so it counts only with half of the other limit and late completions.
        """
        if self.is_saturated:
            return False
        large = self.growth > max(_TOLERANCE * self.arrivals, self._deviations / 2)
        return self.growth > self._deviations or (large and self.completions_late)

    @property
    def growth_text(self) -> str:
        """The growth with the limits of both tests."""
        return (
            f"open queries grew by {self.growth:.1f} ({_TOLERANCE:.0%} of the arrivals is "
            f"{_TOLERANCE * self.arrivals:.1f}, {_DEVIATIONS:g} standard deviations are {self._deviations:.1f})"
        )

    @property
    def is_steady(self) -> bool:
        """Whether the mean number of open queries is rate × mean latency, within 5% and within the noise of the queries
        at both ends.
        """
        expected = self.arrivals / self.duration_s * self.mean_latency_s
        allowed = max(_STEADY_SHARE * expected, _DEVIATIONS * self.open_noise)
        return abs(self.mean_open - expected) <= allowed

    @property
    def _deviations(self) -> float:
        return _DEVIATIONS * math.sqrt(1 + self.mean_open)


def steady_part(arrived_s: "NDArray[np.float64]", latency_s: "NDArray[np.float64]") -> SteadyPart | None:
    """Measure the arrivals' time after its first third; None if all queries arrived at one time.

    Args:
        arrived_s: arrivals in order, from the first one.
        latency_s: time from arrival to completion.
    """
    import numpy as np

    if len(arrived_s) < 2 or arrived_s[-1] <= 0:
        return None
    completed = np.sort(arrived_s + latency_s)
    begin_s, end_s = float(arrived_s[-1]) / 3, float(arrived_s[-1])
    moments = np.linspace(begin_s, end_s, _SAMPLES)
    before = np.searchsorted(arrived_s, moments, side="right")
    still_open = before - np.searchsorted(completed, moments, side="right")
    inside = latency_s[int(before[0]) :]
    drain_s = float(completed[-1 - max(1, len(completed) // 100)]) - end_s  # without stragglers
    # The difference is the remaining time of the queries that are open at the beginning, minus that at the end. For
    # Poisson arrivals, the variance of each is rate × mean cube of the latency / 3.
    noise = math.sqrt(2 * len(inside) / (end_s - begin_s) * float((inside**3).mean()) / 3) / (end_s - begin_s)
    return SteadyPart(
        begin_s=begin_s,
        end_s=end_s,
        arrivals=len(inside),
        mean_open=float(still_open.mean()),
        most_open=int(still_open.max()),
        growth=float(np.polyfit(moments, still_open, 1)[0]) * (end_s - begin_s),
        mean_latency_s=float(inside.mean()),
        open_noise=noise,
        completions_late=float(completed[-1] - completed[0]) - end_s > _LATER * end_s,
        long_drain=drain_s > _LONG_DRAIN * float(np.median(latency_s)),
    )


def steady_offline_rate(completed_s: "NDArray[np.float64]") -> float:
    """Return the completions per second of an Offline run without fill and drain.

    It is the slope of a straight line through the completions in order. Requests that start together and have equal
    lengths complete together; a line through all of a wave does not depend on the moment of the wave, as a quotient of
    two moments does. The line begins with the first completion. It ends at 85% of the time, or one time to the first
    completion before the last, if that is earlier. The rate of a shorter run is over its whole time.

    Args:
        completed_s: completions in order, from the start of the run.
    """
    import numpy as np

    first_s, last_s = float(completed_s[0]), float(completed_s[-1])
    begin, end = np.searchsorted(completed_s, [first_s, min(last_s - first_s, _OFFLINE_SHARE * last_s)], "left")
    inside = completed_s[begin:end]
    if last_s < _FILL_UPS * first_s or len(inside) < 2 or inside[-1] <= inside[0]:
        return len(completed_s) / last_s
    return float(np.polyfit(inside, np.arange(len(inside)), 1)[0])


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

    arrived, latency = (scheduled_ns - scheduled_ns[:1]) / 1e9, latency_ns / 1e9
    steady = steady_part(arrived, latency)
    if steady is None:
        return None
    completed_at = arrived + latency
    first, last = float(completed_at.min()), float(completed_at.max())
    window_s, intervals = steady.end_s, len(arrived) - 1
    return Load(
        offered_per_second=intervals / window_s,
        completed_per_second=intervals / max(last - first, 1e-9),
        mean_open=float((np.minimum(completed_at, window_s) - arrived).clip(0).sum()) / window_s,
        open_at_end=int((completed_at[:-1] > window_s).sum()),
        drain_s=max(0.0, last - window_s),
        kept_up=not steady.is_saturated,
    )
