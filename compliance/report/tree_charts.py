"""The charts of a checked tree, from the record of `check`: causes, rates per accelerator, and latencies."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from compliance.report.chart import Axis, Chart, Line, Point, Series
from runs.wording import counted, milliseconds, precise, printable

MAX_CAUSES = 12  # causes in the chart
MAX_CHARTS = 48
MAX_POINTS = 400  # maximum number of points in a chart
MAX_NAMED = 6
# A result gets a name if its ratio to the median of equal accelerators is above this value or below its inverse.
OUTLIER = 1.3
NEAR_LIMIT = 0.99  # share of a latency limit above which a result gets a name

Json = Mapping[str, Any]


def cause_charts(causes: Sequence[Json]) -> list[Chart]:
    """Return the number of results that each of the most severe causes affects."""
    shown = causes[:MAX_CAUSES]
    if not shown:
        return []
    series = []
    for severity, color in (("error", "bad"), ("warning", "c2")):
        points = [
            Point(_extent(cause), row, f"{cause['cause']}: {cause['summary']}: {counted(_extent(cause), _unit(cause))}")
            for row, cause in enumerate(shown)
            if cause["severity"] == severity
        ]
        series.append(Series(f"{severity}s", points, color=color, shape="o" if severity == "error" else "D"))
    title = "Most severe causes" if len(causes) > len(shown) else "Causes"
    rows = [cause["cause"] for cause in shown]
    return [
        Chart(
            f"{title}, by affected results",
            Axis("results or findings", low=0),
            Axis("", rows=rows),
            series,
            size="wide",
        )
    ]


def _extent(cause: Json) -> int:
    return len(cause["results"]) or int(cause["findings"])


def _unit(cause: Json) -> str:
    return "result" if cause["results"] else "finding"


def rate_charts(results: Sequence[Json]) -> list[Chart]:
    """Return the rates per accelerator for each benchmark and scenario, with a row for each accelerator model."""
    groups: defaultdict[tuple[str, str, str], list[Json]] = defaultdict(list)
    for result in results:
        if result["rate_per_accelerator"] is not None:
            groups[result["benchmark_of_round"], result["scenario_of_round"], result["unit"]].append(result)
    charts = []
    for (benchmark, scenario, unit), group in sorted(groups.items()):
        if len(group) < 2:
            continue
        ratios = [result["rate_to_median"] or 1.0 for result in group]
        rows = sorted({_label(result["accelerator"]) for result in group})
        points = [
            (
                result["rate_per_accelerator"],
                rows.index(_label(result["accelerator"])),
                f"{_name(result)}: {precise(result['rate_per_accelerator'])} {unit}",
                _label(result["organisation"]),
            )
            for result in group[:MAX_POINTS]
        ]
        distances = [max(ratio, 1 / ratio) for ratio in ratios]
        series = _series(points, distances, OUTLIER, ("near the median", "far from the median"))
        title = f"{_label(benchmark)} {_label(scenario)}"
        charts.append(Chart(title, Axis(f"{unit} per accelerator", low=0), Axis("", rows=rows), series, size="wide"))
    return charts[:MAX_CHARTS]


def latency_charts(results: Sequence[Json]) -> list[Chart]:
    """Return the latencies as shares of their limits for each benchmark."""
    groups: defaultdict[str, list[tuple[Json, Json]]] = defaultdict(list)
    for result in results:
        groups[result["benchmark_of_round"]] += [(result, latency) for latency in result["latencies"]]
    charts = []
    for benchmark, pairs in sorted(groups.items()):
        if not pairs:
            continue
        names = [f"{_label(result['scenario_of_round'])} {latency['name']}" for result, latency in pairs]
        rows = sorted(set(names))
        points = [
            (
                100 * latency["share_of_limit"],
                rows.index(name),
                f"{_name(result)}: {milliseconds(latency['ms'])} ms of {milliseconds(latency['limit_ms'])} ms",
                _label(result["organisation"]),
            )
            for name, (result, latency) in list(zip(names, pairs, strict=True))[:MAX_POINTS]
        ]
        shares = [latency["share_of_limit"] for _, latency in pairs]
        series = _series(points, shares, NEAR_LIMIT, ("below 99% of the limit", "at least 99% of the limit"))
        lines = [Line(100, "limit", "x")]
        chart = Chart(_label(benchmark), Axis("limit", "%", low=0), Axis("", rows=rows), series, lines, size="wide")
        charts.append(chart)
    return charts[:MAX_CHARTS]


def _series(
    points: Sequence[tuple[float, int, str, str]], values: Sequence[float], least: float, names: tuple[str, str]
) -> list[Series]:
    """Return the points below a value, and those from it on. The largest of these have labels.

    Args:
        points: Horizontal place, row, text and label of each point.
        names: Names of the two series.
    """
    high = [place for place in range(len(points)) if values[place] >= least]
    labeled = sorted(high, key=lambda place: -values[place])[:MAX_NAMED]
    common = [Point(x, row, text) for place, (x, row, text, _) in enumerate(points) if place not in high]
    marked = [Point(*points[place][:3], points[place][3] if place in labeled else "") for place in high]
    return [Series(names[0], common, color="c1", is_faint=True), Series(names[1], marked, color="c2", shape="D")]


def _name(result: Json) -> str:
    return _label(f"{result['organisation']}, {result['system']}")


def _label(text: str) -> str:
    return printable(text, 40)
