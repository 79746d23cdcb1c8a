"""The rules on results that may enter a tree: they pass verify and their audits, and their runs have one configuration.

As in the official checker, the open division has no rules on sets of scenarios, audits, accuracy targets and the number
of samples in the Offline query. All other rules apply in every division.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path

from compliance.audits.audit_registry import IDS
from compliance.audits.discovery import AUDITS
from compliance.audits.state import audit_state
from compliance.judge.check import Need, check_of, decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import OURS, find_rule
from compliance.results.result_verdict import ResultVerdict, verify_result
from compliance.results.run_evidence import RunEvidence
from compliance.results.run_verdict import RunVerdict, judge_run
from compliance.results.same_system import CLOSED_TREE, TREE, unlike
from compliance.signoff.harness import output_caching_passed
from compliance.submission.build_inputs import (
    SUBMITTED_TESTS,
    AuditDir,
    Candidate,
    SubmitRequest,
    continuation,
    unless_running,
)
from compliance.submission.refusal_causes import cause_of
from compliance.techniques.quality_gate import judge_rows
from compliance.techniques.row import row_to_submit
from compliance.techniques.technique_registry import GateDivision, load_registries
from compliance.trees.tree import NOT_IN_OPEN
from qsl.dataset import SYNTHETIC_MARK
from runs.benchmarks import SUBMISSIONS
from runs.errors import HarnessError, InputError
from runs.files.reading import MAX_LOG_BYTES, read_whole
from runs.harness import PROGRAM
from runs.record.engines.server_facts import all_servers_remote, prompt_reuse
from runs.record.fingerprint import RESULT, SERVERS, describe_differences, differences, fingerprint
from runs.record.finished_run import ACCURACY
from runs.record.layout import campaign_of
from runs.record.manifest import Manifest
from runs.rounds import round_of

# Rules that refuse only runs whose manifest claims that they are eligible for submission.
_OFFICIAL_INPUTS = frozenset({"record-data-set", "record-weights", "record-servers"})
_WHOLE: tuple[Need, ...] = ("both", "manifest")


@dataclass(frozen=True)
class CandidateEvidence:
    """A result that may enter the tree, with its audits."""

    candidate: Candidate
    request: SubmitRequest

    def absent(self, need: Need) -> str:
        """Return the reason why a part is missing; empty if it is available."""
        runs = self.candidate.performance, self.candidate.accuracy
        if need == "both" and None in runs:
            return "it needs a performance and an accuracy run"
        has_manifests = all(run is None or run.manifest is not None for run in runs)
        return "" if need != "manifest" or has_manifests else "manifest.json of a run is missing"

    @property
    def whole(self) -> bool:
        """True if all files for the verdict of `main.py verify` are available."""
        return not any(map(self.absent, _WHOLE))

    @property
    def name(self) -> str:
        """benchmark/scenario, the first words of each refusal of the result."""
        return self.candidate.name

    @cached_property
    def verdict(self) -> ResultVerdict:
        """The verdict of `main.py verify` on the result; the files are read again."""
        return verify_result(self.candidate.result, sources=self.request.sources)

    @cached_property
    def violated(self) -> list[tuple[RunVerdict, Finding]]:
        """Violated rules that refuse the result. Official rules count even if its runs do not claim to meet them."""
        allowed = NOT_IN_OPEN if self.request.division == "open" else ()
        return [
            (part, finding)
            for part in (self.verdict.parts if self.verdict.outcome != "ERROR" else ())
            for finding in part.violated
            if finding.rule not in allowed and (part.claims_official or finding.rule not in _OFFICIAL_INPUTS)
        ]

    @cached_property
    def inputs(self) -> list[str]:
        """Facts in the manifests that make the runs not eligible for submission."""
        return list(dict.fromkeys(not_official(self.candidate.manifests().values(), self.request.sources.dataset_path)))

    @cached_property
    def unofficial(self) -> list[str]:
        """All reasons why the result is not eligible for submission. Some of them do not refuse it."""
        if self.absent("manifest"):
            return []
        reasons, refused = list(self.inputs), [found for _, found in self.violated]
        for part in (part for part in self.verdict.parts if not part.claims_official):
            official = [found for found in part.violated if found.kind == "official" and found not in refused]
            reasons += [*part.declared, *(found.sentence for found in official)]
        if self.request.division == "network" and not all(map(all_servers_remote, self.candidate.manifests().values())):
            reasons.append("the manifest does not show that every server runs on another machine than LoadGen")
        return list(dict.fromkeys(reasons))


@dataclass(frozen=True)
class SetEvidence:
    """All results that may enter the tree."""

    candidates: list[Candidate]
    request: SubmitRequest

    def absent(self, _: Need) -> str:
        return ""


@decides(
    "submit",
    ("submit/leg-missing", "error", "[submission] layout", "missing run", "start the missing run"),
    ("submit/not-ours", "error", OURS, "missing manifest of a run", "submit runs of this harness"),
)  # fmt: skip
def _presence(evidence: CandidateEvidence) -> Iterator[Finding]:
    candidate = evidence.candidate
    for mode, run in (("performance", candidate.performance), ("accuracy", candidate.accuracy)):
        if run is None:
            campaign = campaign_of(candidate.result.home)
            fix = (
                f"start the run, and give its directory in addition to {candidate.result.home}"
                if campaign is None
                else continuation(campaign)
            )
            yield compared("submit/leg-missing", False, f"the {mode} run is missing", "", text=evidence.name, fix=fix)
        elif run.manifest is None:
            reason = f"manifest.json of {run.dir.root} is missing"
            yield compared("submit/not-ours", False, reason, "", text=evidence.name, fix="submit runs of this harness")


@decides("submit", needs=("manifest",))
def _verified(evidence: CandidateEvidence) -> Iterator[Finding]:
    """Refuse the result for each error that `main.py verify` finds."""
    verdict, error = evidence.verdict, evidence.verdict.error
    contradictions = [(part, found) for part in verdict.parts for found in part.contradictions]
    reasons = [("log-damaged", error.message)] if error is not None else []
    reasons += [(found.rule, f"{part.mode}: {found.sentence}") for part, found in contradictions + evidence.violated]
    reasons += [(found.rule, found.sentence) for found in verdict.of("error")]
    for rule, reason in reasons:
        see = f"see `{PROGRAM} verify {evidence.candidate.result.home} --official`"
        yield compared(
            rule, False, reason, "", text=evidence.name, severity="error", fix=f"{find_rule(rule).fix}; {see}"
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
    applies=lambda of: "a rehearsal accepts ineligible results" if of.request.rehearsal else "",
)  # fmt: skip
def _official(evidence: CandidateEvidence) -> Iterator[Finding]:
    """Refuse runs that are not eligible for submission.

    The open division accepts other models and engine options, but no synthetic data and no dummy engine.
    """
    for reason in evidence.inputs if evidence.request.division == "open" else evidence.unofficial:
        yield never_eligible(evidence.candidate.name, reason)


@decides("submit", needs=_WHOLE)
def _technique(evidence: CandidateEvidence) -> Iterator[Finding]:
    """Refuse a result whose declared technique the gate closes."""
    result, run, registries = evidence.candidate.result, evidence.candidate.performance, load_registries()
    assert run is not None  # `needs` of the check guarantees it
    division: GateDivision = "open" if evidence.request.division == "open" else "closed"
    gate = judge_rows([row_to_submit(result, evidence.verdict, run, registries)], registries, division=division)
    for finding in (one for row in gate.matched for one in row.of("error")):
        see = f"see `{PROGRAM} gate {result.home}`"
        yield compared(
            finding.rule,
            False,
            f"technique: {finding.sentence}",
            "",
            text=evidence.name,
            severity="error",
            fix=f"{finding.fix or finding.definition.fix}; {see}",
        )


@decides("submit", needs=("manifest",), also=("perf-seeds", "accuracy-seeds"))
def _seeds(evidence: CandidateEvidence) -> Iterator[Finding]:
    for log in (run.detail for run in evidence.candidate.all_runs if run.dir.detail.is_file()):
        if log.seeds != evidence.request.round.seeds:
            rule = "accuracy-seeds" if log.mode == ACCURACY else "perf-seeds"
            reason = f"{log.path}: seeds of {round_of(log.seeds) or 'an unknown round'}"
            fix = f"repeat the run in round {evidence.request.round}, or choose the round with --round"
            yield compared(
                rule,
                False,
                reason,
                f"seeds of {evidence.request.round}",
                text=evidence.name,
                severity="error",
                fix=fix,
            )


@decides(
    "submit",
    ("submit/audit", "error", "[rules] audits", "verdict of the re-evaluated audits", "repeat the audit"),
    needs=("manifest",),
    also=("audit-missing",),
)  # fmt: skip
def _audits(evidence: CandidateEvidence) -> Iterator[Finding]:
    """Check that the required audits exist, and that each audit passes when it is re-evaluated."""
    candidate, is_open = evidence.candidate, evidence.request.division == "open"
    for test in dict.fromkeys([*(() if is_open else SUBMISSIONS[candidate.benchmark].audits), *candidate.audits]):
        fix = f"run `{PROGRAM} audit --test {test} --scenario {candidate.scenario} ...` and name its directory"
        if test not in candidate.audits:
            reason = f"{test} is missing; {candidate.benchmark} needs it in every scenario"
            yield compared(
                "audit-missing",
                False,
                reason,
                "",
                text=evidence.name,
                fix=unless_running(candidate.result.home, fix),
            )
            continue
        try:
            for rule, reason in _audit_failures(candidate.audits[test]):
                yield compared(rule, False, reason, "", text=evidence.name, severity="error", fix=fix)
        except HarnessError as error:
            yield compared("submit/audit", False, error.message, "", text=evidence.name, fix=fix)


def _audit_failures(audit: AuditDir) -> Iterator[tuple[str, str]]:
    """Yield the rules that an audit violates, each with a reason."""
    state = audit_state(audit.folder, audit.test, audit.finished_run)
    recorded, result = state.recorded, state.result
    if recorded is None or result is None:
        yield "submit/audit", f"{audit.test} {state.why}"
        return
    if absent := [name for name in IDS if name not in (recorded.model_extra or {})]:
        yield "submit/audit", f"{', '.join(absent)} missing in {state.record.name}"
        return
    if violated := [found for run in state.runs for found in judge_run(RunEvidence.of(run)).contradictions]:
        yield from ((found.rule, f"{audit.test}: {found.sentence}") for found in violated)
        return
    for run in state.runs:
        if run.detail.error_count:
            yield "submit/audit", f"{run.dir.detail}: {run.detail.error_count} error records"
    again = f"{audit.test}, re-evaluated from {audit.dir.root}, fails"
    yield from ((found.rule, f"{again}: {found.sentence}") for found in result.of("error"))
    if result.details.get("official_passed") is False:
        yield "submit/audit", f"{audit.test}: the official script prints: {result.text.strip().splitlines()[-1]}"
    for path in state.changed:
        yield "submit/audit", f"{path} differs from the file that follows from the audit runs"


def _no_such_rule(evidence: CandidateEvidence | SetEvidence) -> str:
    return "the open division has no such rule" if evidence.request.division == "open" else ""


@decides("submit", needs=("manifest",), applies=_no_such_rule, also=("submit/audit",))
def _other_audits(evidence: CandidateEvidence) -> Iterator[Finding]:
    """Refuse a result with a failed audit, even if the submission does not need this audit."""
    for home, test in product(evidence.candidate.homes, [test for test in AUDITS if test not in SUBMITTED_TESTS]):
        state = audit_state(home.audit(test), test, evidence.candidate.runs[0])
        if state.outcome not in ("missing", "recorded", "PASS"):
            fix = f"correct the system, then repeat the audit with `{PROGRAM} audit --test {test}`"
            yield compared("submit/audit", False, f"{test} of this result {state.why}", "", text=evidence.name, fix=fix)


@decides(
    "submit",
    ("submit/one-configuration", "error", "[rules] closed division", "differences between the runs of a result",
     "repeat the runs in one configuration"),
    needs=_WHOLE,
)  # fmt: skip
def _configuration(evidence: CandidateEvidence) -> Iterator[Finding]:
    """Compare the configuration of each run and audit run with the performance run."""
    facts = {name: fingerprint(manifest) for name, manifest in evidence.candidate.manifests().items()}
    reference = facts.pop("performance")
    for name, facts_of_run in facts.items():
        different = differences(reference, facts_of_run, RESULT)
        for reason in describe_differences(different, "in the performance run", f"in the {name} run"):
            yield compared(
                "submit/one-configuration",
                False,
                reason,
                "",
                text=evidence.name,
                fix="repeat the runs in one configuration",
            )


@decides("submit", needs=("manifest",), applies=_no_such_rule, also=("suite-benchmark", "perf-network"))
def _network(evidence: CandidateEvidence) -> Iterator[Finding]:
    """Check that LoadGen reached the SUT as the division requires. [rules: Network Division]"""
    division, suite = evidence.request.division, SUBMISSIONS[evidence.candidate.benchmark].suite
    fix = "repeat the runs with --network-sut" if division == "network" else "submit with --division network"
    if division == "network" and suite != "datacenter":
        yield compared(
            "suite-benchmark",
            False,
            f"suite of the benchmark: {suite}",
            "datacenter in the network division",
            text=evidence.name,
            fix=fix,
        )
    for run in evidence.candidate.all_runs:
        if run.detail.is_network != (division == "network"):
            reason = f"name of the SUT {run.detail.get('sut_name')!r} in the {division} division"
            yield compared("perf-network", False, f"{run.dir.detail}: {reason}", "", text=evidence.name, fix=fix)


@decides(
    "submit",
    ("submit/prompt-reuse", "error", "[rules] caching", "missing proof that prompts are not reused",
     "run the output_caching audit against the server"),
    applies=_no_such_rule,
)  # fmt: skip
def _reuse_unseen(evidence: SetEvidence) -> Iterator[Finding]:
    """Check that servers report their cached prompt tokens, or passed the output_caching audit."""
    runs = [run for run in (candidate.performance for candidate in evidence.candidates) if run is not None]
    audited = [fingerprint(run.manifest) for run in runs if run.manifest is not None and output_caching_passed(run)]
    for candidate in evidence.candidates:
        records = candidate.manifests().items()
        unseen = (
            name
            for name, manifest in records
            if prompt_reuse(manifest).is_unobserved
            and all(differences(fingerprint(manifest), other, SERVERS) for other in audited)
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
CANDIDATE_CHECKS = tuple(
    map(
        check_of,
        (_presence, _verified, _official, _technique, _seeds, _audits, _other_audits, _configuration, _network),
    )
)
SET_CHECKS = tuple(map(check_of, (_reuse_unseen, _scenario_set, _several_systems)))


def not_official(manifests: Iterable[Manifest], dataset_path: Path | None) -> Iterator[str]:
    """Yield the facts in the manifests that make runs not eligible for submission. The runs may claim to be eligible.

    Args:
        dataset_path: path of the dataset, if it was moved.
    """
    for manifest in manifests:
        if not manifest.plan.engine_record.runs_model:
            yield f"the {manifest.plan.engine} engine runs no model"
        places = [Path(manifest.plan.dataset_path), *([dataset_path] if dataset_path else [])]
        if any(_is_synthetic(path, manifest.plan.dataset_sha256) for path in places):
            yield "the dataset is synthetic"


@cache
def _is_synthetic(path: Path, digest: str) -> bool:
    """Return True if the dataset is synthetic; False if it is real, missing or was replaced."""
    try:
        content = read_whole(path, "", max_bytes=MAX_LOG_BYTES)
        return hashlib.sha256(content).hexdigest() == digest and SYNTHETIC_MARK.encode() in content
    except InputError:
        return False
