"""H: accuracy and performance runs are of one system, under LoadGen's load; repeated responses take as long as new
ones, and those of a performance run as long as those of an accuracy run."""

import itertools
from collections.abc import Iterator
from pathlib import Path
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
from compliance.evidence.same_system import AUDIT, DATA_OF_MODES, MODES
from compliance.judge.finding import Finding, fail, note, warn
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
from runs.record.finished_run import FinishedRun
from runs.record.requests_log import NO_TIME, RequestTable
from runs.record.server_facts import prompt_reuse

# Of the accuracy run's median time per output token, and in SingleStream time to first token, at the same load. Pairs
# of an engine that only waits are within 2 %; a busy machine makes one of them slower.
FASTER_FLAG = 1.5
MIN_IDLE = 0.01  # share of the cores that a run has on the busiest machine
_AUDIT = OutputCaching()
_PASSED = "H-5/caching_audited"
# Scenarios whose arrival rate hides a cache: the audit refuses them, and verify judges the run's own repetitions.
_NO_AUDIT = frozenset({"Server", "Interactive"})
# Rules that a run of an audit may break: it has the audit's settings, may be too short, and repeats samples.
_AUDIT_RULES = frozenset(
    {"perf-audit-settings", "perf-validity", "plausible-repeats", "P-7/settings_contradict_record"}
)


@checks("H-1", ("missing_raw", "error", "there is a run of each mode"))
def harness(runs: list[Evidence]) -> Iterator[Finding]:
    """All checks H on the runs of one result."""
    modes = {evidence.is_performance for evidence in runs}
    if lacking := [name for name, mode in (("performance", True), ("accuracy", False)) if mode not in modes]:
        text = f"no {lacking[0]} run: the two modes cannot be compared"
        yield fail("H-1/missing_raw", text, *(run.dir.root for run in runs[:1]))
    yield from coherent(runs)
    for evidence in runs:
        if evidence.is_performance:
            yield from _load(evidence)
            yield from caching(evidence)
    yield from one_system_in_both_modes(runs)


def one_system_in_both_modes(runs: list[Evidence]) -> Iterator[Finding]:
    """H-1, H-3, H-7 and H-8: every performance run against every accuracy run."""
    for evidence, other in itertools.product(runs, runs):
        if evidence.is_performance and not other.is_performance:
            yield from _parity(evidence, other)
            yield from pace(evidence, other)


@checks(
    "H-1",
    ("other_path", "error", "both modes ran in one configuration"),
    ("other_answers", "error", "both modes gave the same responses"),
    ("output_consistency", "note", "both modes gave the same responses"),
)
@checks("H-3", ("other_model_or_data", "error", "both modes ran one model on one dataset"))
@checks(
    "H-7",
    ("other_length", "error", "outputs are as long as in the accuracy run"),
    ("output_length", "note", "outputs are as long as in the accuracy run"),
)
def _parity(performance: Evidence, accuracy: Evidence) -> Iterator[Finding]:
    """H-1 and H-3 by the records; responses and H-7 by the audits that need no runs of their own."""
    pair = accuracy, performance
    yield from [*one_system(pair, DATA_OF_MODES)] or one_system(pair, MODES)
    if performance.part is None or accuracy.part is None or performance.requests is None:
        return
    audits: tuple[tuple[str, str, AuditTest[Any]], ...] = (
        ("H-1/other_answers", "H-1/output_consistency", OutputConsistency()),
        ("H-7/other_length", "H-7/output_length", OutputLength()),
    )
    runs = [  # read once for both audits
        RunArtifacts.of(accuracy, RunSpec("accuracy", "accuracy")),
        RunArtifacts.of(performance, RunSpec("performance")),
    ]
    for broken, kept, audit in audits:
        try:
            result = audit.verify(request_beside(performance, audit), runs)
        except HarnessError as error:
            yield fail(broken, f"{audit.name} cannot judge: {error.message}", performance.dir.root)
        else:
            rule, make = (kept, note) if result.passed else (broken, fail)
            yield make(rule, result.reason, performance.dir.root)


@checks("H-2", ("not_representative", "error", "every loaded sample was issued, equally often"))
def _load(evidence: Evidence) -> Iterator[Finding]:
    """H-2: every loaded sample was issued, equally often where the count allows it."""
    table = evidence.requests
    if table is None or not len(table):
        return
    loaded = evidence.detail.loaded_qsl_set
    issued, counts = np.unique(table.sample_index, return_counts=True)
    where = evidence.dir.requests
    if len(table) >= len(loaded) and len(issued) != len(loaded):
        text = f"{len(issued)} different samples were issued, {len(loaded)} were loaded"
        yield fail("H-2/not_representative", text, where, issued=len(issued), loaded=len(loaded))
    elif len(table) % len(loaded) == 0 and counts.min() != counts.max():
        text = f"samples were issued {counts.min()} to {counts.max()} times, not equally often"
        yield fail("H-2/not_representative", text, where, fewest=int(counts.min()), most=int(counts.max()))


@checks(
    "H-5",
    ("caching_audit_absent", "warning", "an audit or repetitions show that no response is cached"),
    ("caching_audit_failed", "error", "the audit of output caching passes"),
    ("caching_audit_forged", "error", "the audit of output caching can be judged again, and is of this system"),
    ("caching_audited", "note", "the audit of output caching passes"),
    ("caching_not_seen", "note", "there are enough repetitions to find a cache"),
    ("repetitions_cost", "note", "repetitions take as long as new samples"),
)
def caching(evidence: Evidence) -> Iterator[Finding]:
    """H-5: an audit, judged again from its runs, or the run's repetitions show that responses are not cached."""
    state = audit_beside(evidence, _AUDIT.name)
    record = state.record
    if state.outcome != "missing":
        yield from _audited(evidence, state)
    elif (
        evidence.scenario not in _NO_AUDIT
        and evidence.manifest is not None
        and prompt_reuse(evidence.manifest).is_unobserved
    ):
        text = "no audit of output caching, and the server does not count what it takes from a cache"
        yield fail("H-5/caching_audit_absent", text, record)
    elif evidence.part is not None and any(
        one.rule == "plausible-repeats" and one.passed for one in evidence.part.checks
    ):
        text = "no audit of output caching, but repetitions in the run take as long as new samples"
        yield note("H-5/repetitions_cost", text, evidence.dir.requests)
    elif evidence.scenario in _NO_AUDIT:
        text = "too few or too quick repetitions to rule a cache out; the audit of output caching refuses this scenario"
        yield note("H-5/caching_not_seen", text, evidence.dir.requests)
    else:
        text = "no audit of output caching, and too few or too quick repetitions in the run to rule a cache out"
        yield warn("H-5/caching_audit_absent", text, record)


def output_caching_passed(run: FinishedRun) -> bool:
    """Whether a performance run has an audit of output caching of its system that passes when judged again."""
    return any(finding.rule == _PASSED for finding in caching(Evidence.of(run)))


def _audited(evidence: Evidence, state: AuditState) -> Iterator[Finding]:
    """Judge the audit by its runs, judged again: its record is no evidence."""
    if state.outcome != "PASS":
        rule = {"no verdict": "H-5/caching_audit_absent", "FAIL": "H-5/caching_audit_failed"}
        make = warn if state.outcome == "no verdict" else fail
        text = f"the audit of output caching {state.why}"
        yield make(rule.get(state.outcome, "H-5/caching_audit_forged"), text, state.record)
        return
    # Of the samples that decided: shorter reference runs before them only showed that more were needed.
    unique = max(run.requested for run in state.runs if run.spec.settings["performance_issue_unique"])
    fewest = max(run.requested for run in state.runs if not run.spec.settings["performance_issue_unique"])
    if fewest < unique:
        text = f"the audit of output caching has {fewest} queries of repeated samples, {unique} of unique ones"
        yield warn("H-5/caching_audit_absent", text, state.record)
        return
    broken = list(audit_problems(evidence, [run.dir.root for run in state.runs]))
    yield from broken
    if state.result is not None and all(reason.severity != "error" for reason in broken):
        yield note(_PASSED, f"judged again: {state.result.reason}", state.record)


def audit_problems(evidence: Evidence, runs: list[Path]) -> Iterator[Finding]:
    """Errors in the runs of an audit of a performance run: each alone, and as runs of one system."""
    found, reasons = load(runs, evidence.sources)
    every = [evidence, *found]
    broken = [*reasons, *between_runs(every), *one_model(every), *one_bundle(every)]
    broken += [reason for other in found for reason in run_proofs(other).findings]
    yield from (reason for reason in broken if reason.severity == "error" and reason.rule not in _AUDIT_RULES)
    yield from one_system(every, AUDIT)


@checks("H-8", ("faster_than_accuracy", "error", "performance is not faster than accuracy at the same load"))
def pace(performance: Evidence, accuracy: Evidence) -> Iterator[Finding]:
    """H-8: a run whose responses are cached or from another engine is faster than the run that logs responses.

    In Server, only runs at the same rate or a higher one are compared. The time to first token includes the queue, so
    it is compared in SingleStream only. The limit rises with the cores that others used during the accuracy run; a
    difference within the error of our times is a warning at most.
    """
    ours, theirs = performance.requests, accuracy.requests
    if ours is None or theirs is None or min(len(ours), len(theirs)) < FEW_SAMPLES:
        return
    if performance.scenario != accuracy.scenario:
        return
    rates = [evidence.detail.number("effective_target_qps") for evidence in (performance, accuracy)]
    if performance.detail.scenario == "Server" and rates[0] < rates[1]:
        return
    busy = accuracy.manifest.observed.foreign_share if accuracy.manifest is not None else 0.0
    factor = FASTER_FAIL / max(MIN_IDLE, 1 - busy)
    measures = [("time per output token", _tpot_ms, float(np.median(theirs.output_tokens)))]
    if performance.detail.scenario == "SingleStream":
        measures.append(("time to first token", _ttft_ms, 1.0))
    for name, median_ms, times in measures:
        here_ms, there_ms = median_ms(ours), median_ms(theirs)
        if not here_ms or not there_ms or there_ms < FASTER_FLAG * here_ms:
            continue
        text = f"the median {name} is {here_ms:.4g} ms, and {there_ms:.4g} ms in the accuracy run at no higher load"
        seen = (there_ms - here_ms) * times * 1e6 > STAMP_MEDIAN_NS
        make = fail if seen and there_ms >= factor * here_ms else warn
        where = performance.dir.requests
        yield make("H-8/faster_than_accuracy", text, where, performance_ms=here_ms, accuracy_ms=there_ms)


def _ttft_ms(table: RequestTable) -> float:
    known = table.first_token_ns != NO_TIME
    return _median_ms((table.first_token_ns - table.issue_ns)[known])


def _tpot_ms(table: RequestTable) -> float:
    known = (table.first_token_ns != NO_TIME) & (table.output_tokens > 1)
    spans_ns = (table.complete_ns - table.first_token_ns)[known]
    return _median_ms(spans_ns / (table.output_tokens[known] - 1))


def _median_ms(times_ns: NDArray[Any]) -> float:
    """0 without times."""
    return float(np.median(times_ns)) / 1e6 if len(times_ns) else 0.0
