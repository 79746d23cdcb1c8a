"""H: accuracy and performance legs are of one system, under LoadGen's load; repeated answers take as long as new ones,
and those of a performance leg as long as those of an accuracy leg."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compliance.audits.audit_registry import request_beside
from compliance.audits.base import AuditTest, LegSpec
from compliance.audits.catalog.output_caching import OutputCaching
from compliance.audits.catalog.output_consistency import OutputConsistency
from compliance.audits.catalog.output_length import OutputLength
from compliance.audits.leg_artifacts import LegArtifacts
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
from compliance.signoff.provenance import between_legs, leg_proofs, one_bundle, one_system
from runs.errors import HarnessError
from runs.record.leg import FinishedLeg
from runs.record.requests_log import NO_TIME, RequestTable
from runs.record.server_facts import prompt_reuse

# Of the accuracy leg's median time per output token, and in SingleStream time to first token, at the same load. Pairs
# of an engine that only waits are within 2 %; a busy machine makes one of them slower.
FASTER_FLAG = 1.5
IDLE_LEAST = 0.01  # share of the cores that a leg has on the busiest machine
_AUDIT = OutputCaching()
_PASSED = "H-5/caching_audited"
# Scenarios whose arrival rate hides a cache: the audit refuses them, and verify judges the leg's own repetitions.
_NO_AUDIT = frozenset({"Server", "Interactive"})
# Rules that a leg of an audit may break: it has the audit's settings, may be too short, and repeats samples.
_OF_AN_AUDIT = frozenset(
    {"perf-audit-settings", "perf-validity", "plausible-repeats", "P-7/settings_contradict_record"}
)


@checks("H-1", ("missing_raw", "error", "there is a leg of each mode"))
def harness(legs: list[Evidence]) -> Iterator[Finding]:
    """All checks H on the legs of one result."""
    modes = {evidence.is_performance for evidence in legs}
    if lacking := [name for name, mode in (("performance", True), ("accuracy", False)) if mode not in modes]:
        text = f"no {lacking[0]} leg: the two modes cannot be compared"
        yield fail("H-1/missing_raw", text, *(leg.run.root for leg in legs[:1]))
    yield from coherent(legs)
    for evidence in legs:
        if evidence.is_performance:
            yield from _load(evidence)
            yield from caching(evidence)
    yield from one_system_in_both_modes(legs)


def one_system_in_both_modes(legs: list[Evidence]) -> Iterator[Finding]:
    """H-1, H-3, H-7 and H-8: every performance leg against every accuracy leg."""
    for evidence, other in itertools.product(legs, legs):
        if evidence.is_performance and not other.is_performance:
            yield from _parity(evidence, other)
            yield from pace(evidence, other)


@checks(
    "H-1",
    ("other_path", "error", "both modes ran in one configuration"),
    ("other_answers", "error", "both modes gave the same answers"),
    ("output_consistency", "note", "both modes gave the same answers"),
)
@checks("H-3", ("other_model_or_data", "error", "both modes ran one model on one data set"))
@checks(
    "H-7",
    ("other_length", "error", "outputs are as long as in the accuracy leg"),
    ("output_length", "note", "outputs are as long as in the accuracy leg"),
)
def _parity(performance: Evidence, accuracy: Evidence) -> Iterator[Finding]:
    """H-1 and H-3 by the records; answers and H-7 by the audits that need no legs of their own."""
    pair = accuracy, performance
    yield from [*one_system(pair, DATA_OF_MODES)] or one_system(pair, MODES)
    if performance.part is None or accuracy.part is None or performance.requests is None:
        return
    audits: tuple[tuple[str, str, AuditTest[Any]], ...] = (
        ("H-1/other_answers", "H-1/output_consistency", OutputConsistency()),
        ("H-7/other_length", "H-7/output_length", OutputLength()),
    )
    legs = [  # read once for both audits
        LegArtifacts.of(accuracy, LegSpec("accuracy", "accuracy")),
        LegArtifacts.of(performance, LegSpec("performance")),
    ]
    for broken, kept, audit in audits:
        try:
            result = audit.verify(request_beside(performance, audit), legs)
        except HarnessError as error:
            yield fail(broken, f"{audit.name} cannot judge: {error.message}", performance.run.root)
        else:
            rule, make = (kept, note) if result.passed else (broken, fail)
            yield make(rule, result.reason, performance.run.root)


@checks("H-2", ("not_representative", "error", "every loaded sample was issued, equally often"))
def _load(evidence: Evidence) -> Iterator[Finding]:
    """H-2: every loaded sample was issued, equally often where the count allows it."""
    table = evidence.requests
    if table is None or not len(table):
        return
    loaded = evidence.detail.loaded_qsl_set
    issued, counts = np.unique(table.sample_index, return_counts=True)
    where = evidence.run.requests
    if len(table) >= len(loaded) and len(issued) != len(loaded):
        text = f"{len(issued)} different samples were issued, {len(loaded)} were loaded"
        yield fail("H-2/not_representative", text, where, issued=len(issued), loaded=len(loaded))
    elif len(table) % len(loaded) == 0 and counts.min() != counts.max():
        text = f"samples were issued {counts.min()} to {counts.max()} times, not equally often"
        yield fail("H-2/not_representative", text, where, fewest=int(counts.min()), most=int(counts.max()))


@checks(
    "H-5",
    ("caching_audit_absent", "warning", "an audit or repetitions show that no answer is cached"),
    ("caching_audit_failed", "error", "the audit of output caching passes"),
    ("caching_audit_forged", "error", "the audit of output caching can be judged again, and is of this system"),
    ("caching_audited", "note", "the audit of output caching passes"),
    ("caching_not_seen", "note", "there are enough repetitions to find a cache"),
    ("repetitions_cost", "note", "repetitions take as long as new samples"),
)
def caching(evidence: Evidence) -> Iterator[Finding]:
    """H-5: an audit, judged again from its legs, or the leg's repetitions show that answers are not cached."""
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
        text = "no audit of output caching, but repetitions in the leg take as long as new samples"
        yield note("H-5/repetitions_cost", text, evidence.run.requests)
    elif evidence.scenario in _NO_AUDIT:
        text = "too few or too quick repetitions to rule a cache out; the audit of output caching refuses this scenario"
        yield note("H-5/caching_not_seen", text, evidence.run.requests)
    else:
        text = "no audit of output caching, and too few or too quick repetitions in the leg to rule a cache out"
        yield warn("H-5/caching_audit_absent", text, record)


def output_caching_passed(leg: FinishedLeg) -> bool:
    """Whether a performance leg has an audit of output caching of its system that passes when judged again."""
    return any(finding.rule == _PASSED for finding in caching(Evidence.of(leg)))


def _audited(evidence: Evidence, state: AuditState) -> Iterator[Finding]:
    """Judge the audit by its runs, judged again: its record is no evidence."""
    if state.outcome != "PASS":
        rule = {"no verdict": "H-5/caching_audit_absent", "FAIL": "H-5/caching_audit_failed"}
        make = warn if state.outcome == "no verdict" else fail
        text = f"the audit of output caching {state.why}"
        yield make(rule.get(state.outcome, "H-5/caching_audit_forged"), text, state.record)
        return
    # Of the samples that decided: shorter reference runs before them only showed that more were needed.
    unique = max(leg.requested for leg in state.runs if leg.spec.settings["performance_issue_unique"])
    fewest = max(leg.requested for leg in state.runs if not leg.spec.settings["performance_issue_unique"])
    if fewest < unique:
        text = f"the audit of output caching has {fewest} queries of repeated samples, {unique} of unique ones"
        yield warn("H-5/caching_audit_absent", text, state.record)
        return
    broken = list(audit_problems(evidence, [leg.run.root for leg in state.runs]))
    yield from broken
    if state.result is not None and all(reason.severity != "error" for reason in broken):
        yield note(_PASSED, f"judged again: {state.result.reason}", state.record)


def audit_problems(evidence: Evidence, legs: list[Path]) -> Iterator[Finding]:
    """Errors in the legs of an audit of a performance leg: each alone, and as legs of one system."""
    found, reasons = load(legs, evidence.sources)
    every = [evidence, *found]
    broken = [*reasons, *between_legs(every), *one_model(every), *one_bundle(every)]
    broken += [reason for other in found for reason in leg_proofs(other).findings]
    yield from (reason for reason in broken if reason.severity == "error" and reason.rule not in _OF_AN_AUDIT)
    yield from one_system(every, AUDIT)


@checks("H-8", ("faster_than_accuracy", "error", "performance is not faster than accuracy at the same load"))
def pace(performance: Evidence, accuracy: Evidence) -> Iterator[Finding]:
    """H-8: a leg whose answers are cached or from another engine is faster than the leg that logs answers.

    In Server, only legs at the same rate or a higher one are compared. The time to first token includes the queue, so
    it is compared in SingleStream only. The limit rises with the cores that others used during the accuracy leg; a
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
    factor = FASTER_FAIL / max(IDLE_LEAST, 1 - busy)
    measures = [("time per output token", _tpot_ms, float(np.median(theirs.output_tokens)))]
    if performance.detail.scenario == "SingleStream":
        measures.append(("time to first token", _ttft_ms, 1.0))
    for name, median_ms, times in measures:
        here_ms, there_ms = median_ms(ours), median_ms(theirs)
        if not here_ms or not there_ms or there_ms < FASTER_FLAG * here_ms:
            continue
        text = f"the median {name} is {here_ms:.4g} ms, and {there_ms:.4g} ms in the accuracy leg at no higher load"
        seen = (there_ms - here_ms) * times * 1e6 > STAMP_MEDIAN_NS
        make = fail if seen and there_ms >= factor * here_ms else warn
        where = performance.run.requests
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
