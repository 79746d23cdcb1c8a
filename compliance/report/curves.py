"""Curves over runs at different loads: for a bench, a comparison, a tuning, and MLPerf Endpoints runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from compliance.report.pictures import BAD, GOOD, MUTED, ONE, TWO, WIDE_SPAN, Picture, picture_of, plain_number
from runs.wording import milliseconds, printable

COLORS = (ONE, TWO, "#8250df", "#1a7f37", "#9a6700")
MAX_NAME = 24  # maximum length of a name in a legend, in characters


@dataclass(frozen=True)
class Mark:
    """One run on a curve."""

    x: float  # load, such as tokens/s
    y: float  # latency or speed
    label: str = ""
    bound: float | None = None  # end of the whisker that starts at y
    is_hollow: bool = False
    is_joined: bool = True  # the line of the series passes through this mark
    has_ring: bool = False
    shape: str = "o"  # marker of matplotlib
    color: str | None = None  # instead of the color of the series


@dataclass(frozen=True)
class SystemCurve:
    """The runs of one system, in order of load."""

    marks: Sequence[Mark]
    name: str = ""  # text in the legend
    vertical: float | None = None  # load at which a vertical line is drawn, such as the Offline rate


@dataclass(frozen=True)
class Panel:
    """One diagram of a picture."""

    title: str
    unit: str
    series: Sequence[SystemCurve]
    limits: Sequence[float] = ()


def draw_curves(title: str, load: str, panels: Sequence[Panel]) -> Picture:
    """Draw panels one below the other, with a common horizontal axis.

    Args:
        load: Label of the horizontal axis.
        panels: Those without a mark are left out.
    """
    shown = [panel for panel in panels if any(series.marks for series in panel.series)]
    figure = Figure(figsize=(4.6, 2.9 * max(1, len(shown)) + 0.4))
    figure.suptitle(title, x=0.02, ha="left")
    for place, panel in enumerate(shown, start=1):
        axes: Any = figure.add_subplot(len(shown), 1, place)
        for series, color in zip(panel.series, cycle(COLORS)):
            _draw_series(axes, series, color)
        for limit in panel.limits:
            axes.axhline(limit, color=GOOD, linestyle="--", linewidth=1.4)
        _scale(axes, panel)
        axes.set(xlabel=load, ylabel=panel.unit, title=panel.title)
        if place == 1 and any(series.name for series in panel.series):
            axes.legend(loc="best")
    if not shown:
        figure.text(0.5, 0.4, "no responses", ha="center")
    return picture_of(figure, ". ".join([title, *map(_words, shown)]))


def _draw_series(axes: Any, series: SystemCurve, color: str) -> None:
    joined = [(mark.x, mark.y) for mark in series.marks if mark.is_joined]
    if len(joined) > 1:
        axes.plot(*zip(*joined, strict=True), color=color, linewidth=1.0, alpha=0.6)
    if series.vertical is not None:
        axes.axvline(series.vertical, color=color, linestyle=(0, (1, 2)), linewidth=1.4)
    for mark in series.marks:
        ink = mark.color or color
        if mark.bound is not None:
            axes.errorbar([mark.x], [mark.y], [[0], [max(0, mark.bound - mark.y)]], color=ink, capsize=3, linewidth=1)
        fill = "white" if mark.is_hollow else ink
        axes.plot([mark.x], [mark.y], mark.shape, color=ink, markerfacecolor=fill, markersize=6)
        if mark.has_ring:
            axes.plot([mark.x], [mark.y], "o", color=ink, markerfacecolor="none", markersize=11)
        if mark.label:
            axes.annotate(mark.label, (mark.x, mark.y), (-5, 4), textcoords="offset points", ha="right", fontsize=8,
                          color=MUTED, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3})  # fmt: skip
    if series.name:
        axes.plot([], [], "o-", color=color, label=printable(series.name, MAX_NAME))


def _scale(axes: Any, panel: Panel) -> None:
    """Start both axes at 0. Exceptions: vertical values span a wide range, or horizontal values a narrow range."""
    marks = [mark for series in panel.series for mark in series.marks]
    loads = [mark.x for mark in marks]
    loads += [series.vertical for series in panel.series if series.vertical is not None]
    if min(loads) < 0.6 * max(loads):
        axes.set_xlim(0, 1.08 * max(loads))
    else:
        axes.margins(x=0.2)  # room for the labels of marks
    values = [*(mark.y for mark in marks), *(mark.bound or mark.y for mark in marks), *panel.limits]
    if min(values) > 0 and max(values) / min(values) > WIDE_SPAN:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0, 1.12 * max(values) or 1)
    axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: milliseconds(value) if value else "0"))


def _words(panel: Panel) -> str:
    return f"{panel.title}: " + "; ".join(
        (f"{series.name}: " if series.name else "")
        + ", ".join(
            f"{mark.label + ': ' if mark.label else ''}{milliseconds(mark.y)} at {plain_number(mark.x)}"
            for mark in series.marks
        )
        for series in panel.series
    )


# Tunings ------------------------------------------------------------------------------------------------------------


def tune_rates(title: str, record: Mapping[str, Any]) -> Picture:
    """Draw p99 TTFT and TPOT against the rate. Ring: INVALID. Triangle: stopped early. Larger ring: confirmation."""
    tried = [*record.get("probes", []), *record.get("confirmations", [])]
    return draw_curves(title, "target_qps", list(_tune_panels(tried, record)))


def _tune_panels(tried: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> Iterator[Panel]:
    for name in ("ttft", "tpot"):
        limit_ms = next((run[f"{name}_limit_ms"] for run in tried if run.get(f"{name}_limit_ms")), None)
        marks = [
            Mark(
                run["target_qps"],
                run[f"{name}_p99_ms"],
                is_hollow=run["verdict"] != "VALID",
                is_joined=False,
                has_ring=run in record.get("confirmations", []),
                shape="^" if run["stopped"] else "o",
                color=GOOD if run["verdict"] == "VALID" else BAD,
            )
            for run in tried
            if run["target_qps"] > 0 and run.get(f"{name}_p99_ms")
        ]
        limit = f", limit {milliseconds(limit_ms)} ms" if limit_ms else ""
        series = SystemCurve(marks, vertical=record.get("target_qps"))
        yield Panel(f"p99 {name.upper()} against target_qps{limit}", "ms", [series], [limit_ms] if limit_ms else [])
