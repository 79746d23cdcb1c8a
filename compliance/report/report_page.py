"""The page of runs, from their files.

The layout is page.html.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from compliance.report.chart import Axis, Chart, Line, Point, Series, Style
from compliance.report.remarks import Remark, grouped_remarks
from compliance.report.run_section import RunSection, run_section
from compliance.report.tune_charts import tune_charts
from compliance.results.scoring import ScoreSources
from compliance.sources import VerdictRequest, find
from runs.errors import HarnessError
from runs.numbers.result import RunNumbers
from runs.record.engines.server_notes import stated_verdict
from runs.record.manifest import Manifest
from runs.wording import counted, finite_limit, milliseconds, readable_rate, shortened_list

MAX_LISTED = 4  # names of runs in the headline
MAX_SECTIONS = 24  # maximum number of runs with a section; of additional runs the page shows only the name


class Headline(NamedTuple):
    """A sentence at the beginning of the page."""

    outcome: str  # empty for a sentence on multiple runs
    is_good: bool
    text: str


@dataclass(frozen=True)
class Violation:
    """A violated rule, with the runs that violate it in the same way."""

    rule: str
    is_error: bool
    fix: str
    remark: Remark


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


@dataclass(frozen=True)
class TuneSection:
    """One tuning on the page."""

    directory: Path
    record: Mapping[str, Any]  # tune.json
    charts: Sequence[Chart]

    @property
    def title(self) -> str:
        rate = self.record["target_qps"]
        return f"Tune, {self.record['scenario']}: {f'target_qps {rate:g} confirmed' if rate else 'rate not confirmed'}"


@dataclass
class Page:
    """The content of a page."""

    title: str
    made: str
    runs: list[RunSection] = field(default_factory=list)
    tunes: list[TuneSection] = field(default_factory=list)
    points: list[CurvePoint] = field(default_factory=list)  # runs of the Endpoints client and runs over HTTP
    unread: list[str] = field(default_factory=list)  # one sentence for each run that is not on the page

    @property
    def is_single(self) -> bool:
        return len(self.runs) == 1 and not self.tunes and not self.points

    @property
    def headlines(self) -> Iterator[Headline]:
        """Yield the outcome of a single run, or those of all runs, tunings and points."""
        if self.is_single:
            (run,) = self.runs
            numbers = [run.main_numbers] if run.main_numbers else []
            yield Headline(run.outcome, run.is_good, "; ".join([*run.reasons, *numbers]))
            return
        yield from (Headline("", True, tune.title) for tune in self.tunes)
        if self.runs:
            yield Headline("", True, f"{counted(len(self.runs), 'run')}: {_tally(run.outcome for run in self.runs)}")
            if bad := [run.name for run in self.runs if not run.is_good]:
                yield Headline("Problems", False, shortened_list(bad, MAX_LISTED))
        if points := [point for point in self.points if not point.is_own]:
            text = f"{counted(len(points), 'run')} of the MLPerf Endpoints client: {_tally(p.outcome for p in points)}"
            yield Headline("", True, text)

    @property
    def subtitle(self) -> str:
        if not self.is_single:
            return ""
        (run,) = self.runs
        eligible = "" if run.manifest.official else ", not eligible for submission"
        return f"{run.subtitle}{eligible}, {run.directory}"

    @property
    def charts(self) -> list[Chart]:
        """Curves over concurrency if there are points; otherwise the throughput of multiple runs."""
        if self.points:
            return curves(self.points)
        measured = [run for run in self.runs if run.tokens_per_second]
        return comparison_charts(measured) if len(measured) > 1 else []

    @property
    def score_columns(self) -> list[tuple[str, str]]:
        scored = next((run.scores for run in self.runs if run.scores), [])
        return [(score.name, "n") for score in scored]

    @property
    def reasons(self) -> list[Remark]:
        """The reasons against the runs; those of a single run are in its headline."""
        pairs = [(run.name, reason) for run in self.runs for reason in run.reasons]
        return [] if self.is_single else grouped_remarks(pairs)

    @property
    def violations(self) -> list[Violation]:
        """The violated rules, each once with its runs."""
        findings = [finding for run in self.runs for finding in run.findings]
        first = {finding.sentence: finding for finding in reversed(findings)}
        pairs = [(self._place(run.name), finding.sentence) for run in self.runs for finding in run.findings]
        return [
            Violation(finding.rule, finding.severity == "error", finding.fix or finding.definition.fix, remark)
            for remark in grouped_remarks(pairs)
            for finding in [first[remark.text]]
        ]

    @property
    def remarks(self) -> list[Remark]:
        """The notes on the runs, each once with its runs."""
        return grouped_remarks((self._place(run.name), note) for run in self.runs for note in run.notes)

    @property
    def left_out(self) -> list[Remark]:
        return [Remark(sentence, ()) for sentence in self.unread]

    def _place(self, name: str) -> str:
        """Return the name of a run; empty if the page has no other run."""
        return "" if self.is_single else name


def _tally(outcomes: Iterable[str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in Counter(outcomes).most_common())


def comparison_charts(runs: Sequence[RunSection]) -> list[Chart]:
    """Return the tokens/s of each run, and the latencies that have a limit, one row for each run."""
    throughput = [
        Series(name, _throughputs(runs, is_valid=is_valid), is_hollow=not is_valid, color=color)
        for is_valid, name, color in ((True, "VALID", "c1"), (False, "not VALID", "c2"))
    ]
    latencies = [
        Series(f"p99 {measure.upper()}", _shares(runs, measure), color=color, shape=shape)
        for measure, color, shape in (("ttft", "c1", "o"), ("tpot", "c2", "D"))
    ]
    rows = Axis("", rows=_short_names(runs))
    charts = [
        Chart("Throughput of the runs", Axis("output tokens/s", low=0), rows, throughput, size="wide"),
        Chart(
            "Latencies against their limits",
            Axis("limit", "%", low=0),
            rows,
            latencies,
            [Line(100, "limit", "x")],
            "wide",
        ),
    ]
    return [chart for chart in charts if any(series.points for series in chart.series)]


def _throughputs(runs: Sequence[RunSection], *, is_valid: bool) -> list[Point]:
    return [
        Point(run.tokens_per_second, row, f"{run.name}: {run.main_numbers}")
        for row, run in enumerate(runs)
        if run.tokens_per_second and (run.outcome == "VALID") == is_valid
    ]


def _shares(runs: Sequence[RunSection], measure: str) -> list[Point]:
    """Return the p99 of a latency as a share of its limit in %, for the runs that have both."""
    points = []
    for row, run in enumerate(runs):
        value_ms, stated_ms = run.p99(measure)
        limit_ms = finite_limit(stated_ms)
        if value_ms is not None and limit_ms is not None:
            text = f"{run.name}: p99 {measure.upper()} {milliseconds(value_ms)} ms of {milliseconds(limit_ms)} ms"
            points.append(Point(100 * value_ms / limit_ms, row, text))
    return points


def _short_names(runs: Sequence[RunSection]) -> list[str]:
    """Return the names of the runs without the directories that all of them share."""
    parts = [run.name.split("/") for run in runs]
    shared = 0
    while all(len(name) > shared + 1 and name[shared] == parts[0][shared] for name in parts):
        shared += 1
    return ["/".join(name[shared:]) for name in parts]


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
    page.tunes = [TuneSection(directory, record, tune_charts(record)) for directory, record in tunes]
    for number, (name, root) in enumerate(runs[:MAX_SECTIONS], start=1):
        try:
            page.runs.append(run_section(root, f"run{number}", name))
        except HarnessError as error:
            page.unread.append(f"{name}: {error.message}")
    page.unread += [
        f"{name}: not shown, because a page shows at most {MAX_SECTIONS} runs" for name, _ in runs[MAX_SECTIONS:]
    ]
    for name, root in folders:
        try:
            page.points += [point] if (point := point_of_folder(root, name)) is not None else []
        except HarnessError as error:
            page.unread.append(f"{name}: {error.message}")
    if page.points:
        over_http = [point_of_run(run.manifest, run.result, run.name) for run in page.runs]
        page.points += [point for point in over_http if point is not None]
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
    lines = [] if offline is None else [Line(offline, f"Offline {readable_rate(offline)}", "x")]
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
    rate = readable_rate(point.tokens_per_second)
    text = f"{point.load}: {milliseconds(value)} {unit} at {rate} tokens/s, {point.name}"
    return Point(point.tokens_per_second, value, text, point.load)
