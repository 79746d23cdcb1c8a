"""One run on the page: manifest, result, findings, charts and scores."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compliance.accuracy.accuracy_files import ScoresRecord
from compliance.accuracy.recorded_outcome import recorded_outcome
from compliance.judge.verdict import Finding
from compliance.report.ceiling import ceiling_rows
from compliance.report.chart import Chart
from compliance.report.chart_svg import svg_file
from compliance.report.run_charts import distribution, over_time, overview
from compliance.report.series import time_series
from compliance.results.policy import judge_run
from compliance.results.run_evidence import RunEvidence
from runs.errors import HarnessError, InputError
from runs.numbers.numbers import LatencyNumbers, shows
from runs.numbers.rederive import Derived, derive_numbers, time_per_output_token_ns
from runs.numbers.result import RunNumbers, read_result
from runs.record.engines.server_notes import doubtful_tokens
from runs.record.finished_run import FinishedRun, finished_run
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, read_manifest
from runs.record.requests_log import RequestTable, read_request_table
from runs.wording import counted, milliseconds

_MARKED = ("p99", "p90", "p50")  # percentiles to mark in a picture; the first one with enough samples is used


@dataclass
class RunSection:
    """One run on the page."""

    key: str  # unique anchor on the page
    name: str
    directory: Path
    manifest: Manifest
    result: RunNumbers
    outcome: str  # outcome, in the words of `main.py status`
    scores: list[dict[str, Any]]
    reasons: list[str]
    notes: list[str]
    findings: list[Finding]
    charts: list[Chart]
    counts: list[tuple[str, str]]  # rows on tokens, finish reasons and replicas
    ceiling: list[tuple[str, str]]
    is_changed: bool = False  # a record differs from the attestation

    @property
    def good(self) -> bool:
        is_doubtful = self.is_changed or doubtful_tokens(self.manifest.observed.clients)
        return not self.manifest.exit_code and not is_doubtful


def run_section(root: Path, key: str, name: str) -> RunSection:
    """Read a finished run and draw it.

    Raises:
        InputError: If a file is missing or damaged.
    """
    run_dir = RunDir(root)
    manifest, result, requests = _files_of(run_dir)
    run = FinishedRun(run_dir)
    reasons = [result.load.warning] if result.load and result.load.warning else []
    reasons += filter(None, [*result.reasons, doubtful_tokens(manifest.observed.clients)])
    notes = [
        *(f"not eligible for submission: {reason}" for reason in manifest.unofficial_reasons),
        *manifest.notes,
        *result.notes,
    ]
    scores: list[dict[str, Any]] = []
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
        is_changed=outcome.is_changed,
        scores=scores,
        reasons=reasons,
        notes=notes,
        findings=findings,
        charts=_charts(requests, derived, tokens_per_second),
        counts=_counts(requests),
        ceiling=ceiling_rows(manifest, requests, tokens_per_second),
    )


def _files_of(run: RunDir) -> tuple[Manifest, RunNumbers, RequestTable]:
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
    manifest, result, requests = _files_of(run)
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


def score_rows(record: ScoresRecord) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the scores with their margins above the lower limits in %, and a sentence for each violated limit."""
    lowest = {check.name: check.low for check in record.checks}
    rows = [
        {"name": name, "value": value, "margin": (value / lowest[name] - 1) * 100 if lowest.get(name) else None}
        for name, value in record.scores.items()
    ]
    below = [
        f"{check.name} is {check.measured:.10g}, required: at least {check.low:.10g}"
        for check in record.checks
        if not check.passed
    ]
    return rows, below


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
            marked = next((name for name in _MARKED if shows(name, len(values_ns))), "p50")
            charts.append(distribution(label, values_ns, marked, getattr(numbers, marked), limit_ns, verdict))
        if limit_ns is not None:
            late |= values_ns > limit_ns
    if derived.scenario != "Server":
        return charts + over_time(time_series(requests), tokens_per_second)
    lateness_ns = np.maximum(times.issued_ns - times.scheduled_ns, 0)
    return charts + over_time(time_series(requests, lateness_ns=lateness_ns, late=late), tokens_per_second)


def _counts(requests: RequestTable) -> list[tuple[str, str]]:
    rows = [
        (name, f"{values.mean():,.1f} per sample, from {values.min():,} to {values.max():,}")
        for name, values in (("input tokens", requests.prompt_tokens), ("output tokens", requests.output_tokens))
    ]
    ended = Counter(requests.finish_reason).most_common()
    rows.append(("finish reasons", ", ".join(f"{reason} {count:,}" for reason, count in ended)))
    if requests.replica is not None and (count := int(requests.replica.max()) + 1) > 1:
        tokens = np.bincount(requests.replica, weights=requests.output_tokens, minlength=count)
        busiest = f"{int(tokens.argmax())} has {tokens.max() / max(tokens.mean(), 1):.3f} × the mean"
        rows.append(
            ("output tokens of replicas", f"{', '.join(f'{count:,.0f}' for count in tokens)}; replica {busiest}")
        )
    return rows
