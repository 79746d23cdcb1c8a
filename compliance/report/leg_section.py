"""What the page says of one leg: numbers, pictures, findings, settings."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from compliance.accuracy.accuracy_verdict import read_scores
from compliance.evidence.performance import verify_performance
from compliance.finding import Finding
from compliance.report import pictures
from compliance.report.ceiling import ceiling_rows
from compliance.report.pictures import Limit, Picture
from compliance.report.series import cdf, time_series
from runs.errors import HarnessError, InputError
from runs.loadgen.detail_log import read_detail
from runs.loadgen.trace_log import read_trace
from runs.numbers.numbers import LatencyNumbers, Numbers
from runs.numbers.rederive import Derived, derive, time_per_output_token_ns
from runs.numbers.result import Result, read_result
from runs.record.layout import RunDir
from runs.record.leg import finished_leg
from runs.record.manifest import Manifest, read_manifest
from runs.record.requests_log import RequestTable, read_requests
from runs.wording import duration, milliseconds, moment

FIX = "name the directory of a finished leg"
_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "p99_9", "max")


@dataclass
class LegSection:
    """One leg on the page; plain values, ready to be set into the template."""

    key: str  # unique on the page: its anchor
    name: str
    directory: Path
    manifest: Manifest
    result: Result
    outcome: str
    good: bool
    when: str
    latencies: list[tuple[str, list[str], str]] = field(default_factory=list)  # label, statistics, limit
    scores: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    finish_reasons: dict[str, int] = field(default_factory=dict)
    tables: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)

    @property
    def samples_per_second(self) -> float | None:
        return None if self.result.reported is None else self.result.reported.samples_per_second

    @property
    def tokens_per_second(self) -> float | None:
        return None if self.result.reported is None else self.result.reported.tokens_per_second

    def p99(self, label: str) -> str:
        """A latency, with its limit where it has one; empty where there is none."""
        found = [(values[_STATISTICS.index("p99")], limit) for name, values, limit in self.latencies if name == label]
        return " / ".join(text for text in found[0] if text) if found else ""


def leg_section(root: Path, key: str, name: str) -> LegSection:
    """Read a finished leg and draw it.

    Raises:
        InputError: its files are missing or damaged.
    """
    run = RunDir(root)
    manifest, result = read_manifest(run.manifest), read_result(run.result)
    requests = read_requests(run.requests)
    if not len(requests):
        raise InputError(f"{run.requests} is empty", FIX)
    negative = bool(manifest.exit_code)
    section = LegSection(
        key=key,
        name=name,
        directory=root,
        manifest=manifest,
        result=result,
        outcome=result.verdict if manifest.plan.mode == "performance" else ("FAIL" if negative else "scored"),
        good=not negative,
        when=moment(manifest.start_time_ns) if manifest.start_time_ns else "",
        reasons=list(result.reasons),
        notes=[*(f"not official: {reason}" for reason in manifest.unofficial_reasons), *manifest.notes, *result.notes],
    )
    if manifest.plan.mode == "accuracy":
        section.scores, below = score_rows(run)
        section.reasons += below
        section.notes.append("the scores are those of accuracy.json; `main.py verify` scores the answers again")
    else:
        _judge(section, run)
    derived = None
    if result.reported is not None:
        section.latencies = _latency_table(result, result.reported)
        try:
            trace = read_trace(run.trace) if run.trace.exists() else None
            derived = derive(read_detail(run.detail), requests, trace)
        except HarnessError as error:
            section.notes.append(f"no distributions: {error.message}")
    _draw(section, requests, derived)
    section.tables = [
        ("How far from the limit", ceiling_rows(manifest, requests, section.tokens_per_second)),
        ("Where the queries' time went, by vLLM's statistics", _time_rows(manifest)),
        ("What ran", _machine_rows(manifest)),
        ("Settings in force", _setting_rows(manifest, result)),
    ]
    return section


def _latency_table(result: Result, reported: Numbers) -> list[tuple[str, list[str], str]]:
    found = []
    limits_ns = {"TTFT": result.in_force.ttft_limit_ns, "TPOT": result.in_force.tpot_limit_ns}
    for label in ("TTFT", "TPOT", "latency"):
        numbers: LatencyNumbers | None = getattr(reported, f"{label.lower()}_ns")
        if numbers is not None:
            values = [milliseconds(getattr(numbers, name) / 1e6) for name in _STATISTICS]
            limit_ns = limits_ns.get(label)
            found.append((label, values, milliseconds(limit_ns / 1e6) if limit_ns else ""))
    return found


def score_rows(run: RunDir) -> tuple[list[dict[str, Any]], list[str]]:
    """The scores of an accuracy leg, each with its margin over the least that is required, as they were judged,
    and a sentence for each that is below it.

    Scoring them again, which takes minutes for a whole data set, is what `verify` is for.
    """
    record = read_scores(run)
    lowest = {check.name: check.low for check in record.checks}
    rows = [
        {"name": name, "value": value, "margin": (value / lowest[name] - 1) * 100 if lowest.get(name) else None}
        for name, value in record.scores.items()
    ]
    below = [
        f"{check.name} {check.measured:.10g} is not within its target, {check.low:.10g} at the least"
        for check in record.checks
        if not check.passed
    ]
    return rows, below


def _judge(section: LegSection, run: RunDir) -> None:
    """Verify's findings on a performance leg by itself: those that were not kept."""
    try:
        part = verify_performance(finished_leg(run))
    except HarnessError as error:
        section.notes.append(f"verify: {error.message}")
        return
    section.findings = [
        finding
        for finding in part.findings
        if not finding.passed
        and (part.claims_official or finding.kind != "official")
        and not (section.reasons and finding.rule == "perf-validity")  # which says the reasons once more
    ]


def _draw(section: LegSection, requests: RequestTable, derived: Derived | None) -> None:
    over_time = time_series(requests)
    if derived is not None:
        late, times = np.zeros(len(requests), dtype=bool), derived.times
        measures_ns = {"latency": times.latency_ns}
        if times.ttft_ns is not None:
            per_token_ns = time_per_output_token_ns(times.latency_ns, times.ttft_ns, derived.tokens)
            measures_ns = {"TTFT": times.ttft_ns, "TPOT": per_token_ns} | measures_ns
        for label, values_ns in measures_ns.items():
            verdict = derived.early_stopping.verdicts.get(label.lower())
            limit_ns = derived.limits_ns.get(label.lower())
            limit = Limit(limit_ns / 1e6, verdict.late, verdict.allowed) if verdict and limit_ns else None
            numbers: LatencyNumbers | None = getattr(derived.numbers, f"{label.lower()}_ns")
            if numbers is not None:
                section.pictures.append(pictures.distribution(label, cdf(values_ns), numbers.p99 / 1e6, limit))
            if limit_ns is not None:
                late |= values_ns > limit_ns
        if derived.scenario == "Server":
            lateness_ns = np.maximum(times.issued_ns - times.scheduled_ns, 0)
            over_time = time_series(requests, lateness_ns=lateness_ns, late=late)
    section.pictures += [
        pictures.queries_open(over_time),
        pictures.tokens_made(over_time, section.tokens_per_second),
    ]
    if over_time.lateness_ms is not None:
        section.pictures.append(pictures.lateness(over_time))
    section.finish_reasons = dict(Counter(requests.finish_reason).most_common())
    section.pictures += [
        pictures.token_lengths("Tokens in", requests.prompt_tokens, pictures.ONE),
        pictures.token_lengths("Tokens out", requests.output_tokens, pictures.TWO),
    ]
    replica = requests.replica
    if replica is not None and len(found := np.unique(replica)) > 1:
        tokens = {int(number): int(requests.output_tokens[replica == number].sum()) for number in found}
        section.pictures.append(pictures.replicas(tokens))


def _time_rows(manifest: Manifest) -> list[tuple[str, str]]:
    times = manifest.observed.query_times
    if times is None:
        engine = manifest.plan.engine
        off = "they were off; --engine-arg disable_log_stats=false turns them on"
        return [("not known", off if engine == "vllm" else f"engine {engine} keeps none here")]
    parts_s = {"waiting for vLLM": times.queued_s, "prefill": times.prefill_s, "decode": times.decode_s}
    total_s = max(sum(parts_s.values()), 1e-9)
    return [
        (name, f"{part_s / total_s:.1%}, {milliseconds(part_s / times.queries * 1e3)} ms a query")
        for name, part_s in parts_s.items()
    ]


def _machine_rows(manifest: Manifest) -> list[tuple[str, str]]:
    host, plan = manifest.observed.host, manifest.plan
    accelerators = [str(one.get("name")) for one in manifest.observed.accelerators]
    names = [f"{accelerators.count(name)} × {name}" for name in dict.fromkeys(accelerators)]
    versions = manifest.engine.versions
    took_s = ((manifest.end_time_ns or 0) - (manifest.start_time_ns or 0)) / 1e9
    return [
        ("host", f"{host.hostname}, {host.system}"),
        ("processor", f"{host.cpu}, {host.cores_usable} cores usable"),
        ("accelerators", ", ".join(names) or "none"),
        ("engine", f"{plan.engine} " + ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("model", manifest.model.name),
        ("data set", f"{manifest.plan.sample_count:,} rows, SHA-256 {plan.dataset_sha256[:16]}…"),
        ("LoadGen", manifest.observed.loadgen.version),
        ("harness", f"{manifest.observed.harness.version} {(manifest.observed.harness.git_commit or '')[:12]}"),
        ("took", f"{duration(took_s)}, start of the engine and judging included" if took_s > 0 else ""),
    ]


def _setting_rows(manifest: Manifest, result: Result) -> list[tuple[str, str]]:
    configuration = manifest.engine.configuration
    rows = [(name, _plain(value)) for name, value in result.in_force.model_dump().items() if value is not None]
    return rows + [(name, _plain(value)) for name, value in configuration.items() if value not in (None, {}, [])]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
