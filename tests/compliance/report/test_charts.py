"""Charts as SVG: their marks, labels, lines, colors, texts and points."""

import json
import re
from dataclasses import replace
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest

from compliance.report.chart import Axis, Chart, Line, Point, Series
from compliance.report.chart_drawing import figure_of
from compliance.report.chart_labels import Box
from compliance.report.chart_svg import svg_file, svg_of
from compliance.report.palette import DARK, LIGHT, SERIES

NS = "{http://www.w3.org/2000/svg}"
STEADY = Series("steady", [Point(1, 10, "1/s: 10 ms", "25%"), Point(2, 12, "2/s: 12 ms", "50%"),
                           Point(3, 20, "3/s: 20 ms", "75%")], "joined")  # fmt: skip
SATURATED = Series("saturated", [Point(3.1, 90, "4/s: 90 ms", "100%")], shape="s", is_hollow=True)
CHART = Chart(
    "p99 TTFT", Axis("output tokens/s"), Axis("p99 TTFT", "ms"), [STEADY, SATURATED], [Line(60, "limit 60 ms")]
)


def drawn(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(svg_of(chart, "key")[0])


def points_of(chart: Chart) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(svg_of(chart, "key")[1])
    return content


def groups(root: ElementTree.Element, place: int) -> list[ElementTree.Element]:
    return [element for element in root.iter("g") if element.get("data-series") == str(place)]


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter() if element.tag.removeprefix(NS) == "text"]


def lines(group: ElementTree.Element) -> list[ElementTree.Element]:
    """Return the lines of a group, without the shapes of marks."""
    shapes = {shape for definitions in group.iter("defs") for shape in definitions.iter("path")}
    return [path for path in group.iter("path") if path not in shapes]


def test_a_line_joins_only_the_points_of_a_joined_series() -> None:
    root = drawn(CHART)
    assert [path.get("d", "").count("L") for group in groups(root, 0) for path in lines(group)] == [2]
    assert [path for group in groups(root, 1) for path in lines(group)] == []


def test_each_point_has_one_mark() -> None:
    root = drawn(CHART)
    assert [len([use for group in groups(root, place) for use in group.iter("use")]) for place in (0, 1)] == [3, 1]


def test_labels_overlap_neither_marks_nor_other_labels() -> None:
    crowd = [Point(10 + 0.02 * place, 10 + 0.02 * place, label=f"label {place}") for place in range(30)]
    spread = [Point(2.0 * place, 2.0 * place, label=f"{place}/s") for place in range(5)]
    figure, chart = figure_of(replace(CHART, series=[Series("crowd", crowd), Series("spread", spread)]))
    boxes = [Box(*text.get_window_extent().extents) for text in chart.axes.texts]
    labels = [text.get_text() for text in chart.axes.texts]
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert {f"{place}/s" for place in range(5)} <= set(labels)
    assert len(labels) < 36, "labels without a free place are left out"
    places = [*chart.places(crowd), *chart.places(spread)]
    assert not [box for box in boxes for x, y in places if box.left < x < box.right and box.bottom < y < box.top]
    assert all(figure.bbox.width >= box.right for box in boxes)


def test_a_limit_is_drawn_with_its_name() -> None:
    root = drawn(CHART)
    assert "limit 60 ms" in texts(root)
    assert len([element for element in root.iter("g") if element.get("class") == "moving line"]) == 1


def test_a_limit_far_above_the_values_is_named_and_not_drawn() -> None:
    root = drawn(replace(CHART, lines=[Line(60_000, "limit 60,000 ms")]))
    assert "limit 60,000 ms ↑" in texts(root)
    assert not [element for element in root.iter("g") if element.get("class") == "moving line"]
    assert points_of(replace(CHART, lines=[Line(60_000, "limit")]))["y"][1] < 120


def test_an_axis_is_logarithmic_only_over_a_wide_range() -> None:
    wide = replace(CHART, series=[Series("", [Point(1, 1), Point(2, 100)])], lines=[])
    assert (points_of(CHART)["y"][2], points_of(wide)["y"][2]) == (False, True)
    assert points_of(CHART)["y"][0] == 0


def test_the_points_carry_their_texts_and_places() -> None:
    content = points_of(CHART)
    assert [series["name"] for series in content["series"]] == ["steady", "saturated"]
    assert [text for *_, text in content["series"][0]["points"]] == [point.text for point in STEADY.points]
    left, top, right, bottom = content["box"]
    uses = [use for group in groups(drawn(CHART), 0) for use in group.iter("use")]
    for (x, y, _), use in zip(content["series"][0]["points"], uses, strict=True):
        assert left < x < right
        assert top < y < bottom
        assert (float(use.get("x", 0)), float(use.get("y", 0))) == pytest.approx((x, y), abs=0.1)


def test_the_points_of_a_curve_are_thinned_for_the_pointer() -> None:
    curve = Series("", [Point(place, place, f"{place} ms") for place in range(1000)], "steps")
    (series,) = points_of(replace(CHART, series=[curve]))["series"]
    assert series["curve"]
    assert len(series["points"]) < 160
    assert [series["points"][place][2] for place in (0, -1)] == ["0 ms", "999 ms"]


def test_names_cannot_leave_their_place_in_the_page() -> None:
    evil = "</script><b>$x$\x1b"
    svg, points = svg_of(
        replace(CHART, title=evil, series=[replace(STEADY, name=evil, points=[Point(1, 2, evil, evil)])]), "k"
    )
    assert "</script>" not in svg + points
    assert "<b>" not in svg + points
    assert r"$x$\x1b" in "".join(texts(ElementTree.fromstring(svg)))
    assert json.loads(points)["series"][0]["points"][0][2] == r"</script><b>$x$\x1b"


def test_the_picture_in_a_page_has_the_variables_of_the_page_as_colors() -> None:
    svg, _ = svg_of(CHART, "key")
    assert not re.findall("#[0-9a-f]{6}", svg)
    names = set(re.findall(r"var\(--(\w+)\)", svg))
    assert names <= set(LIGHT)
    assert "<style" not in svg
    assert "<metadata" not in svg


def test_ids_of_two_charts_of_a_page_differ() -> None:
    ids = [set(re.findall(r'\bid="([^"]+)"', svg_of(CHART, key)[0])) for key in ("a", "b")]
    assert ids[0]
    assert not ids[0] & ids[1]
    linked = re.findall(r'(?:href="|url\()#([^")]+)', svg_of(CHART, "a")[0])
    assert set(linked) == ids[0]


def test_a_chart_is_reproducible() -> None:
    assert svg_of(CHART, "key") == svg_of(CHART, "key")
    assert svg_file("title", [], [CHART]) == svg_file("title", [], [CHART])


def test_the_words_of_a_chart_name_lines_and_points() -> None:
    assert CHART.words == ("p99 TTFT. limit 60 ms. steady: 1/s: 10 ms; 2/s: 12 ms; 3/s: 20 ms. saturated: 4/s: 90 ms")


def test_a_chart_without_points_says_so() -> None:
    assert "no values" in texts(drawn(replace(CHART, series=[Series("steady", [])], lines=[])))


def test_a_file_has_titles_legends_and_both_palettes() -> None:
    root = ElementTree.fromstring(svg_file("A <title>", ["second line"], [CHART, replace(CHART, title="p99 TPOT")], 2))
    assert root.tag == f"{NS}svg"
    shown = texts(root)
    assert {"A <title>", "second line", "p99 TTFT", "p99 TPOT", "steady", "saturated"} <= set(shown)
    style = "".join(element.text or "" for element in root.iter(f"{NS}style"))
    assert LIGHT["c1"] in style
    assert f"@media (prefers-color-scheme: dark) {{ svg {{ --ink: {DARK['ink']};" in style


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_colors_are_distinct_from_their_background(palette: dict[str, str]) -> None:
    assert all(contrast(palette[name], palette["card"]) >= 3 for name in SERIES)
    assert all(contrast(palette[name], palette["card"]) >= 4.5 for name in ("ink", "muted", "good", "bad", "link"))
    assert len(set(palette.values())) == len(palette), "a color has one name"
