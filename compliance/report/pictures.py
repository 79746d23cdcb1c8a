"""Pictures for a page, drawn by matplotlib: SVG on white, in light and in dark pages alike."""

import base64
import functools
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from compliance.report.series import Cdf, Ints, TimeSeries
from runs.wording import milliseconds, printable

INK, MUTED, GRID, ONE, TWO, GOOD, BAD = ["#1f2328", "#59636e", "#dde1e6", "#0969da", "#bc4c00", "#1a7f37", "#cf222e"]

SIZE_INCHES = (4.6, 2.9)  # small enough to be read on a telephone
LENGTH_BINS = 32
WIDE_SPAN = 30  # a factor between values that needs a logarithmic axis
_STYLE: Any = {
    "text.parse_math": False,  # a directory's name may hold a dollar sign
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "report",  # the same picture has the same bytes
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.8,
}


@dataclass(frozen=True)
class Picture:
    """An SVG file, and what it shows in words for those who do not see it."""

    svg: bytes
    words: str

    @property
    def url(self) -> str:
        """The file itself as the address of an image."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


P = ParamSpec("P")


def _picture(draw: Callable[Concatenate[Any, P], str]) -> Callable[P, Picture]:
    """From a function that draws into axes, and says what it drew, to one that makes the picture."""

    @functools.wraps(draw)
    def make(*args: P.args, **kwargs: P.kwargs) -> Picture:
        with mpl.rc_context(_STYLE):
            figure = Figure(figsize=SIZE_INCHES, layout="constrained")
            words = draw(figure.add_subplot(), *args, **kwargs)
            return Picture(_svg(figure), words)

    return make


def _svg(figure: Figure) -> bytes:
    """The same picture has the same bytes: no date, no random ids."""
    file = io.BytesIO()
    # Of itself: `savefig` draws everything twice, once to find the layout, which drawing finds too.
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(file, metadata={"Date": None, "Creator": None})
    return file.getvalue()


# One leg ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """A latency limit and what early stopping allows beyond it."""

    ms: float
    late: int
    allowed: int


@_picture
def distribution(axes: Any, label: str, values: Cdf, p99_ms: float, limit: Limit | None) -> str:
    """The share of queries at or below a latency."""
    words = f"{label}: p99 {milliseconds(p99_ms)} ms"
    if limit is not None:
        words += f" of {milliseconds(limit.ms)} ms; {limit.late} late"
        words += f" of {limit.allowed} allowed" if limit.allowed >= 0 else ", too few queries to allow any"
    axes.step(values.values_ms, values.shares * 100, where="post", color=ONE)
    axes.axhline(99, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.plot([p99_ms], [99], "o", color=ONE, markersize=5)
    if limit is not None:
        axes.axvline(limit.ms, color=BAD if limit.late > limit.allowed else GOOD, linestyle="--", linewidth=1.4)
    _time_axis(axes, [*values.values_ms[[0, -1]], *([limit.ms] if limit else [])])
    axes.set_ylim(0, 101)
    axes.set_ylabel("% of queries")
    axes.set_title(words if len(words) < 50 else words.replace("; ", ";\n"))
    return words


def _plain_number(value: float, _place: object = None) -> str:
    """Of an axis: 12,000 and 0.25, never 1e+04."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _time_axis(axes: Any, values_ms: Sequence[float]) -> None:
    """Logarithmic where the values span much."""
    low, high = max(min(values_ms), 1e-3), max(*values_ms, 1e-3)
    if high / low > WIDE_SPAN:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: milliseconds(value)))
    else:
        axes.set_xlim(left=0, right=high * 1.05)
        axes.locator_params(axis="x", nbins=6)  # so that labels of five digits do not touch
    axes.set_xlabel("ms")


@_picture
def queries_open(axes: Any, of: TimeSeries) -> str:
    """Queries that wait and queries that are computed, over time."""
    words = "queries waiting for their first token and being answered" if of.waiting is not None else "queries open"
    label = "being answered" if of.waiting is not None else "open"
    axes.fill_between(of.edges_s, 0, of.computing, color=ONE, alpha=0.75, linewidth=0, label=label)
    if of.waiting is not None:
        top = of.computing + of.waiting
        axes.fill_between(of.edges_s, of.computing, top, color=TWO, alpha=0.75, linewidth=0, label="waiting")
        axes.legend(loc="upper right", ncols=2)
    highest = float((of.computing + (0 if of.waiting is None else of.waiting)).max())
    axes.set_ylim(bottom=0, top=max(1.2 * highest, 1.0))  # room for the legend
    _over_time(axes, of, "queries", "Waiting and being answered" if of.waiting is not None else "Open queries")
    return words


@_picture
def tokens_made(axes: Any, of: TimeSeries, mean: float | None) -> str:
    """Output tokens per second over time."""
    how = "spread from first token to completion" if of.tokens_are_spread else "counted when an answer is complete"
    axes.stairs(of.tokens_per_second, of.edges_s, fill=True, color=ONE, alpha=0.3)
    axes.stairs(of.tokens_per_second, of.edges_s, color=ONE, linewidth=1.2)
    if mean is not None:
        axes.axhline(mean, color=MUTED, linestyle="--", linewidth=1.2)
    axes.set_ylim(bottom=0)
    _over_time(
        axes, of, "tokens/s", "Output tokens/s" + (f", {_plain_number(mean)} over all" if mean is not None else "")
    )
    return f"output tokens per second over time, {how}"


@_picture
def lateness(axes: Any, of: TimeSeries) -> str:
    """How long after their time LoadGen handed queries over, and where queries missed a limit."""
    assert of.lateness_ms is not None
    values = of.lateness_ms
    late = 0 if of.late is None else int(of.late.sum())
    words = f"LoadGen's lateness, at most {milliseconds(float(values.max()))} ms; {late} queries beyond a limit"
    axes.stairs(values, of.edges_s, color=ONE, fill=True, alpha=0.75)
    axes.set_ylim(bottom=0, top=max(float(values.max()) * 1.15, 1e-3))
    if of.late is not None and late:
        middles = (of.edges_s[:-1] + of.edges_s[1:]) / 2
        where = of.late > 0
        axes.plot(middles[where], np.zeros(int(where.sum())), "|", color=BAD, markersize=12, clip_on=False)
    _over_time(axes, of, "ms", words[:1].upper() + words[1:].replace("; ", ";\n"))
    return words


def _over_time(axes: Any, of: TimeSeries, label: str, title: str) -> None:
    axes.set_xlim(0, of.edges_s[-1])
    axes.set_xlabel("s")
    axes.set_ylabel(label)
    axes.set_title(title)
    axes.yaxis.set_major_formatter(FuncFormatter(_plain_number))


@_picture
def token_lengths(axes: Any, title: str, tokens: Ints, colour: str) -> str:
    """How many tokens prompts or answers had; `tokens` of each sample."""
    counts, edges = np.histogram(tokens, LENGTH_BINS)
    title = f"{title}, {_plain_number(float(np.mean(tokens)))} a sample"
    axes.stairs(counts, edges, fill=True, color=colour, alpha=0.75)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens")
    axes.set_ylabel("samples")
    axes.set_title(title)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return f"{title.lower()}, from {edges[0]:,.0f} to {edges[-1]:,.0f}"


@_picture
def replicas(axes: Any, tokens_of: Mapping[int, int]) -> str:
    """Output tokens of each engine, by its number."""
    tokens = list(tokens_of.values())
    uneven = max(tokens) / (sum(tokens) / len(tokens)) if sum(tokens) else 1.0
    words = f"Output tokens of {len(tokens)} replicas; the busiest has {uneven:.3f} of the mean"
    axes.bar(list(map(str, tokens_of)), tokens, color=ONE, alpha=0.8)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("replica")
    axes.set_title(words.replace("; ", ";\n"))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain_number))
    if len(tokens) > 16:
        axes.set_xticks([])
    return words


# Several legs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """One leg's rate."""

    label: str
    value: float
    valid: bool


@_picture
def side_by_side(axes: Any, title: str, bars: Sequence[Bar]) -> str:
    """Rates of several legs; one that is not VALID is hollow."""
    places = range(len(bars))
    drawn = axes.barh(places, [bar.value for bar in bars], color=[ONE if bar.valid else "none" for bar in bars])
    for patch, bar in zip(drawn, bars, strict=True):
        patch.set_edgecolor(ONE if bar.valid else BAD)
        patch.set_linewidth(1.2)
    axes.set_yticks(places, told_apart([bar.label for bar in bars]))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.bar_label(drawn, [f"{_plain_number(bar.value)}" for bar in bars], padding=3, fontsize=10, color=INK)
    axes.set_xlim(right=max(bar.value for bar in bars) * 1.3)
    axes.xaxis.set_major_formatter(FuncFormatter(_plain_number))
    axes.locator_params(axis="x", nbins=3)  # so that labels of seven digits do not touch
    axes.set_title(title)
    return f"{title}: " + ", ".join(f"{bar.label} {_plain_number(bar.value)}" for bar in bars)


@dataclass(frozen=True)
class CurvePoint:
    """One run on a curve: what it made, and the P90 of how long its users waited."""

    name: str
    load: str  # the concurrency, or what it was asked for
    tokens_per_second: float
    ttft_ms: float | None
    tpot_ms: float | None
    limits_ms: tuple[float | None, float | None] = (None, None)  # of TTFT and TPOT, where its benchmark has any
    holds: bool = True  # what was asked of it; of the client's runs: no sample failed
    ours: bool = False

    @property
    def tokens_per_user(self) -> float | None:
        """MLPerf Endpoints' tps_per_user."""
        return 1000 / self.tpot_ms if self.tpot_ms else None


@_picture
def curve(
    axes: Any, label: str, points: Sequence[tuple[CurvePoint, float]], limits: Sequence[float], *, more_is_better: bool
) -> str:
    """Tokens/s against a wait; the step line joins the points that no other beats in both. Disc: the client's. Square:
    ours. Hollow: it does not hold what was asked of it."""
    holding = [(x, point.tokens_per_second) for point, x in points if point.holds]
    front: list[tuple[float, float]] = []
    for x, tokens in sorted(holding, key=lambda one: (-one[0] if more_is_better else one[0], -one[1])):
        if not front or tokens > front[-1][1]:
            front.append((x, tokens))
    if front:
        axes.step(*zip(*front, strict=True), where="post", color=MUTED, linewidth=1.0)
    for point, x in points:
        colour = TWO if point.ours else ONE
        (drawn,) = axes.plot([x], [point.tokens_per_second], "s" if point.ours else "o", color=colour, markersize=6)
        drawn.set_markerfacecolor(colour if point.holds else "none")
        axes.annotate(point.load, (x, point.tokens_per_second), xytext=(5, 4), textcoords="offset points", fontsize=9)
    for limit in limits:
        axes.axvline(limit, color=GOOD, linestyle="--", linewidth=1.4)
    axes.set_xlim(0, 1.15 * max(x for _, x in points))
    axes.set_ylim(bottom=0, top=1.15 * max(point.tokens_per_second for point, _ in points))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain_number))
    axes.set_xlabel(label)
    axes.set_ylabel("tokens/s")
    axes.set_title("Tokens/s over concurrency")
    told = ", ".join(f"{point.load}: {_plain_number(point.tokens_per_second)} at {x:.4g}" for point, x in points)
    return f"Tokens/s against {label}: {told}"


def told_apart(labels: list[str]) -> list[str]:
    """Names of directories without the parents that all have; of a long one both ends."""
    parts = [label.split("/") for label in labels]
    levels = zip(*(part[:-1] for part in parts), strict=False)
    shared = len(list(itertools.takewhile(lambda level: len(set(level)) == 1, levels)))
    names = [printable("/".join(part[shared:])) for part in parts]
    return [name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}" for name in names]


@dataclass(frozen=True)
class Point:
    """One result: the row that it stands in, its value, and its name where it is to be named."""

    row: str
    value: float
    name: str = ""


@_picture
def points(axes: Any, title: str, points: Sequence[Point], unit: str, limit: float | None = None) -> str:
    """Values in rows, those that are named with their names; on or beyond the limit in another colour."""
    rows = sorted({point.row for point in points})
    axes.figure.set_size_inches(SIZE_INCHES[0] * 1.25, 1.2 + 0.3 * max(len(rows), 3))
    for point in points:
        colour = BAD if limit is not None and point.value >= limit else TWO if point.name else ONE
        axes.plot([point.value], [rows.index(point.row)], "o", color=colour, alpha=0.75, markersize=5)
    for number, point in enumerate(point for point in points if point.name):
        axes.annotate(
            point.name[:28], (point.value, rows.index(point.row)), (-4, 5 if number % 2 else -10),
            textcoords="offset points", fontsize=7, color=INK, ha="right",
        )  # fmt: skip
    if limit is not None:
        axes.axvline(limit, color=MUTED, linestyle="--", linewidth=1.2)
    axes.set_yticks(
        range(len(rows)), [row if len(row) <= 26 else f"{row[:13]}…{row[-12:]}" for row in rows], fontsize=8
    )
    axes.set_ylim(len(rows) - 0.4, -0.7)
    axes.set_xlim(left=0, right=1.08 * max(limit or 0, *(point.value for point in points)))
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(FuncFormatter(_plain_number))
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize=10)
    named = ", ".join(f"{point.name} {_plain_number(point.value)}" for point in points if point.name)
    return f"{title}, {unit}: {len(points)} results" + (f"; named: {named}" if named else "")


@dataclass(frozen=True)
class RatePanel:
    """p99 of one measure against the rate; of a leg that was stopped, the p99 of the answers it had."""

    label: str  # TTFT or TPOT
    legs: tuple[tuple[Mapping[str, Any], float, bool], ...]  # record of a leg, its p99 in ms, whether it confirms
    limit_ms: float | None
    found_qps: float | None

    @property
    def title(self) -> str:
        """What it shows."""
        limit = f", limit {milliseconds(self.limit_ms)} ms" if self.limit_ms else ""
        return f"p99 {self.label} against target_qps{limit}"


def rate_panels(record: Mapping[str, Any]) -> list[RatePanel]:
    """From the record of a tune (tune.json): a panel for each measure that has answers."""
    tried = [(leg, False) for leg in record.get("probes", [])]
    tried += [(leg, True) for leg in record.get("confirmations", [])]
    panels = []
    for name in ("ttft", "tpot"):
        legs = [(leg, leg.get(f"{name}_p99_ms"), confirms) for leg, confirms in tried if leg["target_qps"] > 0]
        limit_ms = next((leg[f"{name}_limit_ms"] for leg, _ in tried if leg.get(f"{name}_limit_ms")), None)
        if legs := [one for one in legs if one[1]]:
            panels.append(RatePanel(name.upper(), tuple(legs), limit_ms, record.get("target_qps")))
    return panels


def rates_file(title: str, panels: Sequence[RatePanel]) -> bytes:
    """All panels as one SVG file."""
    width, height = SIZE_INCHES
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(1.6 * width, height * max(1, len(panels)) + 0.4), layout="constrained")
        figure.suptitle(title, x=0.02, ha="left")
        for place, panel in enumerate(panels, start=1):
            _draw_rates(figure.add_subplot(len(panels), 1, place), panel)
        if not panels:
            figure.text(0.5, 0.4, "no answers", ha="center")
        return _svg(figure)


def _draw_rates(axes: Any, panel: RatePanel) -> str:
    """Disc: VALID. Ring: INVALID. Triangle: stopped. A larger ring around confirmations."""
    for number, (leg, p99_ms, confirms) in enumerate(panel.legs, start=1):
        colour = GOOD if leg["verdict"] == "VALID" else BAD
        (drawn,) = axes.plot([leg["target_qps"]], [p99_ms], "^" if leg["stopped"] else "o", color=colour)
        filled = colour if leg["verdict"] == "VALID" else "none"
        drawn.set(markerfacecolor=filled, markersize=6, gid=f"{panel.label}-{number}")
        if confirms:
            axes.plot([leg["target_qps"]], [p99_ms], "o", color=colour, markerfacecolor="none", markersize=11)
    if panel.limit_ms:
        axes.axhline(panel.limit_ms, color=TWO, linestyle="--", linewidth=1.4)
    if panel.found_qps is not None:
        axes.axvline(panel.found_qps, color=GOOD, linestyle=(0, (1, 2)), linewidth=1.4)
    values = [*(p99_ms for _, p99_ms, _ in panel.legs), *([panel.limit_ms] if panel.limit_ms else [])]
    if max(values) / min(values) > WIDE_SPAN:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: milliseconds(value) if value else "0"))
    axes.set_xlabel("target_qps")
    axes.set_ylabel("ms")
    axes.set_title(panel.title)
    return panel.title


rates = _picture(_draw_rates)  # a panel for a page
