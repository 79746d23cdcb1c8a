"""A chart as data: axes, series and lines. Pages build charts from their records; chart_svg.py draws them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MAX_NAMED_POINTS = 40  # points of a series in the text alternative

# marks: single points. joined: points with a line. steps: a distribution. area: filled between low and y.
Style = Literal["marks", "joined", "steps", "area"]
Size = Literal["normal", "small", "wide"]
Scale = Literal["auto", "linear", "logarithmic"]


@dataclass(frozen=True)
class Axis:
    """One axis of a chart."""

    name: str
    unit: str = ""
    low: float | None = None  # None: from the points; an axis with a low end is linear, unless `scale` is set
    high: float | None = None
    scale: Scale = "auto"  # auto: logarithmic if the values span a wide range
    rows: Sequence[str] = ()  # names of rows; the value of a point is the place of its row

    @property
    def label(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit and self.unit != self.name else self.name


@dataclass(frozen=True)
class Point:
    """One point of a series."""

    x: float
    y: float
    text: str = ""  # values with their units, shown when the reader points at it
    label: str = ""  # text beside the mark, if a free place exists
    low: float | None = None  # ends of the interval of the point; for an area, the lower edge
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points with one appearance and one entry in the legend."""

    name: str
    points: Sequence[Point]
    style: Style = "marks"
    color: str = ""  # name of a color in palette.py; empty: by the place of the series
    shape: str = "o"  # marker of matplotlib
    is_hollow: bool = False
    is_faint: bool = False  # small marks in the background
    has_entry: bool = True  # series has an entry in the legend


@dataclass(frozen=True)
class Line:
    """A limit or another reference value, or the range from `value` to `end`."""

    value: float
    name: str
    axis: Literal["x", "y"] = "y"
    end: float | None = None


@dataclass(frozen=True)
class Chart:
    """A chart."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    lines: Sequence[Line] = ()
    size: Size = "normal"

    @property
    def legend(self) -> list[tuple[int, Series]]:
        """Place and series of each entry of the legend; empty if one entry would repeat the title."""
        entries = [(place, series) for place, series in enumerate(self.series) if series.points and series.has_entry]
        return entries if len(entries) > 1 else []

    @property
    def words(self) -> str:
        """Title, lines and points, for readers who cannot see the chart."""
        parts = [self.title, *(line.name for line in self.lines), *map(_words, self.series)]
        return ". ".join(filter(None, parts))


def _words(series: Series) -> str:
    points = [point for point in series.points if point.text]
    if len(points) > MAX_NAMED_POINTS:
        highest = max(points, key=lambda point: point.y)
        points = [points[0], highest, points[-1]]
    texts = "; ".join(dict.fromkeys(point.text for point in points))
    return f"{series.name}: {texts}" if series.name and texts else texts
