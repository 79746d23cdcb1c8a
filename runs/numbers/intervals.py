"""Confidence intervals of changes between systems, for `ab` and `compare`.

`anytime_interval` holds at every look: a measurement may stop as soon as the interval is narrow enough. It inverts the
scale-invariant mixture of t-tests, with a normal prior on the effect in standard deviations: the Bayes factor of Gönen
et al., "The Bayesian Two-Sample t Test", The American Statistician 59 (2005). Its process over looks is a test
martingale: Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance",
Sequential Analysis 44 (2025). By Ville's inequality, it exceeds 1/error at some look with at most this probability.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

ERROR = 0.05  # probability that a comparison contains a wrong statement
_PRIOR = 4.0  # variance of the effect in the prior, in squared standard deviations of one value
_TRIMMED = 10  # one value is trimmed on each side for each full ten values
MIN_VALUES = 5  # minimum number of values for an interval
_MIN_BATCHES = 12  # batches are merged only while at least this number remains
_MAX_CORRELATION = 0.1  # correlation of neighboring batches above which they are merged
_MAX_STATED = 0.9  # highest correlation that widens an interval


@dataclass(frozen=True)
class Interval:
    """A mean with its interval. Values are logarithms of ratios, or other numbers that add up."""

    mean: float
    low: float  # -inf if the values are too few
    high: float
    values: int  # number of values
    trimmed: tuple[int, ...] = ()  # places of the values that were trimmed

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def error_of_each(quantities: int) -> float:
    """Return the error of each statement, so that all statements together have the error `ERROR` (Bonferroni)."""
    return ERROR / max(1, quantities)


def student_quantile(error: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t, for one look that is fixed in advance.

    Args:
        freedom: degrees of freedom, at least 1.
    """
    from scipy import stats  # importing it takes 0.5 s, and most commands do not need it

    return float(stats.t.ppf(1 - error / 2, freedom))


@dataclass(frozen=True)
class Variance:
    """An estimated variance, with its degrees of freedom."""

    value: float
    freedom: float


def pooled_variance(groups: Sequence[Sequence[float]]) -> Variance:
    """Return the variance of values whose groups have different means.

    Args:
        groups: groups of at least two values.
    """
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum(float(np.var(group)) * len(group) for group in groups)
    return Variance(squares / freedom, freedom)


def weighted_sum(weights: Sequence[float], variances: Sequence[Variance]) -> Variance:
    """Return the weighted sum of independent variances, with its degrees of freedom (Welch and Satterthwaite)."""
    parts = [weight * variance.value for weight, variance in zip(weights, variances, strict=True)]
    total = sum(parts)
    uncertainty = sum(part**2 / variance.freedom for part, variance in zip(parts, variances, strict=True))
    freedom = total**2 / uncertainty if uncertainty else sum(variance.freedom for variance in variances)
    return Variance(total, freedom)


def anytime_interval(values: Values, error: float, *, trims: bool = True) -> Interval:
    """Return an interval of the mean that holds at all looks together, with probability 1 - `error`.

    Args:
        trims: Trim a tenth of the values on each side, so that a burst of foreign load in few values does not decide.
    """
    mean, deviation, count, trimmed = _trimmed(values, len(values) // _TRIMMED if trims else 0)
    half = math.inf if len(values) < MIN_VALUES else anytime_quantile(error, count) * deviation
    return Interval(mean, mean - half, mean + half, len(values), trimmed)


def interval_of_series(values: Values, error: float, *, trims: bool = True) -> Interval:
    """Return an anytime interval of the mean of successive values, which may be correlated.

    Foreign load and queues make neighbors alike. Neighbors are merged until they are nearly independent. The rest of
    the correlation widens the interval by √((1 + r) ÷ (1 - r)), with r corrected for its bias in short series.
    """
    merged = merge_correlated(values)
    interval = anytime_interval(merged, error, trims=trims)
    correlation = min(max(unbiased_correlation(merged), 0.0), _MAX_STATED)
    half = interval.half_width * math.sqrt((1 + correlation) / (1 - correlation))
    trimmed = interval.trimmed if len(merged) == len(values) else ()
    return Interval(interval.mean, interval.mean - half, interval.mean + half, len(values), trimmed)


def anytime_difference(
    first: Sequence[float], second: Sequence[float], groups: Sequence[Sequence[float]], error: float
) -> Interval:
    """Return an anytime interval of the difference of two means, second minus first.

    Args:
        groups: all values with equal noise, in groups of equal mean; they contain `first` and `second`.
    """
    repeated = [group for group in groups if len(group) > 1]
    difference = float(np.mean(second) - np.mean(first)) if first and second else 0.0
    half, values = math.inf, len(first) + len(second)
    if repeated and first and second:
        noise, count = pooled_variance(repeated), len(first) * len(second) / values
        quantile = anytime_quantile(error, count, noise.freedom)
        half = quantile * math.sqrt(noise.value / count) if math.isfinite(quantile) else math.inf
    return Interval(difference, difference - half, difference + half, values)


def anytime_quantile(error: float, count: float, freedom: float | None = None) -> float:
    """Return the bound of |t| that no look exceeds with probability 1 - `error`.

    Args:
        count: variance of one value over the variance of the mean, which is the number of independent values.
        freedom: degrees of freedom of the variance. Default: count - 1.
    """
    freedom = count - 1 if freedom is None else freedom
    spread = 1 + count * _PRIOR
    ratio = (math.sqrt(spread) / error) ** (2 / (freedom + 1))
    if ratio >= spread:
        return math.inf
    return math.sqrt(freedom * (ratio - 1) / (1 - ratio / spread))


def _trimmed(values: Values, cut: int) -> tuple[float, float, int, tuple[int, ...]]:
    """Return the trimmed mean, its standard error from the Winsorised variance, the number of values, and the places of
    the trimmed values (Tukey and McLaughlin).

    Args:
        cut: Number of values that are trimmed on each side.
    """
    count = len(values)
    if count < 2:
        return float(values.mean()) if count else 0.0, math.inf, count, ()
    order = np.argsort(values, kind="stable")
    kept = values[order][cut : count - cut]
    bounded = np.clip(values, kept[0], kept[-1])
    deviation = float(bounded.std(ddof=1)) / ((1 - 2 * cut / count) * math.sqrt(count))
    places = [int(place) for place in (*order[:cut], *order[count - cut :])]
    return float(kept.mean()), deviation, len(kept), tuple(sorted(places))


def merge_correlated(values: Values) -> Values:
    """Return means of neighboring values, of as many as needed until they are nearly independent."""
    while len(values) >= 2 * _MIN_BATCHES and unbiased_correlation(values) > _MAX_CORRELATION:
        values = values[len(values) % 2 :].reshape(-1, 2).mean(axis=1)
    return values


def unbiased_correlation(values: Values) -> float:
    """Return the correlation of neighboring values, corrected for its bias in short series (Marriott and Pope)."""
    if len(values) < MIN_VALUES:
        return 0.0
    biased = lag_one(values)
    return biased + (1 + 3 * biased) / len(values)


def lag_one(values: Values) -> float:
    """Return the correlation of neighboring values; 0 for equal values."""
    centered = values - np.median(values)
    squares = float((centered**2).sum())
    return float((centered[1:] * centered[:-1]).sum()) / squares if squares else 0.0


def needed_factor(interval: Interval, precision: float) -> float:
    """Return by which factor a measurement must grow until the half-width of its interval is `precision`."""
    return (interval.half_width / math.log1p(precision)) ** 2
