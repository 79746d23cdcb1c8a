"""The check and the numbers of a finished run of the client, which its verify.json records."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compliance.judge.verdict import Finding, judge
from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
from compliance.mlperf_endpoints.steady_window import SteadyState
from compliance.mlperf_endpoints.summary_comparison import reported_differences
from compliance.mlperf_endpoints.verdict import OFFICIAL, FolderVerdict, client_run
from runs.files.writing import write_json
from runs.mlperf_endpoints.events import EventColumn
from runs.mlperf_endpoints.layout import EVENTS
from scenarios.curve.client_config import PlannedLoad, point_settings
from scenarios.curve.curve_config import CurveConfig
from scenarios.curve.curve_dir import VERIFIED

SCHEMA_VERSION = 1
ACCURACY_RULE = "endpoints-rule-accuracy"
FAILURES_RULE = "endpoints-rule-failures"
# Sections of the configuration that must be in effect. The client adds defaults to each.
_SECTIONS = ("type", "model_params", "settings", "endpoint_config")


def examine_probe(
    folder: Path, load: PlannedLoad, settings: Mapping[str, Any], identity: Mapping[str, Any]
) -> dict[str, Any]:
    """Measure a probe, and record it with its settings and the facts of the server. Its samples may have failed."""
    case = client_run(folder)
    failed = 0 if case.load is None else int(case.load.events.failed.sum())
    numbers = {} if case.load is None or failed else _numbers(case, load)
    record = {"schema_version": SCHEMA_VERSION, "failed": failed, "settings": settings, "identity": identity, **numbers}
    write_json(folder / VERIFIED, record)
    return record


def examine_point(
    curve: CurveConfig, folder: Path, load: PlannedLoad, config: Mapping[str, Any], identity: Mapping[str, Any]
) -> dict[str, Any]:
    """Check the run of a point as `verify --official` does, and return its record.

    Args:
        config: Configuration that the client received.
        identity: Facts of the client and the server that all points share; None: not known yet.
    """
    case = client_run(folder, curve.tokenizer, None, curve.tables)
    verdict = judge(case, OFFICIAL)
    reasons = [finding.sentence for finding in point_violations(verdict, is_rehearsal=curve.is_rehearsal)]
    reasons += [] if verdict.error is None else [verdict.error.message]
    reasons += _differences(case, load, config, identity)
    steady = None if verdict.error is not None or reasons else case.steady_state
    summary = case.run.summary if case.error is None else None
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict.outcome,
        "reasons": reasons,
        "accuracy_failed": any(
            finding.rule == ACCURACY_RULE for finding in point_violations(verdict, is_rehearsal=False)
        ),
        "rehearsal": curve.is_rehearsal,
        "settings": point_settings(config),
        "identity": dict(identity) | {"git_sha": None if summary is None else summary.git_sha},
        "steady_state": None if steady is None else steady.declared,
        **({} if reasons else _numbers(case, load, steady)),
    }


def point_violations(verdict: FolderVerdict, *, is_rehearsal: bool) -> Iterator[Finding]:
    """Yield the errors of a point; in a rehearsal, without most rules of the round."""
    for finding in verdict.of("error"):
        if not (is_rehearsal and finding.kind == "official" and finding.rule != FAILURES_RULE):
            yield finding


def _differences(
    case: EndpointsEvidence, load: PlannedLoad, config: Mapping[str, Any], identity: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the differences between the run and the plan."""
    run = case.run
    if case.error is not None or run.summary is None or run.config is None:
        return
    summary = run.summary
    if not summary.complete:
        yield "the client did not complete the run"
    if summary.n_samples_failed:
        yield f"failed samples: {summary.n_samples_failed}, required: 0"
    if summary.n_samples_issued != load.samples:
        yield f"issued samples: {summary.n_samples_issued}, required: {load.samples}"
    requested = {section: config[section] for section in _SECTIONS}
    for name, value, wanted in reported_differences(run.raw_config, requested):
        yield f"config.yaml: {name}: {value}, required: {wanted}"
    planned_sha = identity.get("git_sha")
    if planned_sha and summary.git_sha != planned_sha:
        yield f"git_sha of the client: {summary.git_sha}, required: {planned_sha}"


def _numbers(case: EndpointsEvidence, load: PlannedLoad, steady: SteadyState | None = None) -> dict[str, Any]:
    phase = case.load
    assert phase is not None
    events_path = case.run.path(EVENTS)
    window = None if steady is None else steady.window
    tokens, summary = case.reported_tokens, case.run.summary
    mean_tpot_ns = None if summary is None else summary.tpot.avg
    duration_s = float(phase.complete_ns.max() - phase.start_ns) / 1e9
    return {
        "samples": len(phase.rows),
        "rate": measured_rate(phase.issued_ns, phase.complete_ns, 0 if load.is_offline else load.concurrency),
        "duration_s": duration_s,
        "tokens_per_second": None if tokens is None or not duration_s else float(tokens) / duration_s,
        "tokens_per_user": 1e9 / float(mean_tpot_ns) if mean_tpot_ns else None,
        "event_bytes": events_path.stat().st_size,
        "crop": None if steady is None else steady.cropped,
        "window_passes": None if window is None else window.passes_for_precision,
    }


def measured_rate(issued_ns: EventColumn, complete_ns: EventColumn, concurrency: int) -> float:
    """Return the rate of a run in samples/s.

    At a fixed concurrency, each issue after the first ones follows a response. The time between the first and the last
    issue therefore has neither a ramp nor a drain.
    """
    span_ns = int(issued_ns.max() - issued_ns.min())
    if concurrency and len(issued_ns) > concurrency and span_ns:
        return (len(issued_ns) - concurrency) / span_ns * 1e9
    return len(issued_ns) / max(int(complete_ns.max() - issued_ns.min()), 1) * 1e9
