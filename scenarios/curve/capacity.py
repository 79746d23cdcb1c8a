"""The search for C_max, the lowest concurrency at which a server reaches its highest rate.

The search doubles the concurrency until the rate stops growing, and then halves the interval between the highest level
below saturation and the lowest saturated level.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

MIN_GROWTH = 1.05  # growth of the rate per doubling, below which the search stops doubling
SATURATED_SHARE = 0.98  # share of the highest rate at which a level is saturated: the tolerance of the Offline rule
MAX_RATIO = 1.1  # ratio of the two levels at which the search ends
REPEATS = 2  # probes of each level that decides


class ProbeFailed(Exception):
    """A probe had failed samples; the search stops doubling."""


@dataclass(frozen=True)
class Capacity:
    """The result of the search."""

    c_max: int
    is_saturated: bool  # False: the rate still grew at the highest level
    note: str
    rates: dict[int, list[float]] = field(default_factory=dict)  # concurrency → samples/s of each probe


class _Levels:
    """The measured levels."""

    def __init__(self) -> None:
        self.rates: dict[int, list[float]] = {}

    def add(self, level: int, rate: float) -> None:
        self.rates.setdefault(level, []).append(rate)

    def mean(self, level: int) -> float:
        return fmean(self.rates[level])

    @property
    def best(self) -> float:
        """The highest rate: the mean of all probes of levels whose rate is within MIN_GROWTH of the highest."""
        top = max(map(fmean, self.rates.values()))
        return fmean(rate for rates in self.rates.values() if MIN_GROWTH * fmean(rates) > top for rate in rates)

    @property
    def spread(self) -> float:
        """The largest relative difference between probes of one level."""
        return max((max(rates) - min(rates)) / fmean(rates) for rates in self.rates.values())

    def is_saturated(self, level: int) -> bool:
        return self.mean(level) >= (SATURATED_SHARE - self.spread) * self.best

    def bracket(self) -> tuple[int, int]:
        """Return the highest level below saturation, 0 if there is none, and the lowest saturated level above it."""
        levels = sorted(self.rates)
        top = max(levels, key=self.mean)
        below = max((level for level in levels if level < top and not self.is_saturated(level)), default=0)
        return below, min(level for level in levels if level > below and (level == top or self.is_saturated(level)))


def search_c_max(first: int, limit: int, measure: Callable[[int], float]) -> Capacity:
    """Search for C_max.

    Args:
        first: First concurrency of the search.
        limit: Highest concurrency that may be measured.
        measure: Runs a probe at a concurrency; returns its rate in samples/s, or raises `ProbeFailed`.

    Raises:
        ProbeFailed: If samples fail at the first concurrency, or after the doubling.
    """
    levels = _Levels()
    level, reason = first, ""
    while True:
        try:
            levels.add(level, measure(level))
        except ProbeFailed:
            if level == first:
                raise
            reason = f"samples failed at concurrency {level:,}"
            break
        lower = [levels.mean(measured) for measured in levels.rates if measured < level]
        if lower and levels.mean(level) < MIN_GROWTH * max(lower):
            break
        if level == limit:
            reason = f"the limit of {limit:,} was reached"
            break
        level = min(2 * level, limit)
    if reason:
        top = max(levels.rates)
        note = f"the rate still grew at concurrency {top:,}: {reason}"
        return Capacity(top, False, note, levels.rates)
    highest = sorted(levels.rates)[-3:]
    for decisive in highest:
        while len(levels.rates[decisive]) < REPEATS:
            levels.add(decisive, measure(decisive))
    below, saturated = levels.bracket()
    while saturated > MAX_RATIO * max(below, first):
        middle = round(math.sqrt(max(below, first) * saturated))
        if middle in levels.rates:
            break
        for _ in range(REPEATS):
            levels.add(middle, measure(middle))
        below, saturated = levels.bracket()
    note = f"the rate at {saturated:,} is within {1 - SATURATED_SHARE:.0%} of the highest rate, less the spread "
    note += f"{levels.spread:.1%} of repeated probes"
    return Capacity(saturated, True, note, levels.rates)
