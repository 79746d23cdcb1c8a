"""Pictures for a page: SVG on white, drawn by matplotlib from a few hundred numbers per run."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import NDArray

from runs.loadgen.early_stopping import LatencyVerdict
from runs.numbers.numbers import PERCENTILE_SHARES
from runs.record.requests_log import NO_TIME, RequestTable
from runs.wording import milliseconds

CDF_POINTS = 400
BINS = 240
OVERVIEW_QUERIES = 1_500

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def cdf(values_ns: Ints) -> tuple[Floats, Floats]:
    """Return the distribution of a latency: at most CDF_POINTS values in ms, and the share of queries up to each value.

    Half of the points are in the last two percent, where limits are decided.
    """
    ordered = np.sort(values_ns) / 1e6
    half = CDF_POINTS // 2
    shares = np.unique(np.concatenate((np.linspace(0, 0.98, half), np.linspace(0.98, 1, half))))
    places = np.unique((shares * (len(ordered) - 1)).astype(np.int64))
    return ordered[places], (places + 1) / len(ordered)


@dataclass(frozen=True)
class TimeSeries:
    """The course of a run in intervals. Rates belong to intervals, counts to their limits (`edges_s`)."""

    edges_s: Floats
    waiting: Floats | None  # queries before their first token; None if first tokens are not reported
    computing: Floats  # queries after their first token, or all open queries if first tokens are not reported
    tokens_per_second: Floats  # rate of tokens, spread from first token to completion, or counted at completion
    lateness_ms: Floats | None  # per interval: the largest delay with which LoadGen issued a query
    late: Ints | None  # queries that exceeded a limit, by interval of issue


def time_series(
    requests: RequestTable, *, lateness_ns: Ints | None = None, late: NDArray[np.bool_] | None = None
) -> TimeSeries:
    """Return the time series of a run in BINS intervals.

    Args:
        requests: At least one request.
        lateness_ns: Delay of LoadGen for each query, in order of issue.
        late: Whether each query exceeded a limit.
    """
    start_ns = int(requests.issue_ns.min())
    issued = (requests.issue_ns - start_ns) / 1e9
    completed = (requests.complete_ns - start_ns) / 1e9
    edges = np.linspace(0, max(float(completed.max()), 1e-6), BINS + 1)
    has_first_tokens = bool((requests.first_token_ns != NO_TIME).all())
    first = (requests.first_token_ns - start_ns) / 1e9 if has_first_tokens else completed
    done, begun, answered = (
        np.searchsorted(np.sort(moments), edges, side="right").astype(np.float64)
        for moments in (completed, issued, first if has_first_tokens else issued)
    )
    made = _tokens_until(first, completed, requests.output_tokens, edges)
    bins = np.clip(np.searchsorted(edges, issued, side="right") - 1, 0, BINS - 1)
    lateness_ms = None
    if lateness_ns is not None:
        lateness_ms = np.zeros(BINS)
        np.maximum.at(lateness_ms, bins, lateness_ns / 1e6)
    return TimeSeries(
        edges_s=edges,
        waiting=begun - answered if has_first_tokens else None,
        computing=answered - done,
        tokens_per_second=np.diff(made, prepend=0)[1:] / np.diff(edges),
        lateness_ms=lateness_ms,
        late=None if late is None else np.bincount(bins, weights=late, minlength=BINS).astype(np.int64),
    )


def _tokens_until(first: Floats, last: Floats, tokens: Ints, edges: Floats) -> Floats:
    """Return the tokens generated until each edge: one at `first`, the others at a constant rate until `last`.

    The result is the sum of one ramp per query, from cumulative sums over sorted starts and ends.
    """
    rest = np.maximum(tokens - 1, 0).astype(np.float64)
    span = last - first
    steep = span <= 0
    slopes = np.where(steep, 0.0, rest / np.where(steep, 1.0, span))
    jumps = np.where(steep, tokens, np.minimum(tokens, 1)).astype(np.float64)

    def summed(moments: Floats, weights: Floats) -> Floats:
        order = np.argsort(moments)
        sums = np.concatenate(([0.0], np.cumsum(weights[order])))
        chosen: Floats = sums[np.searchsorted(moments[order], edges, side="right")]
        return chosen

    rising = edges * summed(first, slopes) - summed(first, slopes * first)
    falling = edges * summed(last, slopes) - summed(last, slopes * last)
    return summed(first, jumps) + rising - falling


MUTED, ONE, TWO, GOOD, BAD = ["#59636e", "#0969da", "#bc4c00", "#1a7f37", "#cf222e"]

OUT_OF_SIGHT = 1000  # limits above this multiple of the largest value are not drawn
WIDE_SPAN = 30  # ratio of values above which an axis is logarithmic
mpl.rcParams.update(mpl.rc_params_from_file(Path(__file__).with_name("pictures.mplstyle"), use_default_template=False))


@dataclass(frozen=True)
class Picture:
    """An SVG file, and a text that describes it."""

    svg: bytes
    words: str

    @property
    def url(self) -> str:
        """The SVG file as a data URL."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()


def _axes() -> Any:
    return Figure().add_subplot()


def picture_of(figure: Figure, words: str) -> Picture:
    """Return a figure as a picture. It has no date and no random IDs, so its bytes are reproducible."""
    file = io.BytesIO()
    # `savefig` would draw the picture twice.
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(file, metadata={"Date": None, "Creator": None})
    return Picture(file.getvalue(), words)


def plain_number(value: float, _place: object = None) -> str:
    """Return a number for an axis, such as 12,000 or 0.25, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


# One run ------------------------------------------------------------------------------------------------------------


def distribution(
    label: str, values_ns: Ints, marked: str, marked_ns: float, limit_ns: float | None, verdict: LatencyVerdict | None
) -> Picture:
    """Draw the distribution of a latency, its limit, and the number of late queries that early stopping allows.

    Args:
        marked: Name of the marked percentile, such as p99; `marked_ns` is its value.
    """
    axes, limit_ms = _axes(), limit_ns / 1e6 if limit_ns else None
    words = f"{label}: {marked} {milliseconds(marked_ns / 1e6)} ms"
    values_ms, shares = cdf(values_ns)
    if limit_ms is not None and limit_ms > OUT_OF_SIGHT * values_ms[-1]:
        limit_ms = None
    if limit_ms is not None and verdict is not None:
        words += f" of {milliseconds(limit_ms)} ms; {verdict.late} late"
        words += f" of {verdict.allowed} allowed" if verdict.allowed >= 0 else ", none allowed (too few queries)"
        axes.axvline(limit_ms, color=BAD if verdict.late > verdict.allowed else GOOD, linestyle="--", linewidth=1.4)
    axes.step(values_ms, shares * 100, where="post", color=ONE)
    percent = 100 * PERCENTILE_SHARES[marked]
    axes.axhline(percent, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.plot([marked_ns / 1e6], [percent], "o", color=ONE, markersize=5)
    shown = [max(value, 1e-3) for value in (values_ms[0], values_ms[-1], limit_ms or values_ms[-1])]
    if max(shown) / min(shown) > WIDE_SPAN:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: milliseconds(value)))
    else:
        axes.set_xlim(left=0, right=max(shown) * 1.05)
        axes.locator_params(axis="x", nbins=6)  # prevents labels of five digits from touching
    axes.set(xlabel="ms", ylabel="% of queries", ylim=(0, 101))
    axes.set_title(words if len(words) < 50 else words.replace("; ", ";\n"))
    return picture_of(axes.figure, words)


def over_time(series: TimeSeries, mean_tokens_per_second: float | None) -> list[Picture]:
    """Draw open queries, output tokens per second and, if known, LoadGen's lateness."""
    pictures = [_queries_open(series), _tokens_made(series, mean_tokens_per_second)]
    return pictures if series.lateness_ms is None else [*pictures, _lateness(series, series.lateness_ms)]


def _queries_open(series: TimeSeries) -> Picture:
    axes = _axes()
    return _time_picture(axes, series, "queries", _draw_open(axes, series))


def open_queries(title: str, series: TimeSeries) -> Picture:
    """Draw the open queries of one run over time, as a small picture."""
    figure = Figure(figsize=(3.4, 2.1))
    axes: Any = figure.add_subplot()
    _draw_open(axes, series)
    axes.set(xlim=(0, series.edges_s[-1]), xlabel="s", ylabel="open queries")
    axes.set_title(title, fontsize=10)
    axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    return picture_of(figure, f"Open queries over time, {title}")


def distributions(label: str, values_ns: Mapping[str, Ints], limit_ms: float | None) -> Picture:
    """Draw the distribution of a latency in multiple runs, and its limit."""
    axes = _axes()
    for name, values in values_ns.items():
        values_ms, shares = cdf(values)
        axes.step(np.maximum(values_ms, 1e-3), shares * 100, where="post", linewidth=1.3, label=name)
    if limit_ms is not None:
        axes.axvline(limit_ms, color=GOOD, linestyle="--", linewidth=1.4)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: milliseconds(value)))
    axes.legend(loc="best", fontsize=8)
    axes.set(xlabel="ms", ylabel="% of queries", ylim=(0, 101), title=f"Distribution of {label}")
    return picture_of(axes.figure, f"Distribution of {label}: {', '.join(values_ns)}")


def _draw_open(axes: Any, series: TimeSeries) -> str:
    """Draw the open queries, and return a description of them."""
    top = series.computing
    if series.waiting is None:
        words, label = "Open queries", "open"
    else:
        words, label = "Queries waiting and in generation", "in generation"
        top = top + series.waiting
        axes.fill_between(series.edges_s, series.computing, top, color=TWO, alpha=0.75, linewidth=0, label="waiting")
    axes.fill_between(series.edges_s, 0, series.computing, color=ONE, alpha=0.75, linewidth=0, label=label)
    if series.waiting is not None:
        axes.legend(loc="upper right", ncols=2)
    axes.set_ylim(bottom=0, top=max(1.3 * float(top.max()), 1.0))  # room for the legend
    return words


def overview(title: str, lines: Sequence[str], requests: RequestTable, series: TimeSeries) -> Picture:
    """Draw a run in one picture: open queries over time above the latency of each query by its time of issue.

    Args:
        title: Run and verdict.
        lines: Lines below the title.
    """
    figure = Figure(figsize=(8.6, 5.4))
    figure.suptitle("\n".join([title, *lines]), x=0.02, ha="left", fontsize=11)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    words = _draw_open(above, series)
    issued = (requests.issue_ns - requests.issue_ns.min()) / 1e9
    step = max(1, len(issued) // OVERVIEW_QUERIES)  # limits the size of the file
    has_waiting = series.waiting is not None
    for name, times_ns, color in (
        ("whole response", requests.complete_ns, ONE),
        *((("first token (TTFT)", requests.first_token_ns, TWO),) if has_waiting else ()),
    ):
        latencies_s = (times_ns - requests.issue_ns) / 1e9
        below.plot(issued[::step], latencies_s[::step], "o", color=color, markersize=4, linewidth=0, label=name)
    top_s = float(((requests.complete_ns - requests.issue_ns) / 1e9).max())
    below.set_ylim(bottom=0, top=1.3 * top_s)
    below.legend(loc="upper right", ncols=2)
    above.set(xlim=(0, series.edges_s[-1]), ylabel="open queries")
    below.set(xlabel="s from the first query", ylabel="latency, s")
    for axes in (above, below):
        axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    return picture_of(figure, ". ".join([title, *lines, f"{words} over time, and the latency of each query"]))


def _tokens_made(series: TimeSeries, mean: float | None) -> Picture:
    axes = _axes()
    axes.stairs(series.tokens_per_second, series.edges_s, fill=True, color=ONE, alpha=0.3)
    axes.stairs(series.tokens_per_second, series.edges_s, color=ONE, linewidth=1.2)
    if mean is not None:
        axes.axhline(mean, color=MUTED, linestyle="--", linewidth=1.2)
    axes.set_ylim(bottom=0)
    words = "Output tokens/s" + (f", mean {plain_number(mean)}" if mean is not None else "")
    return _time_picture(axes, series, "tokens/s", words)


def _lateness(series: TimeSeries, values_ms: Any) -> Picture:
    """Draw the delay with which LoadGen issued queries, and the queries that exceeded a limit."""
    axes = _axes()
    axes.stairs(values_ms, series.edges_s, color=ONE, fill=True, alpha=0.75)
    axes.set_ylim(bottom=0, top=max(float(values_ms.max()) * 1.15, 1e-3))
    where = np.zeros(len(values_ms), dtype=bool) if series.late is None else series.late > 0
    middles = (series.edges_s[:-1] + series.edges_s[1:]) / 2
    axes.plot(middles[where], np.zeros(int(where.sum())), "|", color=BAD, markersize=12, clip_on=False)
    late = 0 if series.late is None else int(series.late.sum())
    words = f"LoadGen's lateness, at most {milliseconds(float(values_ms.max()))} ms;\n{late} queries above a limit"
    return _time_picture(axes, series, "ms", words)


def _time_picture(axes: Any, series: TimeSeries, label: str, words: str) -> Picture:
    axes.set(xlim=(0, series.edges_s[-1]), xlabel="s", ylabel=label, title=words)
    axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    return picture_of(axes.figure, words.replace("\n", " "))


# Results in rows ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PicturePoint:
    """One result as a point of a picture: its row, its value, and an optional name."""

    row: str
    value: float
    name: str = ""


def draw_points(title: str, points: Sequence[PicturePoint], unit: str, limit: float | None = None) -> Picture:
    """Draw values in rows, some with names. Values at or above the limit have a different color."""
    axes = _axes()
    rows = sorted({point.row for point in points})
    axes.figure.set_size_inches(5.75, 1.2 + 0.3 * max(len(rows), 3))
    for point in points:
        color = BAD if limit is not None and point.value >= limit else TWO if point.name else ONE
        axes.plot([point.value], [rows.index(point.row)], "o", color=color, alpha=0.75, markersize=5)
    named = [point for point in points if point.name]
    for number, point in enumerate(named):
        axes.annotate(
            point.name[:28], (point.value, rows.index(point.row)), (-4, -10 if number % 2 else 5),
            textcoords="offset points", fontsize=7, ha="right",
        )  # fmt: skip
    if limit is not None:
        axes.axvline(limit, color=MUTED, linestyle="--", linewidth=1.2)
    labels = [row if len(row) <= 26 else f"{row[:13]}…{row[-12:]}" for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.7)
    axes.set_xlim(left=0, right=1.08 * max(limit or 0, *(point.value for point in points)))
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize=10)
    listed = ", ".join(f"{point.name} {plain_number(point.value)}" for point in named)
    return picture_of(axes.figure, f"{title}, {unit}: {len(points)} results" + (f"; named: {listed}" if listed else ""))
