"""The page of runs, for light and dark screens and for print. It needs no other files.

The layout is page.html.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compliance.report.chart import Axis, Chart, Line, Point, Series, Style
from compliance.report.run_section import RunSection, run_section
from compliance.report.tune_charts import tune_charts
from compliance.results.scoring import ScoreSources
from compliance.sources import VerdictRequest, find
from runs.errors import HarnessError
from runs.numbers.result import RunNumbers
from runs.record.engines.server_notes import stated_verdict
from runs.record.manifest import Manifest
from runs.wording import milliseconds

MAX_SECTIONS = 24  # maximum number of runs with a section; of additional runs the page shows only the name


@dataclass(frozen=True)
class CurvePoint:
    """One run on a curve: its throughput and the p90 of its latencies."""

    name: str
    load: str  # concurrency or rate of the run
    tokens_per_second: float
    ttft_ms: float | None
    tpot_ms: float | None
    limits_ms: tuple[float | None, float | None] = (None, None)  # limits of TTFT and TPOT, if they exist
    holds: bool = True  # run is VALID; for runs of the Endpoints client: verified, and no failed samples
    is_own: bool = False  # run of this harness over HTTP; otherwise, of the Endpoints client
    outcome: str = ""  # VALID or INVALID; for runs of the Endpoints client: the verdict
    is_joined: bool = True  # a point of a curve; a run with Poisson arrivals is not one

    @property
    def tokens_per_user(self) -> float | None:
        """Output tokens/s per user, as MLPerf Endpoints defines tps_per_user."""
        return 1000 / self.tpot_ms if self.tpot_ms else None


@dataclass
class Page:
    """The content of a page."""

    title: str
    made: str
    runs: list[RunSection] = field(default_factory=list)
    tunes: list[tuple[Path, dict[str, Any], list[Chart]]] = field(default_factory=list)  # directory, tune.json
    points: list[CurvePoint] = field(default_factory=list)  # runs of the Endpoints client and runs over HTTP
    curves: list[Chart] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # one sentence for each unreadable run


def make_page(
    title: str,
    made: str,
    runs: Sequence[tuple[str, Path]],
    tunes: Sequence[tuple[Path, dict[str, Any]]],
    folders: Sequence[tuple[str, Path]] = (),
) -> Page:
    """Read and draw all runs. The page names the unreadable runs.

    Args:
        runs: Name and run directory of each run.
        tunes: Directory and content of each tune.json.
        folders: Name and directory of each run of the MLPerf Endpoints client.
    """
    page = Page(title, made)
    page.tunes = [(directory, record, tune_charts(record)) for directory, record in tunes]
    for number, (name, root) in enumerate(runs[:MAX_SECTIONS], start=1):
        try:
            page.runs.append(run_section(root, f"run{number}", name))
        except HarnessError as error:
            page.left_out.append(f"{name}: {error.message}")
    page.left_out += [
        f"{name}: not shown, because a page shows at most {MAX_SECTIONS} runs" for name, _ in runs[MAX_SECTIONS:]
    ]
    for name, root in folders:
        try:
            page.points += [point] if (point := point_of_folder(root, name)) is not None else []
        except HarnessError as error:
            page.left_out.append(f"{name}: {error.message}")
    if page.points:
        over_http = [point_of_run(run.manifest, run.result, run.name) for run in page.runs]
        page.points += [point for point in over_http if point is not None]
        page.curves = curves(page.points)
    return page


_P90, OFFLINE = "90.0", "Offline"


def point_of_folder(folder: Path, name: str) -> CurvePoint | None:
    """Return the point of a run of the Endpoints client on the curves; None if the client counted no tokens.

    Raises:
        InputError: If the directory cannot be read.
    """
    (case,) = find("verify", [folder], VerdictRequest(ScoreSources()))
    verdict = case.judge()
    if verdict.details.run is None:
        assert verdict.error is not None  # it states why the directory cannot be read
        raise verdict.error
    summary, config = verdict.details.run.summary, verdict.details.run.config
    if summary is None or config is None or not summary.tps:
        return None
    pattern = config.settings.load_pattern
    rate = f"Poisson {pattern.target_qps:g}/s" if pattern.target_qps else OFFLINE
    load = str(pattern.target_concurrency) if pattern.target_concurrency else rate
    ttft, tpot = (part.percentiles.get(_P90) for part in (summary.ttft, summary.tpot))
    holds, joined = verdict.outcome in ("PASS", "FLAG") and not summary.n_samples_failed, pattern.type == "concurrency"
    times = _ms(ttft), _ms(tpot)
    return CurvePoint(name, load, float(summary.tps), *times, (None, None), holds, False, verdict.outcome, joined)


def point_of_run(manifest: Manifest, result: RunNumbers, name: str) -> CurvePoint | None:
    """Return the point of a performance run over HTTP on the curves; None for other runs."""
    numbers, settings = result.reported, result.in_force
    if not manifest.plan.engine_record.is_server or numbers is None or not numbers.tokens_per_second:
        return None
    load = result.scenario if result.scenario in ("Offline", "SingleStream") else f"{settings.target_qps:g}/s"
    percentiles, limits = numbers.flat("p90"), (_ms(settings.ttft_limit_ns), _ms(settings.tpot_limit_ns))
    times = percentiles.get("ttft_p90_ms"), percentiles.get("tpot_p90_ms")
    verdict = stated_verdict(result.verdict, manifest.observed)
    return CurvePoint(name, load, numbers.tokens_per_second, *times, limits, verdict == "VALID", True, verdict)


def _ms(ns: float | None) -> float | None:
    return None if not ns else ns / 1e6


def curves(points: Sequence[CurvePoint]) -> list[Chart]:
    """Return TTFT, TPOT and tokens/s per user against tokens/s, each if at least two points have it.

    The highest Offline rate of the client is a line.
    """
    offline_points = (point for point in points if point.load == OFFLINE and point.holds and not point.is_own)
    offline = max((point.tokens_per_second for point in offline_points), default=None)
    lines = [] if offline is None else [Line(offline, f"Offline {offline:,.4g}", "x")]
    charts = []
    for title, unit, name, place in (
        ("p90 TTFT", "ms", "ttft_ms", 0),
        ("p90 TPOT", "ms", "tpot_ms", 1),
        ("tokens/s per user: 1,000 / p90 TPOT in ms", "tokens/s", "tokens_per_user", None),
    ):
        shown = sorted(
            (point for point in points if getattr(point, name) is not None), key=lambda point: point.tokens_per_second
        )
        if len(shown) > 1:
            limits = set() if place is None else {point.limits_ms[place] for point in shown}
            limit_lines = [Line(limit, f"limit {milliseconds(limit)} ms") for limit in sorted(filter(None, limits))]
            y = Axis(title.partition(":")[0], unit)
            charts.append(Chart(title, Axis("tokens/s"), y, list(_series(shown, name, unit)), [*limit_lines, *lines]))
    return charts


def _series(points: Sequence[CurvePoint], name: str, unit: str) -> Iterator[Series]:
    """Yield the points by program and state. A line joins the points of a curve."""
    for program, shape, color in (("Endpoints client", "o", "c1"), ("this harness", "s", "c2")):
        for state in ("", _NO_CURVE, _FAILED):
            group = [_point(point, name, unit) for point in points if _state(point) == (program, state)]
            style: Style = "marks" if state else "joined"
            if group:
                yield Series(program + state, group, style, color, shape, is_hollow=state == _FAILED)


_NO_CURVE, _FAILED = ", not a point of a curve", ", failed or INVALID"


def _state(point: CurvePoint) -> tuple[str, str]:
    """Return the program and the state of a point, as parts of a name in the legend."""
    state = _FAILED if not point.holds else "" if point.is_joined else _NO_CURVE
    return "this harness" if point.is_own else "Endpoints client", state


def _point(point: CurvePoint, name: str, unit: str) -> Point:
    value = getattr(point, name)
    text = f"{point.load}: {milliseconds(value)} {unit} at {point.tokens_per_second:,.4g} tokens/s, {point.name}"
    return Point(point.tokens_per_second, value, text, point.load)
