"""Checks H: the runs of a result used one system and LoadGen's own load, and no cached responses."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compliance.audits.audit_registry import request_beside
from compliance.audits.base import AuditTest, RunSpec
from compliance.audits.catalog.output_caching import OutputCaching
from compliance.audits.catalog.output_consistency import OutputConsistency
from compliance.audits.catalog.output_length import OutputLength
from compliance.audits.run_artifacts import RunArtifacts
from compliance.audits.state import AuditState, audit_beside
from compliance.judge.verdict import Finding, Severity, stated
from compliance.results.details import rule_findings
from compliance.results.same_system import AUDIT, DATA_OF_MODES, MODES
from compliance.signoff.coherence import coherent, one_model
from compliance.signoff.evidence import (
    FASTER_FAIL,
    FEW_SAMPLES,
    STAMP_MEDIAN_NS,
    Evidence,
    checks,
    load,
)
from compliance.signoff.provenance import between_runs, one_bundle, one_system, run_proofs
from runs.errors import HarnessError
from runs.record.engines.server_facts import prompt_reuse
from runs.record.finished_run import FinishedRun
from runs.record.requests_log import NO_TIME, RequestTable

# Ratio of the median times per output token (SingleStream: also TTFT) in the accuracy run and in the performance run,
# at equal load. With the dummy engine, the two differ by at most 2% unless other processes slow one run.
FASTER_FLAG = 1.5
MIN_IDLE = 0.01  # minimum share of the cores that other processes leave to a run
_AUDIT = OutputCaching()
_PASSED = "H-5/caching_audited"
# In these scenarios the arrival rate hides a cache. The audit refuses them; `verify` checks repeated samples instead.
_NO_AUDIT = frozenset({"Server", "Interactive"})
# Rules that an audit run may violate, because it has audit settings, may be too short, and repeats samples.
_AUDIT_RULES = frozenset(
    {"perf-audit-settings", "perf-validity", "plausible-repeats", "P-7/settings_contradict_record"}
)


@checks("H-1", ("missing_raw", "error", "missing performance or accuracy run"))
def harness(runs: list[Evidence]) -> Iterator[Finding]:
    """Apply all checks H to the runs of one result."""
    modes = {evidence.is_performance for evidence in runs}
    if lacking := [name for name, mode in (("performance", True), ("accuracy", False)) if mode not in modes]:
        text = f"the {lacking[0]} run is missing: the two modes cannot be compared"
        yield stated("H-1/missing_raw", text, *(run.dir.root for run in runs[:1]))
    yield from coherent(runs)
    for evidence in runs:
        if evidence.is_performance:
            yield from _load(evidence)
            yield from caching(evidence)
    yield from one_system_in_both_modes(runs)


def one_system_in_both_modes(runs: list[Evidence]) -> Iterator[Finding]:
    """Compare every performance run with every accuracy run (H-1, H-3, H-7, H-8)."""
    for evidence, accuracy in itertools.product(runs, runs):
        if evidence.is_performance and not accuracy.is_performance:
            yield from _parity(evidence, accuracy)
            yield from pace(evidence, accuracy)


@checks(
    "H-1",
    ("other_path", "error", "differences in configuration between the modes"),
    ("other_answers", "error", "different responses in the two modes"),
    ("output_consistency", "note", "agreement of the responses of both modes"),
)
@checks("H-3", ("other_model_or_data", "error", "model and dataset of the two modes"))
@checks(
    "H-7",
    ("other_length", "error", "output length, compared with the accuracy run"),
    ("output_length", "note", "output length, compared with the accuracy run"),
)
def _parity(performance: Evidence, accuracy: Evidence) -> Iterator[Finding]:
    """Compare the manifests (H-1, H-3), then responses and their lengths with the rules of the audits (H-1, H-7)."""
    pair = accuracy, performance
    yield from [*one_system(pair, DATA_OF_MODES)] or one_system(pair, MODES)
    if performance.part is None or accuracy.part is None or performance.requests is None:
        return
    audits: tuple[tuple[str, str, AuditTest[Any]], ...] = (
        ("H-1/other_answers", "H-1/output_consistency", OutputConsistency()),
        ("H-7/other_length", "H-7/output_length", OutputLength()),
    )
    runs = [  # the responses are read once for both audits
        RunArtifacts.of(accuracy, spec=RunSpec("accuracy", "accuracy")),
        RunArtifacts.of(performance, spec=RunSpec("performance")),
    ]
    for violated, met, audit in audits:
        try:
            result = audit.verify(request_beside(performance, audit), runs)
        except HarnessError as error:
            yield stated(
                violated, f"the rules of {audit.name} cannot be applied: {error.message}", performance.dir.root
            )
        else:
            yield stated(met if result.passed else violated, result.reason, performance.dir.root)


@checks("H-2", ("not_representative", "error", "number of times that each loaded sample was issued"))
def _load(evidence: Evidence) -> Iterator[Finding]:
    """Check that every loaded sample was issued, and equally often if the number of queries allows it (H-2)."""
    table = evidence.requests
    if table is None or not len(table):
        return
    loaded = evidence.detail.loaded_qsl_set
    issued, counts = np.unique(table.sample_index, return_counts=True)
    where = evidence.dir.requests
    if len(table) >= len(loaded) and len(issued) != len(loaded):
        issued_text, required = f"{len(issued)} distinct samples were issued", f"{len(loaded)} were loaded"
        yield stated(
            "H-2/not_representative",
            "",
            where,
            found=issued_text,
            required=required,
            issued=len(issued),
            loaded=len(loaded),
        )
    elif len(table) % len(loaded) == 0 and counts.min() != counts.max():
        text = f"samples were issued {counts.min()} to {counts.max()} times, required: equally often"
        yield stated("H-2/not_representative", text, where, fewest=int(counts.min()), most=int(counts.max()))


@checks(
    "H-5",
    ("caching_audit_absent", "warning", "missing proof that responses are not cached"),
    ("caching_audit_failed", "error", "verdict of the output_caching audit"),
    ("caching_audit_forged", "error", "runs and system of the output_caching audit"),
    ("caching_audited", "note", "verdict of the output_caching audit"),
    ("caching_not_seen", "note", "repeated samples that could show a cache"),
    ("repetitions_cost", "note", "latency of repeated samples, compared with new samples"),
)
def caching(evidence: Evidence) -> Iterator[Finding]:
    """Check that responses are not cached (H-5), with the re-evaluated audit or with repeated samples of the run."""
    state = audit_beside(evidence, _AUDIT.name)
    record = state.record
    if state.outcome != "missing":
        yield from _audited(evidence, state)
    elif (
        evidence.scenario not in _NO_AUDIT
        and evidence.manifest is not None
        and prompt_reuse(evidence.manifest).is_unobserved
    ):
        text = "the output_caching audit is missing, and the server does not report cached prompt tokens"
        yield stated("H-5/caching_audit_absent", text, record, severity="error")
    elif evidence.part is not None and any(
        check.rule == "plausible-repeats" and check.passed for check in rule_findings(evidence.part)
    ):
        text = "the output_caching audit is missing; repeated samples of the run take as long as new samples"
        yield stated("H-5/repetitions_cost", text, evidence.dir.requests)
    elif evidence.scenario in _NO_AUDIT:
        text = "a cache cannot be excluded: repeated samples are too few or too fast, and the output_caching audit"
        text += " does not support this scenario"
        yield stated("H-5/caching_not_seen", text, evidence.dir.requests)
    else:
        text = "the output_caching audit is missing, and repeated samples of the run are too few or too fast"
        text += " to exclude a cache"
        yield stated("H-5/caching_audit_absent", text, record)


def output_caching_passed(run: FinishedRun) -> bool:
    """Return True if a performance run has an output_caching audit of its system that passes when re-evaluated."""
    return any(finding.rule == _PASSED for finding in caching(Evidence.of(run)))


def _audited(evidence: Evidence, state: AuditState) -> Iterator[Finding]:
    """Check the output_caching audit by re-evaluating its runs. The verdict in audit_<test>.json does not count."""
    if state.outcome != "PASS":
        rule = {"no verdict": "H-5/caching_audit_absent", "FAIL": "H-5/caching_audit_failed"}
        text = f"the output_caching audit {state.why}"
        yield stated(rule.get(state.outcome, "H-5/caching_audit_forged"), text, state.record)
        return
    # Compare the longest run of each kind, because the audit repeats a run with more samples if it was too short.
    unique = max(run.requested for run in state.runs if run.spec.settings["performance_issue_unique"])
    fewest = max(run.requested for run in state.runs if not run.spec.settings["performance_issue_unique"])
    if fewest < unique:
        text = f"queries of repeated samples in the output_caching audit: {fewest}, required: at least {unique}"
        yield stated("H-5/caching_audit_absent", text, state.record)
        return
    violated = list(audit_problems(evidence, state.runs))
    yield from violated
    if state.result is not None and all(reason.severity != "error" for reason in violated):
        yield stated(_PASSED, f"re-evaluated: {state.result.reason}", state.record)


def audit_problems(evidence: Evidence, runs: Sequence[FinishedRun]) -> Iterator[Finding]:
    """Yield errors in the audit runs that belong to a performance run: in single runs and in the whole audit."""
    loaded, reasons = load([run.dir.root for run in runs], evidence.sources, runs)
    evidences = [evidence, *loaded]
    violated = [*reasons, *between_runs(evidences), *one_model(evidences), *one_bundle(evidences)]
    violated += [reason for audit_run in loaded for reason in run_proofs(audit_run)]
    yield from (reason for reason in violated if reason.severity == "error" and reason.rule not in _AUDIT_RULES)
    yield from one_system(evidences, AUDIT)


@checks("H-8", ("faster_than_accuracy", "error", "speed of the performance run, relative to the accuracy run"))
def pace(performance: Evidence, accuracy: Evidence) -> Iterator[Finding]:
    """Check that the performance run is not much faster than the accuracy run (H-8). Cached responses would be faster.

    In Server, the performance run must have at least the rate of the accuracy run. TTFT includes the queue, so it is
    compared in SingleStream only. The limit rises with the CPU time of other processes during the accuracy run. A
    difference within the error of measurement is a warning.
    """
    table, reference_table = performance.requests, accuracy.requests
    if table is None or reference_table is None or min(len(table), len(reference_table)) < FEW_SAMPLES:
        return
    if performance.scenario != accuracy.scenario:
        return
    rates = [evidence.detail.number("effective_target_qps") for evidence in (performance, accuracy)]
    if performance.detail.scenario == "Server" and rates[0] < rates[1]:
        return
    busy = accuracy.manifest.observed.foreign_share if accuracy.manifest is not None else 0.0
    factor = FASTER_FAIL / max(MIN_IDLE, 1 - busy)
    measures = [("time per output token", _tpot_ms, float(np.median(reference_table.output_tokens)))]
    if performance.detail.scenario == "SingleStream":
        measures.append(("time to first token", _ttft_ms, 1.0))
    for name, median_ms, times in measures:
        here_ms, there_ms = median_ms(table), median_ms(reference_table)
        if not here_ms or not there_ms or there_ms < FASTER_FLAG * here_ms:
            continue
        median_text, required = (
            f"median {name}: {here_ms:.4g} ms",
            f"{there_ms:.4g} ms in the accuracy run at equal or lower load",
        )
        seen = (there_ms - here_ms) * times * 1e6 > STAMP_MEDIAN_NS
        severity: Severity = "error" if seen and there_ms >= factor * here_ms else "warning"
        where = performance.dir.requests
        yield stated(
            "H-8/faster_than_accuracy",
            "",
            where,
            found=median_text,
            required=required,
            performance_ms=here_ms,
            accuracy_ms=there_ms,
            severity=severity,
        )


def _ttft_ms(table: RequestTable) -> float:
    has_first_token = table.first_token_ns != NO_TIME
    return _median_ms((table.first_token_ns - table.issue_ns)[has_first_token])


def _tpot_ms(table: RequestTable) -> float:
    return _median_ms(table.tpot_ns())


def _median_ms(times_ns: NDArray[Any]) -> float:
    """Return the median in ms; 0 if the list of times is empty."""
    return float(np.median(times_ns)) / 1e6 if len(times_ns) else 0.0
