"""The points of a curve: concurrencies, regions, passes and order."""

import pytest

from compliance.mlperf_endpoints.curve_rules import region_bounds
from scenarios.curve.curve_plan import (
    CurvePlan,
    NoCurve,
    covered_regions,
    curve_levels,
    passes_for,
    plan_curve,
    rate_between,
    usable_c_max,
)

ULTRA_LOW, ROWS, DURATIONS_S = 32, 13368, (600.0, 1200.0)


def planned(
    levels: list[int], rates: dict[int, float], basis: str = "window", offline: str = "elected", rows: int = ROWS
) -> CurvePlan:
    return plan_curve(
        levels, rates, ultra_low=ULTRA_LOW, rows=rows, durations_s=DURATIONS_S, basis=basis, offline=offline
    )


@pytest.mark.parametrize(
    ("c_min", "c_max", "bounds"),
    [
        (32, 1024, [(33, 42), (43, 131), (132, 1024)]), (16, 1024, [(17, 26), (27, 117), (118, 1024)]),
        (1, 256, [(2, 7), (8, 41), (42, 256)]),
    ],
)  # fmt: skip
def test_regions_are_those_of_the_rules(c_min: int, c_max: int, bounds: list[tuple[int, int]]) -> None:
    assert list(region_bounds(c_min, c_max, ULTRA_LOW).values())[1:] == bounds


def test_c_max_is_raised_until_all_regions_and_points_have_room() -> None:
    assert usable_c_max(32, 34, ULTRA_LOW, 4) > 34
    first, last = region_bounds(32, usable_c_max(32, 34, ULTRA_LOW, 7), ULTRA_LOW)["high"]
    assert first <= last
    assert usable_c_max(32, 1024, ULTRA_LOW, 8) == 1024


@pytest.mark.parametrize(
    ("c_min", "c_max", "count"), [(32, 1024, 8), (16, 1024, 7), (1, 256, 8), (32, 60, 7), (8, 40, 7)]
)
def test_every_region_has_a_point_and_choice_points_are_above_ultra_low(c_min: int, c_max: int, count: int) -> None:
    c_max = usable_c_max(c_min, c_max, ULTRA_LOW, count)
    levels = curve_levels(c_min, c_max, ULTRA_LOW, count)
    assert len(levels) == count
    assert (levels[0], levels[-1]) == (c_min, c_max)
    bounds = region_bounds(c_min, c_max, ULTRA_LOW)
    required = {c_min, c_max, *(round((low * high) ** 0.5) for low, high in list(bounds.values())[1:3])}
    assert all(level > ULTRA_LOW for level in set(levels) - required)
    covered_regions(levels, bounds | {"ultra low": (1, c_min)})


def test_a_region_without_a_point_is_named() -> None:
    with pytest.raises(NoCurve, match="region low"):
        planned([32, 200, 500, 1024], {})


@pytest.mark.parametrize(
    ("required_s", "rate", "basis", "passes"),
    [(600, 28.0, "window", 6), (1200, 135.0, "window", 16), (1200, 135.0, "whole-run", 14), (600, 1.0, "whole-run", 1)],
)  # fmt: skip
def test_the_passes_last_as_long_as_required(required_s: float, rate: float, basis: str, passes: int) -> None:
    assert passes_for(required_s, rate, ROWS, basis) == passes


def test_a_rate_between_probes_is_interpolated() -> None:
    rates = {32: 30.0, 128: 120.0}
    assert rate_between(64, rates) == pytest.approx(60)
    assert rate_between(16, rates) == pytest.approx(15)
    assert rate_between(999, rates) == pytest.approx(120)
    assert rate_between(64, {}) is None


def test_the_first_point_is_c_max_with_accuracy_and_the_others_descend() -> None:
    levels = curve_levels(32, 1024, ULTRA_LOW, 8)
    plan = planned(levels, {32: 28.0, 1024: 135.0})
    assert [point.concurrency for point in plan.points] == sorted(levels, reverse=True)
    first = plan.points[0]
    assert (first.name, first.role, first.accuracy) == ("r1", "high, Offline", True)
    with_accuracy = [point for point in plan.points if point.accuracy]
    assert [point.regions for point in with_accuracy] == [("high",), ("medium",), ("low",), ("ultra low",)]
    assert plan.c_min_override is None


def test_a_dedicated_offline_run_follows_the_point_of_c_max() -> None:
    plan = planned(curve_levels(32, 1024, ULTRA_LOW, 7), {1024: 135.0}, offline="dedicated")
    assert [(point.offline, point.accuracy) for point in plan.points[:3]] == [
        ("", True), ("dedicated", True), ("", False)
    ]  # fmt: skip
    assert plan.points[1].concurrency == ROWS
    assert len(plan.points) == 8


def test_two_points_of_ultra_low_declare_the_lowest() -> None:
    plan = planned(curve_levels(16, 1024, ULTRA_LOW, 8), {})
    assert plan.c_min_override == 16
    assert plan.bounds["ultra low"] == (1, 16)
    assert all(point.passes is None and point.seconds is None for point in plan.points)
