"""Charts of benches: latencies and the speed of a user against output tokens/s."""

from collections.abc import Callable, Iterator, Sequence

from compliance.report.chart import Axis, Chart, Line, Point, Series, Style
from compliance.report.palette import SERIES, SHAPES
from runs.bench.bench_record import BenchRecord, BenchRun, Latency
from runs.wording import four_digits, milliseconds

# Field of BenchRun, name, and field of Limits.
MEASURES = (("ttft", "TTFT", "ttft"), ("tpot", "TPOT", "tpot"), ("latency", "latency", "e2el"))
PointOfRun = Callable[[BenchRecord, BenchRun], Point | None]
# Appearance of a run: joined by a line or not, hollow, and marker. The order is that of the legend.
_STATES: dict[str, tuple[Style, bool, str]] = {
    "": ("joined", False, "o"),
    "repeated": ("marks", False, "D"),
    "unclear": ("marks", True, "^"),
    "saturated": ("marks", True, "s"),
}


def load_text(run: BenchRun) -> str:
    """Return the load of a run: a share of the Offline rate, a rate, or a number of open queries."""
    if run.kind == "concurrency":
        return f"{run.concurrency} open"
    if run.share is not None:
        return f"{run.share:.0%}"
    return f"{four_digits(run.asked_qps)}/s" if run.asked_qps is not None else ""


def bench_charts(records: Sequence[BenchRecord]) -> list[Chart]:
    """Return the charts of benches with equal percentiles and limits.

    They show TTFT and TPOT, the latency if it has a limit, and the speed of a user, against output tokens/s. A line
    joins the runs of a bench that are not saturated.
    """
    limits, percentile = records[0].limits, records[0].percentile
    charts = []
    for measure, name, limit_name in MEASURES:
        limit = getattr(limits, limit_name, None)
        if measure == "latency" and limit is None:
            continue
        lines = [Line(limit, f"limit {milliseconds(limit)} ms")] if limit is not None and percentile else []
        charts.append(_latency_chart(records, measure, f"{percentile or 'p50'} {name}", lines))
    return [chart for chart in [*charts, _user_chart(records)] if any(series.points for series in chart.series)]


def _latency_chart(records: Sequence[BenchRecord], measure: str, name: str, limits: Sequence[Line]) -> Chart:
    def point(record: BenchRecord, run: BenchRun) -> Point | None:
        latency: Latency | None = getattr(run, measure)
        value = None if latency is None else latency.at(record.percentile or "p50")
        if latency is None or value is None or not run.output_tokens_per_s or run.kind == "offline":
            return None
        bound = latency.bound if record.percentile else None
        text = f"{_run_text(run)}, {name} {milliseconds(value)} ms"
        text += "" if bound is None else f" (at most {milliseconds(bound)} ms)"
        return Point(run.output_tokens_per_s, value, f"{text}, {run.verdict}", _label(records, run), high=bound)

    offline = [(record, run) for record in records for run in record.runs if run.kind == "offline"]
    lines = [
        Line(rate, f"Offline {_of_bench(record, records)}{four_digits(rate)}", "x")
        for record, run in offline
        if (rate := run.output_tokens_per_s)
    ]
    is_closed = any(run.kind == "concurrency" for record in records for run in record.runs)
    title = f"{name}, closed loop" if is_closed else name
    series = list(_series(records, point))
    return Chart(title, Axis("output tokens/s"), Axis(name, "ms"), series, [*limits, *lines])


def _user_chart(records: Sequence[BenchRecord]) -> Chart:
    has_accelerators = all(record.accelerators for record in records)

    def point(record: BenchRecord, run: BenchRun) -> Point | None:
        if not run.output_tokens_per_s or run.tpot is None or run.tpot.p50 <= 0:
            return None
        speed = 1000 / run.tpot.p50
        load = run.output_tokens_per_s / ((record.accelerators if has_accelerators else None) or 1)
        return Point(load, speed, f"{_run_text(run)}, {four_digits(speed)} tokens/s per user", _label(records, run))

    axis = Axis(f"output tokens/s per {'accelerator' if has_accelerators else 'system'}")
    title = "Tokens/s per user"
    return Chart(title, axis, Axis("tokens/s per user"), list(_series(records, point)))


def _series(records: Sequence[BenchRecord], point: PointOfRun) -> Iterator[Series]:
    """Yield the runs of each bench by state, in order of load."""
    for number, record in enumerate(records):
        runs = sorted(record.runs, key=lambda run: run.asked_qps or run.concurrency or 0)
        for place, (state, (style, is_hollow, shape)) in enumerate(_STATES.items()):
            points = [drawn for run in runs if _state(run) == state and (drawn := point(record, run)) is not None]
            if points:
                name = " ".join(filter(None, (_of_bench(record, records).rstrip(), state))) or "measured rates"
                if len(records) > 1:
                    place, shape = number, SHAPES[number % len(SHAPES)]
                color = SERIES[place % len(SERIES)]
                yield Series(name, points, style, color, shape, is_hollow)


def _state(run: BenchRun) -> str:
    if run.verdict in ("saturated", "unclear"):
        return run.verdict
    return "repeated" if run.again or run.repetition > 1 else ""


def _of_bench(record: BenchRecord, records: Sequence[BenchRecord]) -> str:
    return f"{record.label} " if len(records) > 1 else ""


def _label(records: Sequence[BenchRecord], run: BenchRun) -> str:
    return load_text(run) if len(records) == 1 and not run.again and run.repetition == 1 else ""


def _run_text(run: BenchRun) -> str:
    rate = "no" if run.output_tokens_per_s is None else four_digits(run.output_tokens_per_s)
    return f"{load_text(run) or run.scenario}: {rate} tokens/s"
