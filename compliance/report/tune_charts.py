"""Charts of a tuning: the latencies at each tried rate."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compliance.report.chart import Axis, Chart, Line, Point, Series
from runs.wording import milliseconds

TriedRun = Mapping[str, Any]


def tune_charts(record: Mapping[str, Any]) -> list[Chart]:
    """Return p99 TTFT and TPOT against the rate, from tune.json."""
    confirmations = record.get("confirmations", [])
    tried = [run for run in [*record.get("probes", []), *confirmations] if run["target_qps"] > 0]
    charts = []
    for measure in ("ttft", "tpot"):
        limit_ms = next((run[f"{measure}_limit_ms"] for run in tried if run.get(f"{measure}_limit_ms")), None)
        lines = [] if limit_ms is None else [Line(limit_ms, f"limit {milliseconds(limit_ms)} ms")]
        if rate := record.get("target_qps"):
            lines.append(Line(rate, f"confirmed {rate:g}/s", "x"))
        measured = [run for run in tried if run.get(f"{measure}_p99_ms")]
        series = list(_series(measured, confirmations, measure))
        name = f"p99 {measure.upper()}"
        charts.append(Chart(f"{name} against target_qps", Axis("target_qps"), Axis(name, "ms"), series, lines))
    return charts


def _series(
    runs: Sequence[Mapping[str, Any]], confirmations: Sequence[Mapping[str, Any]], measure: str
) -> Iterator[Series]:
    """Yield the runs by their outcome."""
    outcomes: dict[str, dict[str, Any]] = {
        "VALID": {"color": "c3"},
        "INVALID": {"color": "c2", "is_hollow": True},
        "INVALID, stopped early": {"color": "c2", "is_hollow": True, "shape": "^"},
        "VALID confirmation run": {"color": "c1", "shape": "D"},
        "INVALID confirmation run": {"color": "c4", "shape": "D", "is_hollow": True},
    }
    points: dict[str, list[Point]] = {}
    for run in runs:
        outcome = run["verdict"] + (
            " confirmation run" if run in confirmations else ", stopped early" if run["stopped"] else ""
        )
        value_ms = run[f"{measure}_p99_ms"]
        text = f"{run['target_qps']:g}/s: p99 {measure.upper()} {milliseconds(value_ms)} ms, {run['verdict']}"
        points.setdefault(outcome, []).append(Point(run["target_qps"], value_ms, text))
    for outcome, options in outcomes.items():
        if outcome in points:
            yield Series(outcome, points[outcome], **options)
