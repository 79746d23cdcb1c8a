"""Checks whether an engine kept up with a rate and whether a run was steady; the steady rate of an Offline run."""

import numpy as np
from numpy.typing import NDArray

from runs.numbers.load import LATER, ArrivalWindow

_STEADY_SHARE = 0.05  # allowed difference of mean open queries and rate × mean latency
_FILL_UPS = 3.5  # shortest Offline run with a steady part, in times to the first completion
_OFFLINE_SHARE = 0.85  # the steady part of an Offline run ends at this share of the time of the run, or earlier

Seconds = NDArray[np.float64]


def signs_of_saturation(window: ArrivalWindow) -> str:
    """Return the signs of saturation of a run that is not saturated; an empty text without a sign.

    One of the two limits of the growth is exceeded. Growth by more than 3% of the arrivals is likely in a run with few
    arrivals, so it counts only with late completions and half of the other limit. In a run with very few arrivals, the
    growth is always below its limit. There, the completions show that the system may not have kept up.
    """
    if window.completions is not None and window.completions < (window.arrivals - 1) / 2:
        return f"in the time of {window.arrivals} arrivals, only {window.completions} queries were completed"
    large = window.growth > max(window.tolerated, window.noise / 2)
    if window.much_later or window.growth > window.noise or (large and window.completions_late):
        return growth_text(window)
    return ""


def growth_text(window: ArrivalWindow) -> str:
    """Return the growth of open queries and the excess of the completions' time, each with its limit."""
    allowed, rule = window.allowed
    later = f"the completions took {max(0.0, window.later):.0%} longer than the arrivals (limit {LATER:.0%})"
    return f"open queries grew by {window.growth:.1f} (limit {allowed:.1f}: {rule}), and {later}"


def not_steady(window: ArrivalWindow, arrived_s: Seconds, latency_s: Seconds) -> str | None:
    """Return a reason if the mean number of open queries is not rate × mean latency.

    They may differ by 5%, and by as many queries at the beginning and at the end as open queries may grow by chance.
    """
    inside = latency_s[int(np.searchsorted(arrived_s, window.begin_s, side="right")) :]
    duration_s = window.end_s - window.begin_s
    mean_s = float(inside.mean())
    expected = len(inside) / duration_s * mean_s
    if abs(window.mean_open - expected) <= max(_STEADY_SHARE * expected, window.noise * mean_s / duration_s):
        return None
    return f"not steady: {window.mean_open:,.1f} queries open on average, rate × mean latency is {expected:,.1f}"


def steady_offline_rate(completed_s: Seconds) -> float:
    """Return the completions per second of an Offline run without fill and drain.

    It is the slope of a straight line through the completions in order. Requests that start together and have equal
    lengths complete together; a line through all of a wave does not depend on the moment of the wave, as a quotient of
    two moments does. The line begins with the first completion. It ends at 85% of the time, or one time to the first
    completion before the last, if that is earlier. The rate of a shorter run is over its whole time.

    Args:
        completed_s: completions in order, from the start of the run.
    """
    first_s, last_s = float(completed_s[0]), float(completed_s[-1])
    begin, end = np.searchsorted(completed_s, [first_s, min(last_s - first_s, _OFFLINE_SHARE * last_s)], "left")
    inside = completed_s[begin:end]
    if last_s < _FILL_UPS * first_s or len(inside) < 2 or inside[-1] <= inside[0]:
        return len(completed_s) / last_s
    return float(np.polyfit(inside, np.arange(len(inside)), 1)[0])
