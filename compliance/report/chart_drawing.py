"""Charts drawn by matplotlib: series, lines, and the ranges of the axes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from compliance.report.chart import Axis, Chart, Line, Point, Series
from compliance.report.chart_labels import DrawnChart, is_inside, place_labels
from compliance.report.palette import LIGHT, SERIES
from runs.wording import four_digits, printable

WIDE_SPAN = 30  # ratio of values above which an axis is logarithmic
REACH = {"linear": 3, "logarithmic": 10}  # a line outside of the values by this factor is named at the edge, not drawn
NARROW = 0.6  # a horizontal axis does not begin at 0 if its lowest value is above this share of the highest
MAX_NAME = 28  # maximum length of a name of a row, in characters
_INCHES = {"normal": (4.6, 2.9), "small": (3.4, 2.1), "wide": (5.6, 3.2)}
_ROW_INCHES = 0.34
_EDGE = 0.03  # share of an axis that a mark needs at its beginning
_DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1, 1.5), (5, 2, 1, 2), (3, 1))  # lengths of dashes and gaps
mpl.rcParams.update(mpl.rc_params_from_file(Path(__file__).with_name("charts.mplstyle"), use_default_template=False))


def figure_of(chart: Chart) -> tuple[Figure, DrawnChart]:
    """Draw a chart without its title and legend, which are text of the page."""
    width, height = _INCHES[chart.size]
    if chart.y.rows:
        height = 0.9 + _ROW_INCHES * max(2, len(chart.y.rows))
    figure = Figure(figsize=(width, height))
    figure.patch.set_visible(False)
    drawn = draw_chart(figure.add_subplot(), chart)
    place_labels(figure, [drawn])
    return figure, drawn


def draw_chart(axes: Any, chart: Chart) -> DrawnChart:
    """Draw series and lines, and set the ranges of the axes."""
    values = {name: list(_values(chart, name)) for name in ("x", "y")}
    for name in ("x", "y"):
        _set_range(axes, name, getattr(chart, name), values[name], [line for line in chart.lines if line.axis == name])
    for place, series in enumerate(chart.series):
        if series.points:
            _draw_series(axes, chart, series, place)
    for line in chart.lines:
        _draw_line(axes, line)
    axes.set(xlabel=chart.x.label, ylabel="" if chart.y.rows else chart.y.label)
    if not any(values.values()):
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", color=LIGHT["muted"])
    return DrawnChart(chart, axes)


def color_of(series: Series, place: int) -> str:
    """Return the name of the color of a series."""
    return series.color or SERIES[place % len(SERIES)]


# Series -------------------------------------------------------------------------------------------------------------


def _draw_series(axes: Any, chart: Chart, series: Series, place: int) -> None:
    color, group = LIGHT[color_of(series, place)], f"series-{place}"
    x, y = [point.x for point in series.points], [point.y for point in series.points]
    if series.style == "area":
        lower = [point.low or 0.0 for point in series.points]
        (area,) = axes.fill([*x, *reversed(x)], [*y, *reversed(lower)], color=color, alpha=0.75, linewidth=0)
        area.set_gid(group)
        return
    if series.style == "steps":
        (steps,) = axes.step(x, y, where="post", color=color, linewidth=1.5, linestyle=_line_style(place))
        steps.set_gid(group)
        return
    if series.style == "joined" and len(x) > 1:
        (joined,) = axes.plot(x, y, color=color, linewidth=1.4, linestyle=_line_style(place))
        joined.set_gid(group)
    for point in series.points:
        _draw_interval(axes, point, color, group, is_horizontal=bool(chart.y.rows))
    (marks,) = axes.plot(
        x, y, series.shape, color=color, linewidth=0, markersize=3.2 if series.is_faint else 6.5,
        alpha=0.4 if series.is_faint else None,
        markerfacecolor=LIGHT["card"] if series.is_hollow else color,
    )  # fmt: skip
    marks.set_gid(group)


def dashes(place: int) -> tuple[float, ...]:
    """Return the lengths of the dashes of a line, and of the gaps. Series with equal colors have different dashes."""
    return _DASHES[(place + place // len(SERIES)) % len(_DASHES)]


def _line_style(place: int) -> Any:
    return (0, dashes(place)) if dashes(place) else "-"


def _draw_interval(axes: Any, point: Point, color: str, group: str, *, is_horizontal: bool) -> None:
    if point.low is None and point.high is None:
        return
    middle = point.x if is_horizontal else point.y
    ends = [middle if point.low is None else point.low, middle if point.high is None else point.high]
    if is_horizontal:
        (interval,) = axes.plot(ends, [point.y, point.y], color=color, linewidth=3.5, alpha=0.9)
    else:
        (interval,) = axes.plot([point.x, point.x], ends, color=color, linewidth=1, marker="_", markersize=6)
    interval.set_gid(group)


def _draw_line(axes: Any, line: Line) -> None:
    draw, band = (axes.axvline, axes.axvspan) if line.axis == "x" else (axes.axhline, axes.axhspan)
    if line.end is not None:
        artist = band(line.value, line.end, color=LIGHT["c1"], alpha=0.1, linewidth=0)
    elif is_inside(axes, line):
        artist = draw(line.value, color=LIGHT["ink"], linestyle=(0, (5, 3)), linewidth=1.2)
    else:
        return
    artist.set_gid("line")


# Ranges -------------------------------------------------------------------------------------------------------------


def _values(chart: Chart, name: str) -> Iterator[float]:
    """Yield the coordinates of all points on an axis, with the ends of intervals."""
    has_interval = name == ("x" if chart.y.rows else "y")
    for series in chart.series:
        for point in series.points:
            yield getattr(point, name)
            if has_interval and series.style != "area":
                yield from (end for end in (point.low, point.high) if end is not None)


def _set_range(axes: Any, name: str, axis: Axis, values: list[float], lines: Sequence[Line]) -> None:
    ticks = axes.xaxis if name == "x" else axes.yaxis
    set_limits, set_scale = (axes.set_xlim, axes.set_xscale) if name == "x" else (axes.set_ylim, axes.set_yscale)
    if axis.rows:
        set_limits(len(axis.rows) - 0.4, -0.6)
        ticks.set_major_locator(FixedLocator(range(len(axis.rows))))
        ticks.set_major_formatter(FuncFormatter(lambda value, _: _row_name(axis.rows[round(value)])))
        return
    low, high, scale = _range(axis, values, lines, is_vertical=name == "y")
    if scale == "logarithmic":
        set_scale("log")
        decades = np.log10(high / low)
        ticks.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 3 else (1,), numticks=12))
        ticks.set_minor_formatter(NullFormatter())
    else:
        axes.locator_params(axis=name, nbins=6)
    set_limits(low, high)
    ticks.set_major_formatter(FuncFormatter(lambda value, _: four_digits(value)))


def _range(axis: Axis, values: list[float], lines: Sequence[Line], *, is_vertical: bool) -> tuple[float, float, str]:
    """Return the ends of an axis and its scale. Lines far outside of the values do not count.

    A linear axis begins at 0, except a horizontal axis of a narrow range.
    """
    if not values:
        return 0.0, 1.0, "linear"
    lowest, highest = min(values), max(values)
    is_wide = axis.low is None and lowest > 0 and highest / lowest > WIDE_SPAN
    scale = ("logarithmic" if is_wide else "linear") if axis.scale == "auto" else axis.scale
    for line in lines:
        if line.end is None and lowest / REACH[scale] <= line.value <= highest * REACH[scale]:
            lowest, highest = min(lowest, line.value), max(highest, line.value)
    if scale == "logarithmic":
        lowest = max(lowest, 1e-6)
        return axis.low or lowest / 1.3, axis.high or max(highest, lowest * 1.1) * 1.3, scale
    span = highest - lowest or abs(highest) or 1.0
    begins_at_0 = lowest >= 0 and (is_vertical or lowest <= NARROW * highest)
    low = (0.0 if begins_at_0 else lowest - 0.12 * span) if axis.low is None else axis.low
    if axis.low is None and not is_vertical and begins_at_0 and lowest < _EDGE * highest:
        low = -_EDGE * highest  # so that marks at 0 are whole
    high = highest + 0.12 * ((highest - low) or 1.0) if axis.high is None else axis.high
    return low, high, scale


def _row_name(text: str) -> str:
    half = MAX_NAME // 2
    return printable(text if len(text) <= MAX_NAME else f"{text[:half]}…{text[1 - half :]}")
