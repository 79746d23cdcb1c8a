"""The places of texts in a chart: names of lines, and labels of marks that overlap nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.transforms import IdentityTransform

from compliance.report.chart import Chart, Line, Point
from compliance.report.palette import LIGHT
from runs.wording import printable

MAX_NAME = 48  # maximum length of a text, in characters
# Offsets of a label from its mark, in points, with its alignment.
_AROUND = (
    (6, 5, "left", "bottom"), (-6, 5, "right", "bottom"), (6, -5, "left", "top"), (-6, -5, "right", "top"),
    (0, 7, "center", "bottom"), (0, -7, "center", "top"), (8, 0, "left", "center"), (-8, 0, "right", "center"),
)  # fmt: skip
_SIZE = 8.5
_MARK = 4.5  # half of the side of the square that a mark needs
_STEP = 5.0  # distance of the squares along a line
_MARGIN = 6  # space above the axes that the name of a line may use
_ARROWS = {"x": (" ←", " →"), "y": (" ↓", " ↑")}


class Box(NamedTuple):
    """A rectangle in points, with y upwards."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, box: "Box") -> bool:
        return self.left < box.right and box.left < self.right and self.bottom < box.top and box.bottom < self.top

    def contains(self, box: "Box") -> bool:
        return (
            self.left <= box.left and box.right <= self.right
            and self.bottom <= box.bottom and box.top <= self.top
        )  # fmt: skip


@dataclass
class DrawnChart:
    """The axes of a chart, and its points on the page."""

    chart: Chart
    axes: Any

    def box(self) -> Box:
        return Box(*self.axes.bbox.extents)

    def places(self, points: Sequence[Point]) -> Any:
        """Return the places of points as an array of x and y."""
        return self.axes.transData.transform([(point.x, point.y) for point in points])


def is_inside(axes: Any, line: Line) -> bool:
    """Return whether the value of a line is within the range of its axis."""
    low, high = axes.get_xlim() if line.axis == "x" else axes.get_ylim()
    return bool(min(low, high) <= line.value <= max(low, high))


def place_labels(figure: Figure, drawn_charts: Sequence[DrawnChart]) -> None:
    """Fix the layout, and write the names of lines and the labels of marks.

    A label overlaps nothing; labels without a free place are left out.
    """
    figure.draw_without_rendering()  # computes the layout
    figure.set_layout_engine("none")
    for drawn in drawn_charts:
        taken = list(_obstacles(drawn))
        for line in (line for line in drawn.chart.lines if line.name):
            taken.append(_write_line_name(drawn, line, taken))
        for place, point in _labeled(drawn.chart):
            box = _write_label(drawn, place, point, taken)
            taken += [box] if box is not None else []


def _labeled(chart: Chart) -> list[tuple[int, Point]]:
    return [(place, point) for place, series in enumerate(chart.series) for point in series.points if point.label]


def _obstacles(drawn: DrawnChart) -> Iterator[Box]:
    """Yield squares around marks and along lines, and the lines of limits."""
    frame = drawn.box()
    for line in (line for line in drawn.chart.lines if line.end is None and is_inside(drawn.axes, line)):
        x, y = drawn.axes.transData.transform(
            (line.value, drawn.axes.get_ylim()[0]) if line.axis == "x" else (drawn.axes.get_xlim()[0], line.value)
        )
        if line.axis == "x":
            yield Box(x - 1, frame.bottom, x + 1, frame.top)
        else:
            yield Box(frame.left, y - 1, frame.right, y + 1)
    for series in drawn.chart.series:
        if series.style == "area" or series.is_faint or not series.points:
            continue
        places = drawn.places(series.points)
        if series.style != "steps":
            yield from (Box(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in places)
        if series.style != "marks":
            for (x, y), (next_x, next_y) in pairwise(places):
                count = 1 + int(max(abs(next_x - x), abs(next_y - y)) // _STEP)
                for share in np.linspace(0, 1, count, endpoint=False):
                    across, up = x + share * (next_x - x), y + share * (next_y - y)
                    yield Box(across - 1, up - 1, across + 1, up + 1)


def _write_label(drawn: DrawnChart, place: int, point: Point, taken: Sequence[Box]) -> Box | None:
    text = drawn.axes.annotate(
        printable(point.label, MAX_NAME), (point.x, point.y), (0, 0), textcoords="offset points", fontsize=_SIZE,
        color=LIGHT["muted"], clip_on=True,
    )  # fmt: skip
    text.set_in_layout(False)
    text.set_gid(f"series-{place}")
    extent = text.get_window_extent()
    ((x, y),) = drawn.places([point])
    for across, up, horizontal, vertical in _AROUND:
        box = _aligned(x + across, y + up, extent.width, extent.height, horizontal, vertical)
        if drawn.box().contains(box) and not any(map(box.overlaps, taken)):
            text.set(position=(across, up), ha=horizontal, va=vertical)
            return box
    text.remove()
    return None


def _write_line_name(drawn: DrawnChart, line: Line, taken: Sequence[Box]) -> Box:
    """Write the name of a line beside it where it overlaps least. An arrow points to a line outside of the axes."""
    axes, frame = drawn.axes, drawn.box()
    low, high = axes.get_xlim() if line.axis == "x" else axes.get_ylim()
    arrow = _ARROWS[line.axis][0 if line.value < low else 1] if not is_inside(axes, line) and line.end is None else ""
    text = axes.text(
        0, 0, printable(line.name, MAX_NAME) + arrow, transform=IdentityTransform(), fontsize=_SIZE, color=LIGHT["ink"]
    )
    text.set_in_layout(False)
    text.set_gid(f"line-name-{line.axis}")
    extent = text.get_window_extent()
    if line.axis == "x":
        at, _ = axes.transData.transform((min(max(line.value, low), high), axes.get_ylim()[0]))
        places = [
            (at + across, frame.bottom + share * (frame.top - frame.bottom), horizontal, vertical)
            for share, vertical in ((0.99, "top"), (0.01, "bottom"), (0.75, "top"), (0.5, "top"), (0.25, "top"))
            for across, horizontal in ((-4, "right"), (4, "left"))
        ]
    else:
        _, at = axes.transData.transform((axes.get_xlim()[0], min(max(line.value, low), high)))
        places = [
            (frame.left + share * (frame.right - frame.left), at + up, horizontal, vertical)
            for share, horizontal in ((0.01, "left"), (0.99, "right"), (0.5, "center"))
            for up, vertical in ((2, "bottom"), (-3, "top"))
        ]
    boxes = [_aligned(x, y, extent.width, extent.height, *alignment) for x, y, *alignment in places]
    frame = frame._replace(top=frame.top + _MARGIN)

    def cost(number: int) -> int:
        return sum(map(boxes[number].overlaps, taken)) + (0 if frame.contains(boxes[number]) else len(taken) + 1)

    best = min(range(len(boxes)), key=cost)
    x, y, horizontal, vertical = places[best]
    text.set(position=(x, y), ha=horizontal, va=vertical)
    return boxes[best]


def _aligned(x: float, y: float, width: float, height: float, horizontal: str, vertical: str) -> Box:
    """Return the rectangle of a text with its alignment."""
    left = x - {"left": 0.0, "center": 0.5, "right": 1.0}[horizontal] * width
    bottom = y - {"bottom": 0.0, "center": 0.5, "top": 1.0}[vertical] * height
    return Box(left, bottom, left + width, bottom + height)
