"""Charts as SVG: in a page, with the variables of its style sheet, or in a file of its own.

Each series is a group with its number. The points and their texts are JSON for charts.js.
"""

import io
import json
import re
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from compliance.report.chart import Chart, Series
from compliance.report.chart_drawing import color_of, draw_chart, figure_of
from compliance.report.chart_labels import DrawnChart, place_labels
from compliance.report.palette import DARK, LIGHT, variables
from runs.wording import printable

SPACING = 2.0  # minimum distance of two points with texts on a curve, in points
MAX_NAME = 40  # maximum length of a name in a legend, in characters
MAX_LINE = 105  # maximum length of a line above the charts of a file, in characters
_WIDTH = 8.6  # of a file, in inches
_HEIGHT = 2.6  # of one row of charts in a file, in inches
_LINE_HEIGHT = 0.19  # of a line of text above the charts, in inches

_MARKERS = {"steps": "", "area": "s"}  # markers in a legend, where they differ from the shape of the series

_SVG, _HREF = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_TEXT = (
    "text { font-family: 'DejaVu Sans', Verdana, sans-serif; } "
    ".moving text { paint-order: stroke; stroke: var(--paper); stroke-width: 2.5px; }"
)
_NAMES = {color: name for name, color in LIGHT.items()}
_COLOR = re.compile(r"#[0-9a-f]{6}\b")
_FAMILY = re.compile(r"font-family: [^;]+;? ?")
_LONG_NUMBER = re.compile(r"(\.\d\d)\d+")
_NO_ROTATION = re.compile(r"rotate\(-?0 [^)]*\)")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_TICK = re.compile(r"([xy])tick_\d+")
_MOVING = re.compile(r"(series|line-name|line)(?:-(\w+))?")


def svg_of(chart: Chart, key: str) -> tuple[Markup, Markup]:
    """Return the SVG element of a chart, and its points as JSON.

    Args:
        key: Beginning of all IDs in the SVG element; unique on the page.
    """
    figure, drawn = figure_of(chart)
    root = _cleaned(figure, key)
    for name in ("width", "height", "version"):
        del root.attrib[name]
    root.attrib |= {"role": "img", "aria-label": printable(chart.words)}
    return Markup(ElementTree.tostring(root, encoding="unicode")), Markup(_json(_points(drawn)))


def svg_file(title: str, lines: Sequence[str], charts: Sequence[Chart], columns: int = 1) -> bytes:
    """Return charts as one file with a title, for light and dark backgrounds."""
    rows = -(-len(charts) // columns)
    heading = [part for text in (title, *lines) for part in wrap(printable(text), MAX_LINE)]
    figure = Figure(figsize=(_WIDTH, _LINE_HEIGHT * (1 + len(heading)) + _HEIGHT * max(1, rows)))
    figure.patch.set_facecolor(LIGHT["paper"])
    figure.suptitle("\n".join(heading), x=0.02, ha="left", fontsize=11)
    drawn_charts = []
    for place, chart in enumerate(charts, start=1):
        drawn_charts.append(draw_chart(figure.add_subplot(rows, columns, place), chart))
        drawn_charts[-1].axes.set_title(printable(chart.title), pad=18 if chart.legend else 6)
        _write_legend(drawn_charts[-1])
    place_labels(figure, drawn_charts)
    root = _cleaned(figure, "file")
    words, style = ElementTree.Element("title"), ElementTree.Element("style")
    words.text = ". ".join(map(printable, [title, *(chart.words for chart in charts)]))
    dark = f"@media (prefers-color-scheme: dark) {{ svg {{ {variables(DARK)} }} }}"
    style.text = f"svg {{ {variables(LIGHT)} }} {dark} {_TEXT}"
    root[:0] = [words, style]
    root.set("xmlns", "http://www.w3.org/2000/svg")
    return ElementTree.tostring(root, encoding="unicode").encode()


def _write_legend(drawn: DrawnChart) -> None:
    handles = [
        Line2D(
            [], [], color=LIGHT[color_of(series, place)], label=printable(series.name, MAX_NAME),
            linestyle="-" if series.style in ("joined", "steps") else "",
            marker=_MARKERS.get(series.style, series.shape),
            markerfacecolor=LIGHT["paper"] if series.is_hollow else None, markersize=5,
        )
        for place, series in drawn.chart.legend
    ]  # fmt: skip
    if handles:
        drawn.axes.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(-0.02, 0.99), ncols=len(handles), borderaxespad=0.1,
            columnspacing=1.2, handletextpad=0.4,
        )  # fmt: skip


# Points -------------------------------------------------------------------------------------------------------------


def _points(drawn: DrawnChart) -> dict[str, Any]:
    """Return the box of the axes, their ranges, and the points that have texts. Coordinates are those of the SVG."""
    height = drawn.axes.figure.bbox.height
    box = drawn.box()
    return {
        "box": [round(value, 1) for value in (box.left, height - box.top, box.right, height - box.bottom)],
        "x": [*drawn.axes.get_xlim(), drawn.axes.get_xscale() == "log"],
        "y": [*drawn.axes.get_ylim(), drawn.axes.get_yscale() == "log"],
        "rows": bool(drawn.chart.y.rows),
        "series": [_series_points(drawn, series, height) for series in drawn.chart.series],
    }


def _series_points(drawn: DrawnChart, series: Series, height: float) -> dict[str, Any]:
    points = [point for point in series.points if point.text]
    is_curve = series.style in ("steps", "area")
    places = [(round(float(x), 1), round(float(height - y), 1)) for x, y in drawn.places(points)] if points else []
    shown = _spaced(places) if is_curve else range(len(points))
    return {
        "name": printable(series.name, MAX_NAME),
        "curve": is_curve,
        "points": [[*places[place], printable(points[place].text)] for place in shown],
    }


def _spaced(places: Sequence[tuple[float, float]]) -> Iterator[int]:
    """Yield the numbers of places that are at least SPACING apart, and the last one."""
    last = (-np.inf, -np.inf)
    for number, (x, y) in enumerate(places):
        if max(abs(x - last[0]), abs(y - last[1])) >= SPACING or number == len(places) - 1:
            last = (x, y)
            yield number


def _json(content: dict[str, Any]) -> str:
    """Return JSON that cannot end a script element."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


# SVG ----------------------------------------------------------------------------------------------------------------


def _cleaned(figure: Figure, key: str) -> ElementTree.Element:
    """Return the SVG element of a figure with variables as colors, and without metadata and unused IDs."""
    file = io.BytesIO()
    canvas: Any = FigureCanvasSVG(figure)  # `savefig` would draw the figure twice
    canvas.print_svg(file, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(file.getvalue())
    for child in [*root]:
        if child.tag == f"{_SVG}metadata" or child.find(f"{_SVG}style") is not None:
            root.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
    referenced = {element.get(_HREF, "")[1:] for element in root.iter()}
    referenced |= {name for element in root.iter() for name in _REFERENCE.findall(element.get("clip-path", ""))}
    names = {name: f"{key}-{number}" for number, name in enumerate(sorted(filter(None, referenced)))}
    for element in [*root.iter()]:
        _classify(element)
    for element in root.iter():
        _shorten(element, names)
    return root


def _classify(element: ElementTree.Element) -> None:
    """Name the groups that charts.js changes. The clip of a group stays in place if its content moves."""
    identifier = element.get("id", "")
    if tick := _TICK.fullmatch(identifier):
        element.set("class", f"tick {tick[1]}")
    elif moving := _MOVING.fullmatch(identifier):
        element.set("class", f"moving {moving[1]}")
        if moving[2]:
            element.set("data-series" if moving[1] == "series" else "data-axis", moving[2])
        clips = [clip for child in element.iter() if (clip := child.attrib.pop("clip-path", ""))]
        if clips:
            element.set("clip-path", clips[0])


def _shorten(element: ElementTree.Element, names: dict[str, str]) -> None:
    """Shorten numbers, replace colors by variables, and make IDs unique on a page."""
    name = names.get(element.attrib.pop("id", ""))
    if name is not None:
        element.set("id", name)
    if link := element.attrib.pop(_HREF, ""):
        element.set("href", f"#{names[link[1:]]}")
    if clip := element.get("clip-path"):
        element.set("clip-path", f"url(#{names[_REFERENCE.findall(clip)[0]]})")
    if style := element.get("style"):
        style = _COLOR.sub(lambda match: f"var(--{_NAMES[match[0]]})" if match[0] in _NAMES else match[0], style)
        element.set("style", _LONG_NUMBER.sub(r"\1", _FAMILY.sub("", style)))
    for attribute in ("d", "x", "y", "width", "height", "transform"):
        if value := element.get(attribute):
            element.set(attribute, " ".join(_LONG_NUMBER.sub(r"\1", value).split()))
    if transform := element.attrib.pop("transform", ""):
        transform = _NO_ROTATION.sub("", transform)
        element.attrib |= {"transform": transform} if transform else {}
    element.tail = None
    if element.tag not in ("text", "tspan", "style"):
        element.text = None
