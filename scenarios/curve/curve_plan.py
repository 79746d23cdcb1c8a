"""The points of a curve: their concurrency, region, passes and order, from C_min, C_max and the measured rates."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from compliance.mlperf_endpoints.curve_rules import DEDICATED, ELECTED, REGIONS, region_bounds
from runs.wording import counted

MARGIN = 1.1  # factor on the required duration, because the rate of a point varies
MIN_WINDOW_PASSES = 4  # passes of the shortest steady-state window
FIRST_CROP = 1  # passes that the detector drops at least
WINDOW, WHOLE_RUN = "window", "whole-run"
OFFLINE = "Offline"


class NoCurve(ValueError):
    """The requested points do not cover all regions."""


@dataclass(frozen=True)
class PlannedPoint:
    """One point of the plan."""

    name: str  # r1, r2, …, in the order of the runs
    concurrency: int
    regions: tuple[str, ...]  # regions whose result it is; empty for a point of free choice
    offline: str  # dedicated, elected, or empty
    accuracy: bool
    required_s: float  # minimum duration of the issue times
    passes: int | None  # passes over the dataset; None: the rate is unknown
    seconds: float | None  # expected duration of the measured phase

    @property
    def role(self) -> str:
        """The regions in words."""
        parts = [*self.regions, *([OFFLINE] if self.offline else [])]
        return ", ".join(parts) or "choice"


def usable_c_max(c_min: int, c_max: int, ultra_low: int, count: int) -> int:
    """Return the lowest C_max from a value on with which all regions and all points have a concurrency.

    Args:
        count: Number of points of the curve.
    """
    level = c_max
    while not _has_room(c_min, level, ultra_low, count):
        level += 1
    return level


def _has_room(c_min: int, c_max: int, ultra_low: int, count: int) -> bool:
    bounds = region_bounds(c_min, c_max, ultra_low)
    if any(first > last for first, last in bounds.values()):
        return False
    try:
        return len(curve_levels(c_min, c_max, ultra_low, count)) == count
    except NoCurve:
        return False


def curve_levels(c_min: int, c_max: int, ultra_low: int, count: int) -> list[int]:
    """Return the concurrencies of a curve in ascending order: one per region, and points of free choice between them.

    A point of free choice halves the widest gap, on a logarithmic scale. It is above the region ultra low.

    Raises:
        NoCurve: If there are too few integers.
    """
    bounds = region_bounds(c_min, c_max, ultra_low)
    levels = {c_min, c_max, *(_middle(*bounds[name]) for name in REGIONS[1:3])}
    while len(levels) < count:
        gaps = [pair for pair in pairwise(sorted(levels)) if max(pair[0], ultra_low) + 1 < pair[1]]
        if not gaps:
            raise NoCurve(f"no {counted(count, 'point')} between {c_min:,} and {c_max:,}")
        first, last = max(gaps, key=lambda pair: pair[1] / max(pair[0], ultra_low))
        levels.add(min(max(_middle(max(first, ultra_low), last), first + 1), last - 1))
    return sorted(levels)


def _middle(first: int, last: int) -> int:
    """Return the middle on a logarithmic scale."""
    return round(math.sqrt(first * last))


def covered_regions(levels: Sequence[int], bounds: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return the concurrency whose accuracy result counts for each region: the lowest, in high the highest.

    Raises:
        NoCurve: If a region has no point of its own.
    """
    owners: dict[str, int] = {}
    for name in (REGIONS[3], REGIONS[0], REGIONS[1], REGIONS[2]):
        first, last = bounds[name]
        inside = [level for level in levels if first <= level <= last and level not in owners.values()]
        if not inside:
            raise NoCurve(f"no concurrency in region {name} ({first:,} to {last:,})")
        owners[name] = max(inside) if name == REGIONS[3] else min(inside)
    return owners


def passes_for(
    required_s: float,
    rate: float,
    rows: int,
    basis: str,
    crop: int = FIRST_CROP,
    window_passes: int = MIN_WINDOW_PASSES,
) -> int:
    """Return the number of passes over the dataset.

    Args:
        required_s: Minimum duration.
        rate: Rate of the server in samples/s.
        basis: `window`: the steady-state window has the duration; `whole-run`: the run has it.
        crop: Passes before the steady-state window.
        window_passes: Minimum number of passes in the window.
    """
    lasting = math.ceil(MARGIN * required_s * rate / rows)
    return crop + max(window_passes, lasting) + 1 if basis == WINDOW else max(1, lasting)


def rate_between(concurrency: int, rates: Mapping[int, float]) -> float | None:
    """Return the rate at a concurrency, interpolated between measured ones on a logarithmic scale.

    Above the highest measured concurrency, the rate is that of the highest. Below the lowest, the rate is proportional.
    """
    if not rates:
        return None
    levels = sorted(rates)
    if concurrency >= levels[-1]:
        return rates[levels[-1]]
    if concurrency <= levels[0]:
        return rates[levels[0]] * concurrency / levels[0]
    above = next(level for level in levels if level >= concurrency)
    below = max(level for level in levels if level <= concurrency)
    if above == below:
        return rates[above]
    share = math.log(concurrency / below) / math.log(above / below)
    return float(rates[below] * (rates[above] / rates[below]) ** share)


@dataclass(frozen=True)
class CurvePlan:
    """All points of a curve, in the order of the runs."""

    c_min: int
    c_max: int
    bounds: Mapping[str, tuple[int, int]]
    points: tuple[PlannedPoint, ...]
    c_min_override: int | None  # concurrency to declare, if more than one point is in the region ultra low

    def region_of(self, concurrency: int) -> str:
        """Return the region of a concurrency."""
        named = list(self.bounds.items())
        regions = named[1:] if concurrency > self.c_min else named[:1]
        return next((name for name, (first, last) in regions if first <= concurrency <= last), "margin")


def plan_curve(
    levels: Iterable[int],
    rates: Mapping[int, float],
    *,
    ultra_low: int,
    rows: int,
    durations_s: tuple[float, float],
    basis: str,
    offline: str,
    crops: Mapping[int, int] | None = None,
) -> CurvePlan:
    """Return the points of a curve.

    Args:
        levels: Concurrencies of the curve.
        rates: Measured rates in samples/s by concurrency.
        ultra_low: Highest concurrency of the region ultra low.
        rows: Rows of the dataset.
        durations_s: Minimum durations, up to the region ultra low and above.
        basis: `window` or `whole-run`.
        offline: `elected`: the point at C_max counts as Offline too; `dedicated`: an additional run.
        crops: Passes before the steady-state window of finished points, by concurrency.

    Raises:
        NoCurve: If a region has no point.
    """
    ascending = sorted(set(levels))
    c_min, c_max = ascending[0], ascending[-1]
    if c_min > ultra_low or c_max <= ultra_low:
        raise NoCurve(f"{c_min:,} to {c_max:,}: the curve needs a point up to {ultra_low} and a point above")
    override = c_min if ascending[1] <= ultra_low else None
    bounds = region_bounds(c_min, c_max, override or ultra_low)
    owners = covered_regions(ascending, bounds)

    def planned(number: int, level: int, offline_kind: str) -> PlannedPoint:
        is_dedicated = offline_kind == DEDICATED
        required_s = durations_s[0 if level <= ultra_low else 1]
        rate, passes = rate_between(level, rates), None
        if rate is not None:
            nearest = min(crops or (), key=lambda measured: abs(math.log(measured / level)), default=None)
            crop = FIRST_CROP if nearest is None else (crops or {})[nearest]
            passes = passes_for(required_s, rate, rows, WHOLE_RUN if is_dedicated else basis, crop)
        regions = () if is_dedicated else tuple(name for name in REGIONS if owners[name] == level)
        seconds = None if rate is None or passes is None else passes * rows / rate
        has_accuracy = bool(regions or offline_kind)
        return PlannedPoint(f"r{number}", level, regions, offline_kind, has_accuracy, required_s, passes, seconds)

    runs = [(c_max, ELECTED if offline == ELECTED else "")]
    runs += [(max(rows, c_max), DEDICATED)] if offline == DEDICATED else []
    runs += [(level, "") for level in reversed(ascending[:-1])]
    points = tuple(planned(number, level, kind) for number, (level, kind) in enumerate(runs, 1))
    return CurvePlan(c_min, c_max, bounds, points, override)
