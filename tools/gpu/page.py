"""The page of results: figures beside their expected values, with the conditions of all figures."""

import time
from dataclasses import dataclass
from pathlib import Path

from compliance.report.chart import Axis, Chart, Point, Series
from compliance.report.page import render_page
from compliance.report.remarks import Remark, grouped_remarks
from runs.wording import counted, moment
from tools.gpu.expected import OFF, expected_figures
from tools.gpu.results import Figure, Results
from tools.gpu.stage import DONE, GPU

TEMPLATE = "measured.html"
MIN_ROWS = 2  # of a chart


@dataclass(frozen=True)
class FigureRow:
    """A row of the table of figures."""

    title: str
    text: str
    compared: str
    is_off: bool  # the value is outside its expected range


@dataclass(frozen=True)
class GpuPage:
    """The content of the page."""

    title: str
    summary: str
    made: str
    rows: list[FigureRow]
    charts: list[Chart]
    system: list[tuple[str, str]]
    unmeasured: list[Remark]


def gpu_page(results: Results) -> str:
    """Return the page as HTML."""
    rows = figure_rows(results)
    gpu = results.system.get(GPU, "an unknown GPU")
    off = [row.title for row in rows if row.is_off]
    summary = f"{counted(len(rows), 'figure')} on {gpu}, vLLM {results.system.get('vLLM', 'unknown')}, random weights."
    summary += f" Outside the expected range: {', '.join(off)}." if off else ""
    chart = _chart(results, gpu)
    page = GpuPage(
        title=f"Measured on {gpu}",
        summary=summary,
        made=moment(time.time_ns()),
        rows=rows,
        charts=[] if chart is None else [chart],
        system=[*results.system.items()],
        unmeasured=grouped_remarks(unmeasured_steps(results)),
    )
    return render_page(page, TEMPLATE, folder=Path(__file__).parent)


def figure_rows(results: Results) -> list[FigureRow]:
    """Return the rows of the table of figures."""
    return [
        FigureRow(_title(name, figure), figure.text, _compared(name, figure), figure.compared.startswith(OFF))
        for name, figure in results.figures.items()
    ]


def _title(name: str, figure: Figure) -> str:
    row = expected_figures().get(name)
    return figure.title or (row.title if row is not None else name)


def _compared(name: str, figure: Figure) -> str:
    """Return what a figure is compared with, and how the expected value follows."""
    row = expected_figures().get(name)
    basis = row.basis if row is not None and figure.compared and not figure.title else ""
    return ": ".join(filter(None, [figure.compared, basis]))


def unmeasured_steps(results: Results) -> list[tuple[str, str]]:
    """Return the steps without a figure, with the reason."""
    return [
        (f"{stage} {step}", outcome)
        for stage, record in results.stages.items()
        for step, outcome in record.steps.items()
        if outcome != DONE
    ]


def _chart(results: Results, gpu: str) -> Chart | None:
    """Return the measured values ÷ the expected values with the expected ranges; None for few values."""
    titles: list[str] = []
    ranges: list[Point] = []
    inside: list[Point] = []
    outside: list[Point] = []
    for name, figure in results.figures.items():
        row = expected_figures().get(name)
        expected = row.for_gpu(gpu) if row is not None and figure.compared and not figure.title else None
        if row is None or isinstance(expected, str) or isinstance(figure.value, str) or not expected:
            continue
        place, ratio = len(titles), figure.value / expected
        titles.append(row.title)
        ranges.append(Point(1.0, place, f"{row.title}: {figure.compared}", low=1 / row.factor, high=row.factor))
        group = outside if row.is_off(figure.value, expected) else inside
        group.append(Point(ratio, place, f"{row.title}: {figure.text}, {ratio:.2f} × the expected value"))
    if len(titles) < MIN_ROWS:
        return None
    series = [
        Series("expected range", ranges, color="muted", shape="|"),
        Series("inside", inside, color="good"),
        Series("outside", outside, color="bad", shape="x"),
    ]
    x = Axis("measured ÷ expected value", scale="logarithmic")
    return Chart("Measured ÷ expected value", x, Axis("figure", rows=titles), series, size="wide")
