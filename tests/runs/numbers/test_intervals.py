"""Intervals of changes: their errors at every look."""

import numpy as np
import pytest

from runs.numbers.intervals import (
    anytime_difference,
    anytime_interval,
    anytime_quantile,
    error_of_each,
    interval_of_series,
    lag_one,
    needed_factor,
    pooled_variance,
    student_quantile,
    weighted_sum,
)


def test_the_error_holds_at_every_look() -> None:
    """The exact error for independent normal values is at most 5%; 300 sessions allow for chance."""
    values = np.random.default_rng(5).normal(size=(300, 100))
    wrong = sum(any(anytime_interval(row[:count], 0.05).excludes_zero for count in range(5, 100, 5)) for row in values)
    assert wrong <= 25


def test_correlated_values_have_wider_intervals() -> None:
    generator = np.random.default_rng(2)
    shocks = generator.normal(size=200)
    course = np.empty(200)
    value = 0.0
    for place, shock in enumerate(shocks):
        value = 0.7 * value + shock
        course[place] = value
    assert lag_one(course) > 0.5
    assert interval_of_series(course, 0.05).half_width > 1.5 * anytime_interval(course, 0.05).half_width


def test_a_burst_in_one_tenth_of_the_values_is_trimmed() -> None:
    values = np.random.default_rng(3).normal(0, 0.01, 40)
    values[7:10] += 5
    interval = anytime_interval(values, 0.05)
    assert {7, 8, 9} <= set(interval.trimmed)
    assert abs(interval.mean) < 0.01


def test_few_values_have_no_interval() -> None:
    assert anytime_interval(np.array([1.0, 1.1]), 0.05).low == -np.inf


def test_the_bound_is_above_that_of_one_look() -> None:
    assert 2.0 < anytime_quantile(0.05, 100) < 4.5


def test_all_statements_share_the_error() -> None:
    assert error_of_each(10) == pytest.approx(0.005)


def test_a_quarter_of_the_width_needs_sixteen_times_the_values() -> None:
    interval = anytime_interval(np.random.default_rng(4).normal(0, 0.1, 50), 0.05)
    assert needed_factor(interval, np.expm1(interval.half_width / 4)) == pytest.approx(16)


def test_quantiles_of_student_are_those_of_tables() -> None:
    assert student_quantile(0.05, 1) == pytest.approx(12.706, abs=1e-3)
    assert student_quantile(0.05, 10) == pytest.approx(2.228, abs=1e-3)


def test_groups_with_different_means_have_a_common_variance() -> None:
    variance = pooled_variance([[1.0, 3.0], [10.0, 10.0, 13.0]])
    assert (variance.value, variance.freedom) == (pytest.approx((2 + 6) / 3), 3)


def test_a_sum_of_unequal_variances_has_the_freedom_of_the_largest() -> None:
    large, small = pooled_variance([[0.0, 100.0]]), pooled_variance([[0.0, 0.1]] * 8)
    total = weighted_sum([0.5, 0.5], [large, small])
    assert total.value == pytest.approx(2500, rel=1e-3)
    assert total.freedom == pytest.approx(1, abs=1e-3)
    equal = weighted_sum([1.0, 1.0], [large, large])
    assert equal.freedom == pytest.approx(2)


def test_a_difference_needs_repeated_values() -> None:
    assert anytime_difference([1.0], [2.0], [[1.0], [2.0]], 0.05).low == -np.inf
    assert anytime_difference([], [2.0], [[2.0, 2.1]], 0.05).high == np.inf


def test_the_error_of_a_difference_holds_at_every_look() -> None:
    """The exact error for independent normal values is at most 5%; 300 sessions allow for chance."""
    generator, wrong = np.random.default_rng(6), 0
    for _ in range(300):
        first, second, third = generator.normal(size=(3, 8)).tolist()
        wrong += any(
            anytime_difference(
                first[:count], second[:count], [first[:count], second[:count], third], 0.05
            ).excludes_zero
            for count in range(1, 9)
        )
    assert wrong <= 25
