"""Charts of one run, and the distributions of a latency in multiple runs."""

from collections.abc import Mapping

import numpy as np

from compliance.report.chart import Axis, Chart, Line, Point, Series, Size
from compliance.report.series import Floats, Ints, TimeSeries, cdf
from runs.loadgen.early_stopping import LatencyVerdict
from runs.numbers.numbers import PERCENTILE_SHARES
from runs.record.requests_log import RequestTable
from runs.wording import four_digits, milliseconds, two_digits

OVERVIEW_QUERIES = 1_500  # maximum number of queries in the overview


def distribution(
    label: str, values_ns: Ints, marked: str, marked_ns: float, limit_ns: float | None, verdict: LatencyVerdict | None
) -> Chart:
    """Return the distribution of a latency, its limit, and the number of late queries that early stopping allows.

    Args:
        marked: Name of the marked percentile, such as p99; `marked_ns` is its value.
    """
    title = f"{label}: {marked} {milliseconds(marked_ns / 1e6)} ms"
    lines = []
    if limit_ns:
        lines = [_limit(limit_ns / 1e6)]
        title += f" of {milliseconds(limit_ns / 1e6)} ms"
        if verdict is not None:
            allowed = f" of {verdict.allowed} allowed" if verdict.allowed >= 0 else ", none allowed (too few queries)"
            title += f"; {verdict.late} late{allowed}"
    point = Point(marked_ns / 1e6, 100 * PERCENTILE_SHARES[marked], f"{marked}: {milliseconds(marked_ns / 1e6)} ms")
    series = [_steps(label, values_ns), Series(marked, [point], color="c1", has_entry=False)]
    return Chart(title, Axis(label, "ms"), Axis("queries", "%", low=0, high=101), series, lines)


def distributions(label: str, values_ns: Mapping[str, Ints], limit_ms: float | None) -> Chart:
    """Return the distribution of a latency in multiple runs, and its limit."""
    lines = [] if limit_ms is None else [_limit(limit_ms)]
    series = [_steps(name, values) for name, values in values_ns.items()]
    return Chart(label, Axis(label, "ms", scale="logarithmic"), Axis("queries", "%", low=0, high=101), series, lines)


def _limit(limit_ms: float) -> Line:
    return Line(limit_ms, f"limit {milliseconds(limit_ms)} ms", "x")


def _steps(name: str, values_ns: Ints) -> Series:
    values_ms, shares = cdf(values_ns)
    points = [
        Point(max(float(value), 1e-3), 100 * float(share), f"{share:.2%} within {milliseconds(float(value))} ms")
        for value, share in zip(values_ms, shares, strict=True)
    ]
    return Series(name, points, "steps")


# Over time ----------------------------------------------------------------------------------------------------------


def over_time(series: TimeSeries, mean_tokens_per_second: float | None) -> list[Chart]:
    """Return open queries, output tokens per second and, if known, LoadGen's lateness."""
    charts = [open_queries("Open queries", series), _tokens_made(series, mean_tokens_per_second)]
    return charts if series.lateness_ms is None else [*charts, _lateness(series)]


def open_queries(title: str, series: TimeSeries, size: Size = "normal") -> Chart:
    """Return the open queries of one run over time."""
    lower, open_count = np.zeros(len(series.edges_s)), series.computing
    name = "open" if series.waiting is None else "in generation"
    areas = [_area(name, series.edges_s, lower, open_count, series.computing)]
    if series.waiting is not None:
        areas.append(_area("waiting", series.edges_s, open_count, open_count + series.waiting, series.waiting))
    return Chart(title, _time(series), Axis("open queries", low=0), areas, size=size)


def _area(name: str, seconds: Floats, lower: Floats, upper: Floats, counts: Floats) -> Series:
    points = [
        Point(float(x), float(high), f"{two_digits(float(count))} at {float(x):.3g} s", low=float(low))
        for x, low, high, count in zip(seconds, lower, upper, counts, strict=True)
    ]
    return Series(name, points, "area")


def _time(series: TimeSeries) -> Axis:
    return Axis("time", "s", low=0, high=float(series.edges_s[-1]), scale="linear")


def _tokens_made(series: TimeSeries, mean: float | None) -> Chart:
    lines = [] if mean is None else [Line(mean, f"mean {four_digits(mean)}")]
    rates = _bins(series, series.tokens_per_second, "tokens/s")
    return Chart("Output tokens/s", _time(series), Axis("tokens/s", low=0), [rates], lines)


def _lateness(series: TimeSeries) -> Chart:
    """Return the delay with which LoadGen issued queries, and the queries that exceeded a limit."""
    assert series.lateness_ms is not None
    late = np.zeros(len(series.lateness_ms), dtype=np.int64) if series.late is None else series.late
    count = int(late.sum())
    title = f"LoadGen's lateness: at most {milliseconds(float(series.lateness_ms.max()))} ms; "
    title += f"{count:,} {'query' if count == 1 else 'queries'} above a limit"
    marks = [
        Point(float(series.edges_s[place]), 0.0, f"{late[place]} at {series.edges_s[place]:.3g} s")
        for place in np.flatnonzero(late)
    ]
    parts = [_bins(series, series.lateness_ms, "ms"), Series("queries above a limit", marks, color="bad", shape="|")]
    return Chart(title, _time(series), Axis("lateness", "ms", low=0), parts)


def _bins(series: TimeSeries, values: Floats, unit: str) -> Series:
    """Return values of the intervals of a run, each at the middle of its interval."""
    middles = (series.edges_s[:-1] + series.edges_s[1:]) / 2
    return _area(unit, middles, np.zeros(len(middles)), values, values)


# One picture --------------------------------------------------------------------------------------------------------


def overview(requests: RequestTable, series: TimeSeries) -> list[Chart]:
    """Return open queries over time, and the latency of each query by its time of issue."""
    issued = (requests.issue_ns - requests.issue_ns.min()) / 1e9
    step = max(1, len(issued) // OVERVIEW_QUERIES)  # limits the size of the file
    times_ns = {"whole response": requests.complete_ns}
    if series.waiting is not None:
        times_ns["first token (TTFT)"] = requests.first_token_ns
    latencies = [
        Series(
            name, [Point(float(x), float(y)) for x, y in zip(issued[::step], ends[::step], strict=True)], is_faint=True
        )
        for name, moments in times_ns.items()
        for ends in [(moments - requests.issue_ns) / 1e9]
    ]
    return [
        open_queries("Open queries", series),
        Chart("Latency of each query by its time of issue", _time(series), Axis("latency", "s", low=0), latencies),
    ]
