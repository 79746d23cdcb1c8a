"""The interval of the change of a percentile between two systems, from the shares of slow queries in batches or blocks.

A batch gives no percentile of its own, because few of its queries are slow. It gives the share of the queries of each
system above a level that both systems have in common. If the percentile changed by a factor, the queries of the changed
system divided by this factor are as often above the common percentile as those of the base. The interval contains the
factors for which the interval of the mean difference of the shares contains 0.

All times are relative to the median of both systems in their batch. Otherwise, drift of the machine would put all slow
queries into few batches.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from runs.numbers.intervals import MIN_VALUES, Interval, Values, interval_of_series

_FIRST_STEP, _LAST_STEP = 0.01, 2.0  # distances from the change at which the search for an end begins and stops
_HALVINGS = 6  # of the last step of the search


@dataclass(frozen=True)
class _Side:
    """The logarithms of one system's values, and their batches."""

    logs: Values
    batches: NDArray[np.int64]
    counts: NDArray[np.int64]  # number of values of each batch

    @classmethod
    def of(cls, batches: Sequence[Values]) -> "_Side":
        counts = np.array([len(batch) for batch in batches])
        return cls(np.log(np.concatenate(batches)), np.repeat(np.arange(len(counts)), counts), counts)

    def relative_to(self, levels: Values) -> "_Side":
        """Return the values relative to a level for each batch."""
        return replace(self, logs=self.logs - levels[self.batches])

    def shares(self, is_above: NDArray[np.bool_]) -> Values:
        """Return the share of the values of each batch that are above a level."""
        shares: Values = np.bincount(self.batches[is_above], minlength=len(self.counts)) / self.counts
        return shares


def percentile(values: Values, share: int) -> float:
    """Return a percentile, which is one of the values."""
    place = math.ceil(share / 100 * len(values)) - 1
    return float(np.partition(values, place)[place])


def percentile_interval(base: Sequence[Values], changed: Sequence[Values], share: int, error: float) -> Interval:
    """Return the change of a percentile, as a logarithm, with an interval that holds at every look.

    Args:
        base: Values of the base in each batch or block; each batch has values.
        changed: Values of the changed system in the same batches.
        share: Percentile, such as 99.
    """
    plain = _Side.of(base), _Side.of(changed)
    levels = _common_medians(*plain)
    sides = plain[0].relative_to(levels), plain[1].relative_to(levels)
    change = percentile(sides[1].logs, share) - percentile(sides[0].logs, share)
    if len(base) < MIN_VALUES:
        return Interval(change, -math.inf, math.inf, len(base))
    low, high = (_end(change, sign, lambda factor: _excluded(sides, factor, share, error)) for sign in (-1, 1))
    return Interval(change, low, high, len(base))


def _common_medians(base: _Side, changed: _Side) -> Values:
    """Return the median of the values of both systems in each batch."""
    logs, batches = np.concatenate([base.logs, changed.logs]), np.concatenate([base.batches, changed.batches])
    counts = base.counts + changed.counts
    medians: Values = logs[np.lexsort((logs, batches))][np.cumsum(counts) - counts + counts // 2]
    return medians


def _excluded(sides: tuple[_Side, _Side], factor: float, share: int, error: float) -> int:
    """Return -1 if the change is clearly above a factor, 1 if it is clearly below, otherwise 0."""
    base, changed = sides[0].logs, sides[1].logs - factor
    level = percentile(np.concatenate([base, changed]), share)
    interval = interval_of_series(sides[1].shares(changed > level) - sides[0].shares(base > level), error, trims=False)
    return (interval.high < 0) - (interval.low > 0)


def _end(change: float, sign: int, excluded: Callable[[float], int]) -> float:
    """Return the nearest factor on one side of the change that is excluded; infinite if there is none."""
    inside, step = change, _FIRST_STEP
    while excluded(change + sign * step) != sign:
        inside, step = change + sign * step, 2 * step
        if step > _LAST_STEP:
            return sign * math.inf
    outside = change + sign * step
    for _ in range(_HALVINGS):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if excluded(middle) == sign else (outside, middle)
    return outside
