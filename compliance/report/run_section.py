"""One run on a page, from its files: headline, charts, numbers, facts, settings and remarks, as texts with units."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compliance.accuracy.accuracy_files import ACCURACY_OUTCOMES, ScoresRecord
from compliance.accuracy.recorded_outcome import recorded_outcome
from compliance.judge.verdict import Finding
from compliance.report.chart import Chart
from compliance.report.chart_svg import svg_file
from compliance.report.run_charts import distribution, over_time, overview
from compliance.report.run_facts import Rows, run_facts
from compliance.report.series import time_series
from compliance.report.settings import SettingRow, setting_rows
from compliance.results.policy import judge_run
from compliance.results.run_evidence import RunEvidence
from runs.errors import HarnessError, InputError
from runs.numbers.numbers import LatencyNumbers, shows, supported
from runs.numbers.rederive import Derived, derive_numbers, time_per_output_token_ns
from runs.numbers.result import RunNumbers, read_result
from runs.record.engines.server_notes import doubtful_tokens
from runs.record.finished_run import FinishedRun, finished_run
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, read_manifest
from runs.record.requests_log import RequestTable, read_request_table
from runs.wording import counted, finite_limit, milliseconds, moment, precise, readable_rate

_MARKED = ("p99", "p90", "p50")  # percentiles to mark in a chart; the first one with enough samples is used
_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "p99_9", "max")
_LATENCIES = (("ttft", "TTFT"), ("tpot", "TPOT"), ("latency", "latency"))
_GOOD = ("VALID", "PASS", ACCURACY_OUTCOMES[None])
_SHOWN_ELSEWHERE = ("output_log_dir", "label")


@dataclass(frozen=True)
class LatencyRow:
    """The statistics of one latency, and its limit, in ms."""

    measure: str
    name: str
    values_ms: list[float]
    limit_ms: float | None


@dataclass(frozen=True)
class Score:
    """A score, and its margin above the lower limit in %."""

    name: str
    value: float
    margin: float | None


@dataclass(frozen=True)
class RunSection:
    """One run on the page."""

    key: str  # unique anchor on the page
    name: str
    directory: Path
    manifest: Manifest
    result: RunNumbers
    outcome: str  # outcome, in the words of `main.py status`
    scores: list[Score]
    reasons: list[str]
    notes: list[str]
    findings: list[Finding]
    charts: list[Chart]
    facts: list[tuple[str, Rows]]

    @property
    def is_good(self) -> bool:
        return not self.manifest.exit_code and self.outcome in _GOOD

    @property
    def subtitle(self) -> str:
        return f"{self.result.scenario} {self.manifest.plan.mode}, {moment(self.manifest.start_time_ns)}"

    @property
    def samples(self) -> int | None:
        return self.result.counts.samples

    @property
    def main_numbers(self) -> str:
        """The rates, the latencies with their limits, or the scores, in one phrase; empty if the run has no numbers."""
        if self.scores:
            margins = [f"{score.name} {precise(score.value)}{_margin_text(score)}" for score in self.scores]
            return ", ".join(margins)
        numbers = self.result.reported
        if numbers is None:
            return ""
        rates = [(numbers.samples_per_second, "samples/s"), (numbers.tokens_per_second, "tokens/s")]
        texts = [f"{readable_rate(rate)} {unit}" for rate, unit in rates if rate]
        marked = _marked(self.samples)
        column = self.statistics.index(marked) if marked in self.statistics else 0
        for row in self.latencies:
            limit_ms = finite_limit(row.limit_ms)
            limit = "" if limit_ms is None else f" of {milliseconds(limit_ms)} ms"
            if limit or row.name != "latency":
                texts.append(f"{self.statistics[column]} {row.name} {milliseconds(row.values_ms[column])} ms{limit}")
        return ", ".join(texts)

    @property
    def statistics(self) -> tuple[str, ...]:
        """The statistics of the latencies that the run supports."""
        return supported(self.samples, *_STATISTICS)

    @property
    def latencies(self) -> list[LatencyRow]:
        numbers, settings = self.result.reported, self.result.in_force
        limits_ns = {"ttft": settings.ttft_limit_ns, "tpot": settings.tpot_limit_ns}
        rows = []
        for measure, name in _LATENCIES:
            values = getattr(numbers, f"{measure}_ns", None)
            if values is not None:
                limit_ns = limits_ns.get(measure)
                values_ms = [getattr(values, statistic) / 1e6 for statistic in self.statistics]
                rows.append(LatencyRow(measure, name, values_ms, limit_ns / 1e6 if limit_ns else None))
        return rows

    @property
    def limit_name(self) -> str:
        """The percentile to which the limits apply."""
        stopping = self.result.early_stopping
        return "limit" if stopping is None else f"limit of p{100 * stopping.percentile:g}"

    def p99(self, measure: str) -> tuple[float | None, float | None]:
        """Return the p99 of a latency and its limit in ms; None if the run does not support or have it."""
        row = next((row for row in self.latencies if row.measure == measure), None)
        if row is None or "p99" not in self.statistics:
            return None, None
        return row.values_ms[self.statistics.index("p99")], row.limit_ms

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns of the table of latencies."""
        return [(statistic.replace("_", "."), "n") for statistic in self.statistics]

    @property
    def samples_per_second(self) -> float | None:
        return self.result.reported.samples_per_second if self.result.reported else None

    @property
    def tokens_per_second(self) -> float | None:
        return self.result.reported.tokens_per_second if self.result.reported else None

    @property
    def requested(self) -> list[SettingRow]:
        """The options that the user gave, which differ from the defaults."""
        return setting_rows(
            (name, value) for name, value in self.manifest.asked.items() if name not in _SHOWN_ELSEWHERE
        )

    @property
    def effective(self) -> list[SettingRow]:
        """The settings of LoadGen and of the engine."""
        return setting_rows((self.result.in_force.model_dump() | self.manifest.engine.configuration).items())


def _marked(samples: int | None) -> str:
    """Return the highest percentile of _MARKED that a number of samples supports."""
    return next(iter(supported(samples, *_MARKED)), "p50")


def _margin_text(score: Score) -> str:
    return "" if score.margin is None else f" ({score.margin:+.2f}%)"


def run_section(root: Path, key: str, name: str) -> RunSection:
    """Read a finished run and draw it.

    Raises:
        InputError: If a file is missing or damaged.
    """
    run_dir = RunDir(root)
    manifest, result, requests = read_files(run_dir)
    run = FinishedRun(run_dir)
    reasons = [result.load.warning] if result.load and result.load.warning else []
    reasons += filter(None, [*result.reasons, doubtful_tokens(manifest.observed.clients)])
    notes = [
        *(f"not eligible for submission: {reason}" for reason in manifest.unofficial_reasons),
        *manifest.notes,
        *result.notes,
    ]
    scores: list[Score] = []
    findings: list[Finding] = []
    outcome = recorded_outcome(run_dir, manifest, result)
    if outcome.scores is not None:
        scores, below = score_rows(outcome.scores)
        reasons += below
        notes.append("the scores come from accuracy.json; `main.py verify` rescores the responses")
    else:
        try:
            run = RunEvidence.of(finished_run(run_dir))
            run.requests = requests  # keep the request log, so that it is read once
            part = judge_run(run)
            open_findings = (finding for finding in part.findings if not finding.passed and part.counts(finding))
            # The finding perf-validity is left out, because it repeats the reasons.
            findings = [finding for finding in open_findings if not (reasons and finding.rule == "perf-validity")]
        except HarnessError as error:
            notes.append(f"verify: {error.message}")
    derived = None
    if result.reported is not None:
        try:
            derived = derive_numbers(run.detail, requests, run.trace)
        except HarnessError as error:
            notes.append(f"distributions are missing: {error.message}")
    tokens_per_second = result.reported.tokens_per_second if result.reported else None
    return RunSection(
        key=key,
        name=name,
        directory=root,
        manifest=manifest,
        result=result,
        outcome=outcome.text,
        scores=scores,
        reasons=reasons,
        notes=notes,
        findings=findings,
        charts=_charts(requests, derived, tokens_per_second),
        facts=run_facts(manifest, result, requests, tokens_per_second),
    )


def read_files(run: RunDir) -> tuple[Manifest, RunNumbers, RequestTable]:
    """Read the files of a run that a page shows.

    Raises:
        InputError: If a file is missing or damaged, or the run has no request.
    """
    manifest, result = read_manifest(run.manifest), read_result(run.result)
    requests = read_request_table(run.requests)
    if not len(requests):
        raise InputError(f"{run.requests} is empty", "give the directory of a finished run")
    return manifest, result, requests


def overview_of(root: Path) -> bytes:
    """Return a finished run as one picture.

    Raises:
        InputError: If a file is missing or damaged.
    """
    run = RunDir(root)
    manifest, result, requests = read_files(run)
    plan, observed = manifest.plan, manifest.observed
    version = manifest.engine.versions.get(plan.engine, "")
    title = f"{result.scenario} {plan.mode}, {Path(manifest.model.name).name}, {plan.engine} {version}".rstrip()
    title += f": {recorded_outcome(run, manifest, result).text}"
    if not manifest.official:
        title += " (not eligible for submission)"
    lines = [str(result.load)] if result.load else []
    numbers = result.reported
    if numbers is not None:
        facts = [f"{numbers.tokens_per_second:,.1f} tokens/s"] if numbers.tokens_per_second else []
        for label, values in (("TTFT", numbers.ttft_ns), ("TPOT", numbers.tpot_ns)):
            if values is not None and shows("p50", len(requests)):
                facts.append(f"median {label} {milliseconds(values.p50 / 1e6)} ms")
        lines.append(", ".join(facts))
    names = {str(accelerator.get("name")) for accelerator in observed.accelerators}
    where = ", ".join(sorted(names)) or f"{observed.host.cores_usable} cores of {observed.host.cpu}"
    lines.append(f"{counted(len(requests), 'sample')}; LoadGen {observed.loadgen.version}; {where}")
    return svg_file(title, lines, overview(requests, time_series(requests)))


def score_rows(record: ScoresRecord) -> tuple[list[Score], list[str]]:
    """Return the scores with their margins above the lower limits in %, and a sentence for each violated limit."""
    lowest = {check.name: check.low for check in record.checks}
    scores = [
        Score(name, value, (value / lowest[name] - 1) * 100 if lowest.get(name) else None)
        for name, value in record.scores.items()
    ]
    below = [
        f"{check.name} is {check.measured:.10g}, required: at least {check.low:.10g}"
        for check in record.checks
        if not check.passed
    ]
    return scores, below


# Charts -------------------------------------------------------------------------------------------------------------


def _charts(requests: RequestTable, derived: Derived | None, tokens_per_second: float | None) -> list[Chart]:
    if derived is None:
        return over_time(time_series(requests), tokens_per_second)
    charts, times = [], derived.times
    late = np.zeros(len(requests), dtype=bool)
    measures_ns = {"latency": times.latency_ns}
    if times.ttft_ns is not None:
        per_token_ns = time_per_output_token_ns(times.latency_ns, times.ttft_ns, derived.tokens)
        measures_ns = {"TTFT": times.ttft_ns, "TPOT": per_token_ns} | measures_ns
    for label, values_ns in measures_ns.items():
        limit_ns = derived.limits_ns.get(label.lower())
        numbers: LatencyNumbers | None = getattr(derived.numbers, f"{label.lower()}_ns")
        if numbers is not None:
            verdict = derived.early_stopping.verdicts.get(label.lower())
            marked = _marked(len(values_ns))
            charts.append(distribution(label, values_ns, marked, getattr(numbers, marked), limit_ns, verdict))
        if limit_ns is not None:
            late |= values_ns > limit_ns
    if derived.scenario != "Server":
        return charts + over_time(time_series(requests), tokens_per_second)
    lateness_ns = np.maximum(times.issued_ns - times.scheduled_ns, 0)
    return charts + over_time(time_series(requests, lateness_ns=lateness_ns, late=late), tokens_per_second)
