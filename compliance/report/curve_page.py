"""The page of an MLPerf Endpoints curve, made from its plan and the records of its runs. It needs no other files.

The layout is curve_page.html.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compliance.report.chart import Axis, Chart, Point, Series
from compliance.report.page import render_page
from runs.wording import four_digits, moment


@dataclass(frozen=True)
class CurvePageRow:
    """A point in the table."""

    name: str
    concurrency: int
    role: str
    state: str
    samples: int | None
    rate: float | None  # samples/s
    tokens_per_second: float | None
    tokens_per_user: float | None
    steady: str
    accelerator_h: float | None


@dataclass(frozen=True)
class CurvePage:
    """The content of the page."""

    title: str
    made: str
    state: str  # how many points are done
    rows: Sequence[CurvePageRow]
    regions: Mapping[str, tuple[int, int]]
    notes: Sequence[str]
    charts: Sequence[Chart]


def curve_page(
    title: str,
    rows: Sequence[CurvePageRow],
    regions: Mapping[str, tuple[int, int]],
    probes: Mapping[int, float],
    notes: Sequence[str],
) -> str:
    """Return the page as HTML.

    Args:
        probes: Rates of the probes in samples/s by concurrency.
    """
    finished = [row for row in rows if row.rate is not None]
    hours = sum(row.accelerator_h or 0.0 for row in rows)
    state = f"{len(finished)} of {len(rows)} points done, {hours:.1f} accelerator hours in measured phases"
    charts = list(_charts(finished, probes))
    return render_page(CurvePage(title, moment(time.time_ns()), state, rows, regions, notes, charts), "curve_page.html")


def _charts(finished: Sequence[CurvePageRow], probes: Mapping[int, float]) -> Iterator[Chart]:
    """Yield the rates of the finished points against the concurrency, and the rates of the probes."""
    for name, field in (
        ("output tokens/s", "tokens_per_second"),
        ("output tokens/s per user", "tokens_per_user"),
        ("samples/s", "rate"),
    ):
        points = [
            Point(row.concurrency, rate, f"{row.name}, {_at(row.concurrency, rate, name)}", row.name)
            for row in sorted(finished, key=lambda row: row.concurrency)
            if (rate := getattr(row, field)) is not None
        ]
        series = [Series("point", points, "joined")]
        if field == "rate":
            marks = [Point(level, rate, f"probe, {_at(level, rate, name)}") for level, rate in sorted(probes.items())]
            series.append(Series("probe", marks, is_hollow=True, shape="s"))
        if any(part.points for part in series):
            yield Chart(name, Axis("concurrency"), Axis(name), series)


def _at(concurrency: int, rate: float, unit: str) -> str:
    return f"concurrency {concurrency:,}: {four_digits(rate)} {unit}"


def page_row(
    point: Mapping[str, Any], role: str, state: str, record: Mapping[str, Any] | None, accelerators: int
) -> CurvePageRow:
    """Return the row of a point.

    Args:
        record: Record of its finished run.
    """
    run = record or {}
    steady, duration_s = run.get("steady_state"), run.get("duration_s")
    return CurvePageRow(
        point["name"],
        point["concurrency"],
        role,
        state,
        run.get("samples"),
        run.get("rate"),
        run.get("tokens_per_second"),
        run.get("tokens_per_user"),
        f"{steady['status']}, {steady['verdict']}" if steady else "",
        None if duration_s is None else duration_s / 3600 * accelerators,
    )
