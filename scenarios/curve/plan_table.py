"""The plan of a curve as text."""

from collections.abc import Iterator, Mapping

from compliance.mlperf_endpoints.round_tables import day_text
from runs.wording import counted
from scenarios.curve.curve_config import CurveConfig, checks_by
from scenarios.curve.curve_plan import CurvePlan, PlannedPoint

EVENT_BYTES = 40_000  # events of one sample, until a run has measured them: 46 MB per 1,200 samples
TITLES = ("point", "concurrency", "region", "passes", "samples", "time", "accuracy", "events", "GPU h", "state")
UNKNOWN = "unknown"


def plan_rows(
    curve: CurveConfig, plan: CurvePlan, states: Mapping[str, str], event_bytes: float = EVENT_BYTES
) -> Iterator[tuple[str, ...]]:
    """Yield a row per point.

    Args:
        states: State of each point.
        event_bytes: Bytes of the events of one sample.
    """
    for point in plan.points:
        samples = point.passes and point.passes * curve.rows
        hours = gpu_hours(curve, [point])
        yield (
            point.name,
            f"{point.concurrency:,}",
            point.role,
            f"{point.passes}" if point.passes else UNKNOWN,
            f"{samples:,}" if samples else UNKNOWN,
            UNKNOWN if point.seconds is None else minutes(point.seconds),
            "yes" if point.accuracy else "no",
            f"{samples * event_bytes / 1e9:.1f} GB" if samples else UNKNOWN,
            UNKNOWN if hours is None else f"{hours:.1f}",
            states[point.name],
        )


def minutes(seconds: float) -> str:
    """Return a duration in minutes, below two minutes in seconds."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def gpu_hours(curve: CurveConfig, points: "list[PlannedPoint]") -> float | None:
    """Return the accelerator hours of points; None if a time is unknown."""
    seconds = [point.seconds for point in points]
    if any(duration_s is None for duration_s in seconds):
        return None
    return sum(duration_s or 0.0 for duration_s in seconds) / 3600 * curve.options.accelerators


def plan_lines(curve: CurveConfig, plan: CurvePlan | None, *, probed: str) -> Iterator[str]:
    """Yield the sentences below the table.

    Args:
        probed: Where the rates are from; empty if they are unknown.
    """
    if plan is not None:
        seconds, hours = [point.seconds for point in plan.points], gpu_hours(curve, list(plan.points))
        total = f"{counted(len(plan.points), 'point')}"
        if hours is None:
            yield f"{total}; times are unknown: measure them with --probe"
        else:
            accelerators = counted(curve.options.accelerators, "accelerator")
            duration_h = sum(filter(None, seconds)) / 3600
            yield f"{total}, {duration_h:.1f} h, {hours:.1f} GPU hours ({accelerators}); {probed}"
        regions = ", ".join(f"{name} {first:,} to {last:,}" for name, (first, last) in plan.bounds.items())
        yield f"regions: {regions}"
        if plan.c_min_override is not None:
            yield f"c_min_override: {plan.c_min_override}, because more than one point is in the region ultra low"
    yield from cohort_lines(curve)


def cohort_lines(curve: CurveConfig) -> Iterator[str]:
    """Yield what the seed set and the cohort demand, and the age of the tables."""
    cohorts, exceptions = curve.seed_set.cohorts, curve.tables.exceptions
    target = next((cohort for cohort in cohorts if str(cohort) == curve.options.target_cohort), None)
    last = f"last cohort {cohorts[-1]}" if cohorts else "cohorts unknown"
    due = f"; checks must pass by {day_text(checks_by(target, exceptions))}" if target else ""
    yield f"set {curve.seed_set.name}: {last}; target {curve.options.target_cohort}{due}"
    yield from curve.tables.lines()
