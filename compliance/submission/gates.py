"""The rules on results that may enter a tree: they pass verify and their audits, and their runs have one configuration.

As in the official checker, the open division has no rules on sets of scenarios, audits, accuracy targets and the number
of samples in the Offline query. All other rules apply in every division.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from compliance.audits.audit_registry import IDS
from compliance.audits.discovery import AUDITS
from compliance.audits.state import audit_state
from compliance.judge.rule import OURS, check_of, decides, find_rule
from compliance.judge.verdict import Finding, Policy, Subject, compared
from compliance.results.policy import judge_run
from compliance.results.same_system import CLOSED_TREE, TREE, unlike
from compliance.signoff.harness import output_caching_passed
from compliance.submission.build_inputs import SUBMITTED_TESTS, continuation, unless_running
from compliance.submission.candidate import COMPLETE, AuditDir, Candidate, SubmitRequest
from compliance.submission.refusal_causes import cause_of
from compliance.techniques.quality_gate import judge_rows
from compliance.techniques.row import row_to_submit
from compliance.techniques.technique_registry import GateDivision, load_registries
from runs.benchmarks import SUBMISSIONS
from runs.errors import HarnessError
from runs.harness import PROGRAM
from runs.record.engines.server_facts import prompt_reuse
from runs.record.fingerprint import RESULT, SERVERS, describe_differences, differences, fingerprint
from runs.record.finished_run import ACCURACY
from runs.record.layout import campaign_of
from runs.rounds import round_of


@dataclass(frozen=True)
class SetEvidence(Subject):
    """All results that may enter the tree."""

    candidates: list[Candidate]
    request: SubmitRequest

    kind = "set"

    @property
    def parts(self) -> Sequence[Candidate]:
        return self.candidates


@decides(
    "submit",
    ("submit/leg-missing", "error", "[submission] layout", "missing run", "start the missing run"),
    ("submit/not-ours", "error", OURS, "missing manifest of a run", "submit runs of this harness"),
)  # fmt: skip
def _presence(candidate: Candidate) -> Iterator[Finding]:
    for mode, run in (("performance", candidate.result.performance), ("accuracy", candidate.result.accuracy)):
        if run is None:
            campaign = campaign_of(candidate.result.home)
            fix = (
                f"start the run, and give its directory in addition to {candidate.result.home}"
                if campaign is None
                else continuation(campaign)
            )
            yield compared("submit/leg-missing", False, f"the {mode} run is missing", "", text=candidate.name, fix=fix)
        elif run.manifest is None:
            reason = f"manifest.json of {run.dir.root} is missing"
            yield compared("submit/not-ours", False, reason, "", text=candidate.name, fix="submit runs of this harness")


@decides("submit", needs=("manifest",))
def _verified(candidate: Candidate) -> Iterator[Finding]:
    """Refuse the result for each error that `main.py verify` finds."""
    verdict, error = candidate.verdict, candidate.verdict.error
    contradictions = [(part, finding) for part in verdict.parts for finding in part.contradictions]
    reasons = [("log-damaged", error.message)] if error is not None else []
    reasons += [
        (finding.rule, f"{part.prefix}{finding.sentence}") for part, finding in contradictions + candidate.violated
    ]
    reasons += [(finding.rule, finding.sentence) for finding in verdict.findings if finding.severity == "error"]
    for rule, reason in reasons:
        see = f"see `{PROGRAM} verify {candidate.result.home} --official`"
        yield compared(
            rule, False, reason, "", text=candidate.name, severity="error", fix=f"{find_rule(rule).fix}; {see}"
        )


def never_eligible(where: str, reason: str) -> Finding:
    """Return the finding on a fact that makes a finished run not eligible for submission, whatever runs are added."""
    fix = (
        "start new runs with the model, dataset and settings of the benchmark, or build a marked tree with --rehearsal"
    )
    value, cause = f"not eligible for submission: {reason}", cause_of(reason)
    return compared("submit/not-official", False, value, "", text=where, fix=fix, cause=cause)


@decides(
    "submit",
    ("submit/not-official", "error", "[rules] closed division", "reasons why a run is not eligible for submission",
    "rerun with the settings of the benchmark"),
    needs=("manifest",),
    applies=lambda candidate: "a rehearsal accepts ineligible results" if candidate.request.rehearsal else "",
)  # fmt: skip
def _official(candidate: Candidate) -> Iterator[Finding]:
    """Refuse runs that are not eligible for submission.

    The open division accepts other models and engine options, but no synthetic data and no dummy engine.
    """
    for reason in candidate.inputs if candidate.request.division == "open" else candidate.unofficial:
        yield never_eligible(candidate.name, reason)


@decides("submit", needs=COMPLETE)
def _technique(candidate: Candidate) -> Iterator[Finding]:
    """Refuse a result whose declared technique the gate closes."""
    result, run, registries = candidate.result, candidate.result.performance, load_registries()
    assert run is not None  # `needs` of the check guarantees it
    division: GateDivision = "open" if candidate.request.division == "open" else "closed"
    gate = judge_rows([row_to_submit(result, candidate.verdict, run, registries)], registries, division=division)
    for finding in (violation for row in gate.parts for violation in row.of("error")):
        see = f"see `{PROGRAM} gate {result.home}`"
        yield compared(
            finding.rule,
            False,
            f"technique: {finding.sentence}",
            "",
            text=candidate.name,
            severity="error",
            fix=f"{finding.fix or finding.definition.fix}; {see}",
        )


@decides("submit", needs=("manifest",), also=("perf-seeds", "accuracy-seeds"))
def _seeds(candidate: Candidate) -> Iterator[Finding]:
    for log in (run.detail for run in candidate.all_runs if run.dir.detail.is_file()):
        if log.seeds != candidate.request.round.seeds:
            rule = "accuracy-seeds" if log.mode == ACCURACY else "perf-seeds"
            reason = f"{log.path}: seeds of {round_of(log.seeds) or 'an unknown round'}"
            fix = f"repeat the run in round {candidate.request.round}, or choose the round with --round"
            yield compared(
                rule,
                False,
                reason,
                f"seeds of {candidate.request.round}",
                text=candidate.name,
                severity="error",
                fix=fix,
            )


@decides(
    "submit",
    ("submit/audit", "error", "[rules] audits", "verdict of the re-evaluated audits", "repeat the audit"),
    needs=("manifest",),
    also=("audit-missing",),
)  # fmt: skip
def _audits(candidate: Candidate) -> Iterator[Finding]:
    """Check that the required audits exist, and that each audit passes when it is re-evaluated."""
    is_open = candidate.request.division == "open"
    for test in dict.fromkeys([*(() if is_open else SUBMISSIONS[candidate.benchmark].audits), *candidate.audits]):
        fix = f"run `{PROGRAM} audit --test {test} --scenario {candidate.scenario} ...` and name its directory"
        if test not in candidate.audits:
            reason = f"{test} is missing; {candidate.benchmark} needs it in every scenario"
            yield compared(
                "audit-missing",
                False,
                reason,
                "",
                text=candidate.name,
                fix=unless_running(candidate.result.home, fix),
            )
            continue
        try:
            for rule, reason in _audit_failures(candidate.audits[test]):
                yield compared(rule, False, reason, "", text=candidate.name, severity="error", fix=fix)
        except HarnessError as error:
            yield compared("submit/audit", False, error.message, "", text=candidate.name, fix=fix)


def _audit_failures(audit: AuditDir) -> Iterator[tuple[str, str]]:
    """Yield the rules that an audit violates, each with a reason."""
    state = audit.state
    recorded, result = state.recorded, state.result
    if recorded is None or result is None:
        yield "submit/audit", f"{audit.test} {state.why}"
        return
    if absent := [name for name in IDS if name not in (recorded.model_extra or {})]:
        yield "submit/audit", f"{', '.join(absent)} missing in {state.record.name}"
        return
    if violated := [finding for run in audit.runs for finding in judge_run(run).contradictions]:
        yield from ((finding.rule, f"{audit.test}: {finding.sentence}") for finding in violated)
        return
    for run in state.runs:
        if run.detail.error_count:
            yield "submit/audit", f"{run.dir.detail}: {run.detail.error_count} error records"
    again = f"{audit.test}, re-evaluated from {audit.dir.root}, fails"
    yield from (
        (finding.rule, f"{again}: {finding.sentence}") for finding in result.findings if finding.severity == "error"
    )
    if result.details.get("official_passed") is False:
        yield "submit/audit", f"{audit.test}: the official script prints: {result.text.strip().splitlines()[-1]}"
    for path in state.changed:
        yield "submit/audit", f"{path} differs from the file that follows from the audit runs"


def _no_such_rule(subject: Candidate | SetEvidence) -> str:
    return "the open division has no such rule" if subject.request.division == "open" else ""


@decides("submit", needs=("manifest",), applies=_no_such_rule, also=("submit/audit",))
def _other_audits(candidate: Candidate) -> Iterator[Finding]:
    """Refuse a result with a failed audit, even if the submission does not need this audit."""
    for home, test in product(candidate.homes, [test for test in AUDITS if test not in SUBMITTED_TESTS]):
        state = audit_state(home.audit(test), test, candidate.result.parts[0])
        if state.outcome not in ("missing", "recorded", "PASS"):
            fix = f"correct the system, then repeat the audit with `{PROGRAM} audit --test {test}`"
            reason = f"{test} of this result {state.why}"
            yield compared("submit/audit", False, reason, "", text=candidate.name, fix=fix)


@decides(
    "submit",
    ("submit/one-configuration", "error", "[rules] closed division", "differences between the runs of a result",
     "repeat the runs in one configuration"),
    needs=COMPLETE,
)  # fmt: skip
def _configuration(candidate: Candidate) -> Iterator[Finding]:
    """Compare the configuration of each run and audit run with the performance run."""
    facts = {name: fingerprint(manifest) for name, manifest in candidate.manifests().items()}
    reference = facts.pop("performance")
    for name, facts_of_run in facts.items():
        different = differences(reference, facts_of_run, RESULT)
        for reason in describe_differences(different, "in the performance run", f"in the {name} run"):
            yield compared(
                "submit/one-configuration",
                False,
                reason,
                "",
                text=candidate.name,
                fix="repeat the runs in one configuration",
            )


@decides("submit", needs=("manifest",), applies=_no_such_rule, also=("suite-benchmark", "perf-network"))
def _network(candidate: Candidate) -> Iterator[Finding]:
    """Check that LoadGen reached the SUT as the division requires. [rules: Network Division]"""
    division, suite = candidate.request.division, SUBMISSIONS[candidate.benchmark].suite
    fix = "repeat the runs with --network-sut" if division == "network" else "submit with --division network"
    if division == "network" and suite != "datacenter":
        yield compared(
            "suite-benchmark",
            False,
            f"suite of the benchmark: {suite}",
            "datacenter in the network division",
            text=candidate.name,
            fix=fix,
        )
    for run in candidate.all_runs:
        if run.detail.is_network != (division == "network"):
            reason = f"name of the SUT {run.detail.get('sut_name')!r} in the {division} division"
            yield compared("perf-network", False, f"{run.dir.detail}: {reason}", "", text=candidate.name, fix=fix)


@decides(
    "submit",
    ("submit/prompt-reuse", "error", "[rules] caching", "missing proof that prompts are not reused",
     "run the output_caching audit against the server"),
    applies=_no_such_rule,
)  # fmt: skip
def _reuse_unseen(evidence: SetEvidence) -> Iterator[Finding]:
    """Check that servers report their cached prompt tokens, or passed the output_caching audit."""
    runs = [run for candidate in evidence.candidates if (run := candidate.result.performance) is not None]
    audited = [fingerprint(run.manifest) for run in runs if run.manifest is not None and output_caching_passed(run)]
    for candidate in evidence.candidates:
        records = candidate.manifests().items()
        unseen = (
            name
            for name, manifest in records
            if prompt_reuse(manifest).is_unobserved
            and all(differences(fingerprint(manifest), audited_facts, SERVERS) for audited_facts in audited)
        )
        if name := next(unseen, None):
            reason = "the server does not report cached prompt tokens, and has no passed output_caching audit"
            fix = f"run `{PROGRAM} audit --test output_caching --scenario Offline ...` with this server and result"
            yield compared("submit/prompt-reuse", False, f"{name}: {reason}", "", text=candidate.name, fix=fix)


@decides("submit", applies=_no_such_rule, also=("scenario-set",))
def _scenario_set(evidence: SetEvidence) -> Iterator[Finding]:
    for benchmark in sorted({candidate.benchmark for candidate in evidence.candidates}):
        scenarios = {candidate.scenario for candidate in evidence.candidates if candidate.benchmark == benchmark}
        entry = SUBMISSIONS[benchmark]
        for name in entry.missing(scenarios, entry.suite):
            homes = (candidate.result.home for candidate in evidence.candidates if candidate.benchmark == benchmark)
            fix = unless_running(next(homes), f"add a result of {benchmark}/{name}")
            yield compared("scenario-set", False, f"{name} is missing", "", text=benchmark, fix=fix)


@decides(
    "submit",
    ("submit/one-system", "error", "[submission] systems", "differences in system between the results",
     "submit results of one system"),
    ("submit/one-model", "error", "[rules] closed division",
     "model and dataset of the scenarios of a benchmark",
     "run all scenarios of a benchmark with one model and dataset"),
)  # fmt: skip
def _several_systems(evidence: SetEvidence) -> Iterator[Finding]:
    """Check that all results come from one system, and that each closed benchmark has one model and dataset."""
    recorded = (candidate for candidate in evidence.candidates if candidate.manifest is not None)
    for question, first, second, unequal in unlike(recorded, *([TREE] if _no_such_rule(evidence) else CLOSED_TREE)):
        for reason in describe_differences(unequal, f"in {first.name}", f"in {second.name}"):
            yield compared(question.rule, False, reason, "", text=second.name, fix=question.text)


# The checks, in the order of their findings.
_CANDIDATE_CHECKS = tuple(
    map(
        check_of,
        (_presence, _verified, _official, _technique, _seeds, _audits, _other_audits, _configuration, _network),
    )
)
_SET_CHECKS = tuple(map(check_of, (_reuse_unseen, _scenario_set, _several_systems)))
SUBMIT = Policy(checks={"candidate": _CANDIDATE_CHECKS, "set": _SET_CHECKS})
