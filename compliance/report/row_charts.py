"""Charts of results in rows, such as the rates of all submitters with one accelerator."""

from collections.abc import Sequence
from dataclasses import dataclass

from compliance.report.chart import Axis, Chart, Line, Point, Series
from compliance.report.chart_drawing import plain_number


@dataclass(frozen=True)
class RowPoint:
    """One result: its row, its value, and an optional name."""

    row: str
    value: float
    name: str = ""


def row_chart(title: str, points: Sequence[RowPoint], unit: str, limit: float | None = None) -> Chart:
    """Return values in rows, some with names. Values at or above the limit are a series of their own."""
    rows = sorted({point.row for point in points})
    results: list[Point] = []
    named: list[Point] = []
    above: list[Point] = []
    for point in points:
        group = above if limit is not None and point.value >= limit else named if point.name else results
        text = f"{point.name}{': ' if point.name else ''}{plain_number(point.value)}, {point.row}"
        group.append(Point(point.value, rows.index(point.row), text, point.name))
    series = [
        Series("result", results, color="c1"),
        Series("named result", named, color="c2", shape="D"),
        Series("at or above the limit", above, color="bad", shape="x"),
    ]
    lines = [] if limit is None else [Line(limit, "limit", "x")]
    return Chart(f"{title}, {unit}", Axis(unit, low=0), Axis("row", rows=rows), series, lines, "wide")
