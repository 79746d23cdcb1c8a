"""Each kind of page in a real browser: no errors, no requests, nothing that overlaps, and no barriers for readers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from runs.bench.bench_record import read_bench_record
from runs.record.layout import BENCH_FILE
from runs.wording import milliseconds
from tests.support.documents.axe import axe_script
from tests.support.documents.browser import Browser, needs_browser, started_browser
from tests.support.documents.example_pages import WRITERS

pytestmark = [pytest.mark.browser, needs_browser]

WIDTHS = (1400, 400)
KINDS = list(WRITERS)
every_kind = pytest.mark.parametrize("kind", KINDS)
every_width = pytest.mark.parametrize("width", WIDTHS)
light_and_dark = pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started_browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: write(tmp_path_factory.mktemp(kind)) for kind, write in WRITERS.items()}


@light_and_dark
@every_width
@every_kind
def test_a_page_opens_without_errors_and_requests(
    browser: Browser, pages: dict[str, Path], kind: str, width: int, is_dark: bool
) -> None:
    with browser.open(pages[kind], width, is_dark=is_dark) as page:
        assert page.problems == []
        assert page.requests == []


@every_width
@every_kind
@pytest.mark.parametrize("has_scripts", [True, False], ids=["scripts", "no-scripts"])
def test_texts_neither_overlap_nor_leave_the_window(
    browser: Browser, pages: dict[str, Path], kind: str, width: int, has_scripts: bool
) -> None:
    with browser.open(pages[kind], width, has_scripts=has_scripts) as page:
        layout = page.layout()
    assert layout["scrollWidth"] <= width
    assert layout["overlaps"] == []
    assert layout["outside"] == []
    assert layout["small"] == []


@every_width
@every_kind
def test_each_page_begins_with_its_headline_and_a_chart(
    browser: Browser, pages: dict[str, Path], kind: str, width: int
) -> None:
    """The first screen is 900 pixels high."""
    with browser.open(pages[kind], width) as page:
        charts = page.layout()["charts"]
        headline: dict[str, Any] = page.evaluate(
            "(() => { const answer = document.querySelector('.answer'), box = answer.getBoundingClientRect();"
            " return {words: answer.innerText.trim(), bottom: box.bottom}; })()"
        )
    assert headline["words"]
    assert headline["bottom"] < 450
    assert charts[0]["box"]["top"] < 800
    assert all(chart["shapes"] > 5 and chart["labels"] for chart in charts)


@light_and_dark
@every_kind
def test_charts_stand_out_from_their_background(
    browser: Browser, pages: dict[str, Path], tmp_path: Path, kind: str, is_dark: bool
) -> None:
    with browser.open(pages[kind], 1400, is_dark=is_dark) as page:
        charts = page.layout()["charts"]
        page.screenshot(tmp_path / "page.png")
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("L"), dtype=np.int16)
    assert (np.median(pixels) < 60) == is_dark
    for chart in charts:
        left, top, right, bottom = (int(chart["box"][side]) for side in ("left", "top", "right", "bottom"))
        inside = pixels[top:bottom, left:right]
        background = inside[1, 1]  # the corner is outside of the axes
        assert (background < 60) == is_dark, chart["labels"]
        assert (np.abs(inside - background) > 40).mean() > 0.005, chart["labels"]


@light_and_dark
@every_kind
def test_axe_finds_no_barriers(browser: Browser, pages: dict[str, Path], kind: str, is_dark: bool) -> None:
    with browser.open(pages[kind], 1400, is_dark=is_dark) as page:
        page.evaluate(axe_script())
        report = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    violations = [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]}" for rule in report["violations"] for node in rule["nodes"]
    ]
    assert violations == []


# For some marks, and the middle of each curve: the place in the window, and the texts of the points there.
_POINTS = """
(number => {
  const figure = document.querySelectorAll("figure.chart")[number], svg = figure.querySelector(".plot > svg");
  svg.scrollIntoView({block: "center", behavior: "instant"});
  const data = JSON.parse(figure.querySelector("script").textContent), matrix = svg.getScreenCTM();
  const all = data.series.flatMap(series => series.points);
  return data.series.flatMap(series => {
    const first = series.curve ? Math.floor(series.points.length / 2) : 0;
    return series.points.slice(first, first + (series.curve ? 1 : 6)).map(([x, y]) => {
      const {x: left, y: top} = new DOMPoint(x, y).matrixTransform(matrix);
      const isHere = point => Math.abs(point[0] - x) < 1 && (series.curve || Math.abs(point[1] - y) < 1);
      return {left, top, texts: all.filter(isHere).map(point => point[2])};
    });
  });
})(%d)
"""
_TIP = (
    "[...document.querySelectorAll('figure.chart .tip')].filter(tip => !tip.hidden).map(tip => tip.innerText).join(' ')"
)


@every_kind
def test_the_pointer_shows_the_values_of_a_point(browser: Browser, pages: dict[str, Path], kind: str) -> None:
    pointed = 0
    with browser.open(pages[kind], 1400) as page:
        for number in range(page.evaluate("document.querySelectorAll('figure.chart').length")):
            for point in page.evaluate(_POINTS % number):
                page.move_mouse(point["left"], point["top"])
                shown = page.evaluate(_TIP)
                assert any(text in shown for text in point["texts"]), (point, shown)
                pointed += 1
    assert pointed


def test_the_points_of_a_bench_have_the_values_of_its_record(browser: Browser, pages: dict[str, Path]) -> None:
    record = read_bench_record(pages["bench"].parent / BENCH_FILE)
    with browser.open(pages["bench"], 1400) as page:
        texts = page.evaluate(
            "[...document.querySelectorAll('figure.chart > script')].map(script => script.textContent).join()"
        )
    values_ms = [run.ttft.p99 for run in record.runs if run.ttft is not None]
    assert values_ms
    assert [value for value in values_ms if f"{milliseconds(value)} ms" not in texts] == []
