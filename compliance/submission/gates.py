"""What may enter a tree: verified results with passed audits, of one configuration, in the sets that the rules ask for.

The open division relaxes what the official checker does not ask there: the sets of scenarios, the audits, the
accuracy targets and the number of samples in Offline's query. All else holds in both.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

from compliance.audits.audit_registry import AUDITS, IDS, files_that_differ, judged_again, read_audit, request_beside
from compliance.audits.base import EXISTING
from compliance.evidence.performance import verify_performance
from compliance.finding import OURS, Finding, LegVerdict, decides, find_rule
from compliance.signoff.harness import output_caching_passed
from compliance.submission.build_inputs import SUBMITTED_TESTS, Audit, Candidate, SubmitRequest
from compliance.submission.tree import NOT_IN_OPEN, Division
from compliance.verify.result_verdict import Verification, verify_result
from qsl.dataset import SYNTHETIC_MARK
from runs.benchmarks import SUBMISSIONS
from runs.errors import HarnessError, InputError
from runs.reading import MAX_LOG_BYTES, read_whole
from runs.record.fingerprint import (
    BENCHMARK,
    PRECISION,
    RESULT,
    SERVERS,
    TREE,
    Facts,
    Scope,
    describe,
    differences,
    fingerprint,
)
from runs.record.layout import audit_record
from runs.record.leg import ACCURACY
from runs.record.servers import all_servers_remote, reuse_unobserved
from runs.rounds import round_of


def refusal(rule: str, where: str, reason: str, fix: str) -> Finding:
    """Why something does not enter the tree; `where`: benchmark/scenario, or what the reason is about."""
    return Finding(rule, "error", where, found=reason, fix=fix)


# Of a leg that does not claim to be official they are reasons why it is none, which a rehearsal may have.
_OFFICIAL_INPUTS = frozenset({"record-data-set", "record-weights", "record-servers"})


@dataclass
class Judged:
    """A candidate and what was found about it."""

    candidate: Candidate
    verdict: Verification | None = None  # None where a leg is missing
    refusals: list[Finding] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)  # not official, whatever the legs say of themselves
    unofficial: list[str] = field(default_factory=list)  # every reason, these included


Reasons = Iterator[tuple[str, str, str]]  # the rule that refuses a result, why, and what to do


@decides(
    "submit",
    ("submit/leg-missing", "error", "[submission] layout", "each result has both legs", "run the missing leg"),
    ("submit/not-ours", "error", OURS, "a record shows how each leg was run", "give a run of this harness"),
    ("submit/not-official", "error", "[rules] closed division", "legs are official ones", "run it as an official one"),
    ("submit/audit", "error", "[rules] audits", "audits pass when judged again", "run the audit again"),
    ("submit/one-configuration", "error", "[rules] closed division", "the legs of a result ran in one configuration",
     "run the legs again in one configuration"),
)  # fmt: skip
def judge_candidate(candidate: Candidate, request: SubmitRequest) -> Judged:
    """Hold one result and its audits to the rules; reads the files anew."""
    judged = Judged(candidate)
    reasons = [*_absent(candidate)]
    if not reasons:
        judged.verdict = verdict = verify_result(candidate.result, sources=request.sources)
        failed = _failed(verdict, request.division)
        fix = f"see `main.py verify {candidate.result.home} --official`"
        reasons = [(rule, said, f"{find_rule(rule).fix}; {fix}") for rule, said in _failures(verdict, failed)]
        judged.shown = [*dict.fromkeys(_not_official(candidate, request.sources.dataset_path))]
        judged.unofficial = [*dict.fromkeys([*judged.shown, *_unofficial(verdict, failed)])]
        if request.division == "network" and not all(map(all_servers_remote, candidate.manifests().values())):
            judged.unofficial.append("the record does not show every server on another machine than LoadGen's")
        for in_open, rules in _RULES:
            if in_open or request.division != "open":
                reasons += rules(judged, request)
    judged.refusals = [refusal(rule, candidate.name, said, fix) for rule, said, fix in reasons]
    return judged


def _absent(candidate: Candidate) -> Reasons:
    for mode, leg in (("performance", candidate.performance), ("accuracy", candidate.accuracy)):
        if leg is None:
            fix = f"run it, and name its directory beside {candidate.result.home}"
            yield "submit/leg-missing", f"there is no {mode} leg", fix
        elif leg.manifest is None:
            said = f"{leg.run.root} has no manifest.json: nothing tells how it was run"
            yield "submit/not-ours", said, "give a run of this harness"


def _claims_to_be_official(judged: Judged, request: SubmitRequest) -> Reasons:
    # The open division takes other models and engine options; made-up data and engines it does not.
    reasons = judged.shown if request.division == "open" else judged.unofficial
    for reason in reasons if not request.rehearsal else ():
        fix = "run it as an official one, or build a marked tree with --rehearsal"
        yield "submit/not-official", f"not official: {reason}", fix


def _wrong_seeds(judged: Judged, request: SubmitRequest) -> Reasons:
    for log in (leg.detail for leg in judged.candidate.all_legs if leg.run.detail.is_file()):
        if log.seeds != request.round.seeds:
            of = round_of(log.seeds) or "no known round"
            rule = "accuracy-seeds" if log.mode == ACCURACY else "perf-seeds"
            fix = f"run it in round {request.round}, or choose the round with --round"
            yield rule, f"{log.path}: the seeds are those of {of}, not of {request.round}", fix


def _audits(judged: Judged, request: SubmitRequest) -> Reasons:
    """The required ones are there, and what the records of all say is still true: each is judged again from its leg's
    files."""
    candidate = judged.candidate
    required = SUBMISSIONS[candidate.benchmark].audits if request.division != "open" else ()
    for test in dict.fromkeys([*required, *candidate.audits]):
        fix = f"run `main.py audit --test {test} --scenario {candidate.scenario} ...` and name its directory"
        if test not in candidate.audits:
            yield "audit-missing", f"{test} is missing, which {candidate.benchmark} needs in every scenario", fix
            continue
        try:
            yield from ((rule, said, fix) for rule, said in _audit_failures(candidate.audits[test]))
        except HarnessError as error:
            yield "submit/audit", error.message, fix


def _audit_failures(audit: Audit) -> Iterator[tuple[str, str]]:
    """The rule that is broken, and why."""
    record = read_audit(audit.folder, audit.test)
    if not record.passed:
        yield "submit/audit", f"{audit.test} did not pass: {record.reason}"
        return
    if absent := [name for name in IDS if name not in (record.model_extra or {})]:
        yield "submit/audit", f"{audit_record(audit.folder, audit.test).name} has no {', '.join(absent)}"
        return
    result, legs = judged_again(audit.folder, audit.test, request_beside(audit.leg))
    if broken := [found for leg in legs for found in verify_performance(leg.leg).contradictions]:
        yield from ((found.rule, f"{audit.test}: {found.sentence}") for found in broken)
        return
    for leg in legs:
        if leg.detail.error_count:
            yield "submit/audit", f"{leg.run.detail}: {leg.detail.error_count} error records"
    again = f"{audit.test} judged again from {audit.run.root} does not pass"
    yield from ((found.rule, f"{again}: {found.sentence}") for found in result.of("error"))
    if result.details.get("official_passed") is False:
        yield "submit/audit", f"{audit.test}: the official script would say: {result.text.strip().splitlines()[-1]}"
    for path in files_that_differ(audit.folder, result):
        yield "submit/audit", f"{path} is not what the legs' files give"


def _audits_beside(judged: Judged, request: SubmitRequest) -> Reasons:
    """Audits that are not submitted, but lie beside a result and do not pass.

    Nobody has to run them; what they showed is not left out, though. Legs of their own are judged again.
    """
    for home, test in product(judged.candidate.homes, AUDITS):
        record = audit_record(home.audit(test), test)
        if test in SUBMITTED_TESTS or not record.exists():
            continue
        try:
            found = read_audit(record.parent, test)
            said = "" if found.passed else f"did not pass: {found.reason}"
            own = {leg.get("label") for leg in found.legs} != set(EXISTING)
            if not said and own:
                result, _ = judged_again(record.parent, test, request_beside(judged.candidate.legs[0]))
                said = "" if result.passed else f"judged again does not pass: {result.reason}"
        except (OSError, HarnessError) as error:
            said = f"cannot be judged again: {error.message if isinstance(error, HarnessError) else error}"
        if said:
            fix = f"find out why; `main.py audit --test {test}` runs it again"
            yield "submit/audit", f"{test} beside it {said}", fix


def _mixed(judged: Judged, request: SubmitRequest) -> Reasons:
    facts = {name: fingerprint(manifest) for name, manifest in judged.candidate.manifests().items()}
    reference = facts.pop("performance")
    for name, found in facts.items():
        for reason in describe(differences(reference, found, RESULT), "in the performance leg", f"in the {name} leg"):
            yield "submit/one-configuration", reason, "run the legs again in one configuration"


def _network(judged: Judged, request: SubmitRequest) -> Reasons:
    """Whether LoadGen reached the system as the division has it; open has both. [rules: Network Division]"""
    candidate, division = judged.candidate, request.division
    fix = "run the legs again with --network-sut" if division == "network" else "submit with --division network"
    suite = SUBMISSIONS[candidate.benchmark].suite
    if division == "network" and suite != "datacenter":
        yield "suite-benchmark", f"the network division has no {suite} systems", fix
    for leg in candidate.all_legs:
        if leg.detail.is_network != (division == "network"):
            reason = f"the system calls itself {leg.detail.get('sut_name')!r}, in division {division}"
            yield "perf-network", f"{leg.run.detail}: {reason}", fix


# What a result is asked, in the order in which it is told, and whether the open division asks it, too.
_RULES: tuple[tuple[bool, Callable[[Judged, SubmitRequest], Reasons]], ...] = (
    (True, _claims_to_be_official),
    (True, _wrong_seeds),
    (True, _audits),
    (False, _audits_beside),
    (True, _mixed),
    (False, _network),
)


@decides(
    "submit",
    ("submit/prompt-reuse", "error", "[rules] caching", "prompts are shown not to be reused",
     "run the audit output_caching against the server"),
    ("submit/one-system", "error", "[submission] systems", "all results are of one system",
     "submit results of one system"),
    ("submit/one-model", "error", "[rules] closed division",
     "all scenarios of a benchmark ran one model on one data set",
     "run all scenarios of a benchmark with one model and data set"),
)  # fmt: skip
def judge_set(candidates: list[Candidate], division: Division) -> Iterator[Finding]:
    """Are the scenarios a complete set, all results of one machine and one software, and answers computed anew?"""
    if division != "open":
        yield from _reuse_unseen(candidates)
        for benchmark in sorted({candidate.benchmark for candidate in candidates}):
            there = {candidate.scenario for candidate in candidates if candidate.benchmark == benchmark}
            for name in SUBMISSIONS[benchmark].missing(there):
                fix = f"a {division} submission of {benchmark} needs it"
                yield refusal("scenario-set", benchmark, f"{name} is missing", fix)
    yield from _several_systems(candidates, division)


def _several_systems(candidates: list[Candidate], division: Division) -> Iterator[Finding]:
    """All results are of one system. Scenarios of one closed benchmark ran one model on one data set; quantised another
    way it is still that model.

    [inference_policies: implementations may differ by scenario, and numerical precisions may be picked by hand]
    """
    first: dict[tuple[str, ...], tuple[str, Facts]] = {}
    for candidate in candidates:
        if (manifest := candidate.record) is None:
            continue
        facts, benchmark = fingerprint(manifest), candidate.benchmark
        fix = "submit results of one system; another has a tree entry of its own"
        groups: list[tuple[tuple[str, ...], Scope, str]] = [(("submit/one-system",), TREE, fix)]
        if division != "open":
            fix, precision = "run all scenarios with that one", str(facts.get("weights.precision"))
            groups.append((("submit/one-model", benchmark), BENCHMARK, fix))
            groups.append((("submit/one-model", benchmark, precision), PRECISION, fix))
        for group, scope, fix in groups:
            name, theirs = first.setdefault(group, (candidate.name, facts))
            for reason in describe(differences(theirs, facts, scope), f"in {name}", f"in {candidate.name}"):
                yield refusal(group[0], candidate.name, reason, fix)


def _reuse_unseen(candidates: list[Candidate]) -> Iterator[Finding]:
    """Where a server does not count what it takes from a cache, the audit has to show that it takes nothing."""
    legs = [leg for leg in (candidate.performance for candidate in candidates) if leg is not None]
    audited = [fingerprint(leg.manifest) for leg in legs if leg.manifest is not None and output_caching_passed(leg)]
    for candidate in candidates:
        records = candidate.manifests().items()
        unseen = (
            name
            for name, one in records
            if reuse_unobserved(one) and all(differences(fingerprint(one), other, SERVERS) for other in audited)
        )
        if name := next(unseen, None):
            said = "the server does not count prompt tokens from a cache, and no audit output_caching of it passed"
            fix = "run `main.py audit --test output_caching --scenario Offline ...` against it, beside those legs"
            yield refusal("submit/prompt-reuse", candidate.name, f"{name}: {said}", fix)


def _failed(verdict: Verification, division: Division) -> list[tuple[LegVerdict, Finding]]:
    """The rules that are broken, official ones whatever the legs claim to be; none where the files allow no verdict."""
    if verdict.outcome == "ERROR":
        return []
    spared = NOT_IN_OPEN if division == "open" else frozenset()
    return [
        (part, check)
        for part in verdict.parts
        for check in part.broken
        if check.rule not in spared and (part.claims_official or check.rule not in _OFFICIAL_INPUTS)
    ]


def _failures(verdict: Verification, failed: list[tuple[LegVerdict, Finding]]) -> Iterator[tuple[str, str]]:
    """Why the result does not pass: the broken rule, and a sentence."""
    if verdict.error is not None:
        yield "log-damaged", verdict.error.message
    apart = [(part, found) for part in verdict.parts for found in part.contradictions]
    yield from ((found.rule, f"{part.mode}: {found.sentence}") for part, found in (*apart, *failed))
    yield from ((check.rule, check.sentence) for check in verdict.of("error"))


def _unofficial(verdict: Verification, failed: list[tuple[LegVerdict, Finding]]) -> Iterator[str]:
    """Why legs that do not claim to be official are not, beside what was refused already."""
    refused = [check for _, check in failed]
    for part in verdict.parts:
        if not part.claims_official:
            yield from part.declared_unofficial
            yield from (one.sentence for one in part.broken if one.kind == "official" and one not in refused)


def _not_official(candidate: Candidate, dataset_path: Path | None) -> Iterator[str]:
    """What the records show, whatever the legs say of themselves.

    Args:
        dataset_path: of the data set, should it be no longer where the records say.
    """
    for manifest in candidate.manifests().values():
        if not manifest.plan.engine_record.runs_model:
            yield f"the {manifest.plan.engine} engine runs no model"
        places = [Path(manifest.plan.dataset_path), *([dataset_path] if dataset_path else [])]
        if any(_is_synthetic(path, manifest.plan.dataset_sha256) for path in places):
            yield "the data set is synthetic"


@cache
def _is_synthetic(path: Path, digest: str) -> bool:
    """As far as it can be told: the data set may be gone, or be another by now."""
    try:
        content = read_whole(path, "", max_bytes=MAX_LOG_BYTES)
        return hashlib.sha256(content).hexdigest() == digest and SYNTHETIC_MARK.encode() in content
    except InputError:
        return False


def unofficial_reasons(judged: Iterable[Judged]) -> list[str]:
    """Why a tree of these is a rehearsal, each reason once."""
    return list(dict.fromkeys(reason for one in judged for reason in one.unofficial))
