"""What may enter a tree: verified results with passed audits, of one configuration, in the sets that the rules require.

As in the official checker, the open division has no rules on sets of scenarios, audits, accuracy targets and the number
of samples in Offline's query. All other rules apply in every division.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

from compliance.audits.audit_registry import AUDITS, IDS, files_that_differ
from compliance.audits.state import audit_state
from compliance.evidence.leg_evidence import LegEvidence
from compliance.evidence.run_verdict import judge_run
from compliance.evidence.same_system import CLOSED_TREE, TREE, unlike
from compliance.judge.check import decides
from compliance.judge.finding import Finding
from compliance.judge.rule import OURS, find_rule
from compliance.signoff.harness import output_caching_passed
from compliance.submission.build_inputs import SUBMITTED_TESTS, Audit, Candidate, SubmitRequest
from compliance.submission.tree import NOT_IN_OPEN, Division
from compliance.verify.result_verdict import ResultVerdict, verify_result
from qsl.dataset import SYNTHETIC_MARK
from runs.benchmarks import SUBMISSIONS
from runs.errors import HarnessError, InputError
from runs.reading import MAX_LOG_BYTES, read_whole
from runs.record.fingerprint import RESULT, SERVERS, describe, differences, fingerprint
from runs.record.leg import ACCURACY
from runs.record.server_facts import all_servers_remote, prompt_reuse
from runs.rounds import Round, round_of

# Rules that make a leg unofficial, and do not refuse one that does not claim to be official.
_OFFICIAL_INPUTS = frozenset({"record-data-set", "record-weights", "record-servers"})


@dataclass
class Judged:
    """A candidate and the findings on it."""

    candidate: Candidate
    verdict: ResultVerdict | None = None  # None if a leg is missing
    refusals: list[Finding] = field(default_factory=list)
    unofficial: list[str] = field(default_factory=list)  # why it is not official

    def refuse(self, rule: str, reason: str, fix: str) -> None:
        """Add a reason why the result does not enter the tree."""
        self.refusals.append(refusal(rule, self.candidate.name, reason, fix))


def refusal(rule: str, where: str, reason: str, fix: str) -> Finding:
    """Why something does not enter the tree; `where`: benchmark/scenario, or what the reason is about."""
    return Finding(rule, "error", where, found=reason, fix=fix)


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
    """Apply the rules to one result and its audits; reads the files anew."""
    judged, is_open = Judged(candidate), request.division == "open"
    _judge_presence(judged)
    if judged.refusals:
        return judged
    judged.verdict = verify_result(candidate.result, sources=request.sources)
    _judge_official(judged, judged.verdict, _judge_verdict(judged, judged.verdict, is_open=is_open), request)
    _judge_seeds(judged, request.round)
    _judge_audits(judged, () if is_open else SUBMISSIONS[candidate.benchmark].audits)
    if not is_open:
        _judge_other_audits(judged)
    _judge_configuration(judged)
    if not is_open:
        _judge_network(judged, request.division)
    return judged


def _judge_presence(judged: Judged) -> None:
    """Check that both legs are there, with our record of them."""
    candidate = judged.candidate
    for mode, leg in (("performance", candidate.performance), ("accuracy", candidate.accuracy)):
        if leg is None:
            fix = f"run it, and name its directory too, with {candidate.result.home}"
            judged.refuse("submit/leg-missing", f"there is no {mode} leg", fix)
        elif leg.manifest is None:
            reason = f"{leg.run.root} has no manifest.json, which records how it was run"
            judged.refuse("submit/not-ours", reason, "give a run of this harness")


def _judge_verdict(judged: Judged, verdict: ResultVerdict, *, is_open: bool) -> list[Finding]:
    """Refuse for what `verify` finds, also for official rules that the legs do not claim to keep; returns the broken
    rules, without contradictions."""
    broken = []
    if verdict.outcome != "ERROR":
        broken = [
            (part, found)
            for part in verdict.parts
            for found in part.broken
            if not (is_open and found.rule in NOT_IN_OPEN)
            and (part.claims_official or found.rule not in _OFFICIAL_INPUTS)
        ]
    contradictions = [(part, found) for part in verdict.parts for found in part.contradictions]
    reasons = [("log-damaged", verdict.error.message)] if verdict.error is not None else []
    reasons += [(found.rule, f"{part.mode}: {found.sentence}") for part, found in contradictions + broken]
    reasons += [(found.rule, found.sentence) for found in verdict.of("error")]
    see = f"see `main.py verify {judged.candidate.result.home} --official`"
    for rule, reason in reasons:
        judged.refuse(rule, reason, f"{find_rule(rule).fix}; {see}")
    return [found for _, found in broken]


def _judge_official(judged: Judged, verdict: ResultVerdict, refused: list[Finding], request: SubmitRequest) -> None:
    """Collect why the result is not official, and refuse it where the division and the request ask for that.

    Args:
        refused: broken rules that refuse it already.
    """
    manifests = judged.candidate.manifests().values()
    not_official = [*dict.fromkeys(_not_official(judged.candidate, request.sources.dataset_path))]
    unofficial = list(not_official)  # and the legs' own reasons, and official rules that did not refuse them
    for part in (part for part in verdict.parts if not part.claims_official):
        official = [found for found in part.broken if found.kind == "official" and found not in refused]
        unofficial += [*part.declared, *(found.sentence for found in official)]
    judged.unofficial = [*dict.fromkeys(unofficial)]
    if request.division == "network" and not all(map(all_servers_remote, manifests)):
        judged.unofficial.append("the record does not show every server on another machine than LoadGen's")
    # The open division takes other models and engine options, but no synthetic data and no dummy engine.
    refusing = [] if request.rehearsal else not_official if request.division == "open" else judged.unofficial
    for reason in refusing:
        fix = "run it as an official one, or build a marked tree with --rehearsal"
        judged.refuse("submit/not-official", f"not official: {reason}", fix)


def _judge_seeds(judged: Judged, in_round: Round) -> None:
    for log in (leg.detail for leg in judged.candidate.all_legs if leg.run.detail.is_file()):
        if log.seeds != in_round.seeds:
            rule = "accuracy-seeds" if log.mode == ACCURACY else "perf-seeds"
            of = round_of(log.seeds) or "no known round"
            fix = f"run it in round {in_round}, or choose the round with --round"
            judged.refuse(rule, f"{log.path}: the seeds are those of {of}, not of {in_round}", fix)


def _judge_audits(judged: Judged, required: tuple[str, ...]) -> None:
    """Check that the required audits are there, and that each audit passes when it is judged again."""
    candidate = judged.candidate
    for test in dict.fromkeys([*required, *candidate.audits]):
        fix = f"run `main.py audit --test {test} --scenario {candidate.scenario} ...` and name its directory"
        if test not in candidate.audits:
            reason = f"{test} is missing, which {candidate.benchmark} needs in every scenario"
            judged.refuse("audit-missing", reason, fix)
            continue
        try:
            for rule, reason in _audit_failures(candidate.audits[test]):
                judged.refuse(rule, reason, fix)
        except HarnessError as error:
            judged.refuse("submit/audit", error.message, fix)


def _audit_failures(audit: Audit) -> Iterator[tuple[str, str]]:
    """The rule that is broken, and why."""
    state = audit_state(audit.folder, audit.test, audit.leg)
    recorded, result = state.recorded, state.result
    if recorded is None or result is None:
        yield "submit/audit", f"{audit.test} {state.why}"
        return
    if absent := [name for name in IDS if name not in (recorded.model_extra or {})]:
        yield "submit/audit", f"{state.record.name} has no {', '.join(absent)}"
        return
    if broken := [found for leg in state.runs for found in judge_run(LegEvidence.of(leg)).contradictions]:
        yield from ((found.rule, f"{audit.test}: {found.sentence}") for found in broken)
        return
    for leg in state.runs:
        if leg.detail.error_count:
            yield "submit/audit", f"{leg.run.detail}: {leg.detail.error_count} error records"
    again = f"{audit.test} judged again from {audit.run.root} does not pass"
    yield from ((found.rule, f"{again}: {found.sentence}") for found in result.of("error"))
    if result.details.get("official_passed") is False:
        yield "submit/audit", f"{audit.test}: the official script would say: {result.text.strip().splitlines()[-1]}"
    for path in files_that_differ(audit.folder, result):
        yield "submit/audit", f"{path} differs from what the legs' files give"


def _judge_other_audits(judged: Judged) -> None:
    """Check that audits in the result's directory that are not submitted did not fail."""
    for home, test in product(judged.candidate.homes, [test for test in AUDITS if test not in SUBMITTED_TESTS]):
        state = audit_state(home.audit(test), test, judged.candidate.legs[0])
        if state.outcome not in ("missing", "recorded", "PASS"):
            fix = f"find out why; `main.py audit --test {test}` runs it again"
            judged.refuse("submit/audit", f"{test} of this result {state.why}", fix)


def _judge_configuration(judged: Judged) -> None:
    """Compare each leg, audits included, with the performance leg."""
    facts = {name: fingerprint(manifest) for name, manifest in judged.candidate.manifests().items()}
    reference = facts.pop("performance")
    for name, found in facts.items():
        different = differences(reference, found, RESULT)
        for reason in describe(different, "in the performance leg", f"in the {name} leg"):
            judged.refuse("submit/one-configuration", reason, "run the legs again in one configuration")


def _judge_network(judged: Judged, division: Division) -> None:
    """Check that LoadGen reached the system as the division requires. [rules: Network Division]"""
    candidate, suite = judged.candidate, SUBMISSIONS[judged.candidate.benchmark].suite
    fix = "run the legs again with --network-sut" if division == "network" else "submit with --division network"
    if division == "network" and suite != "datacenter":
        judged.refuse("suite-benchmark", f"the network division has no {suite} systems", fix)
    for leg in candidate.all_legs:
        if leg.detail.is_network != (division == "network"):
            reason = f"the system calls itself {leg.detail.get('sut_name')!r}, in division {division}"
            judged.refuse("perf-network", f"{leg.run.detail}: {reason}", fix)


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
    """Check that the scenarios are a complete set, of one system, whose answers are not from a cache."""
    if division != "open":
        yield from _reuse_unseen(candidates)
        for benchmark in sorted({candidate.benchmark for candidate in candidates}):
            there = {candidate.scenario for candidate in candidates if candidate.benchmark == benchmark}
            entry = SUBMISSIONS[benchmark]
            for name in entry.missing(there, entry.suite):
                fix = f"a {division} submission of {benchmark} needs it"
                yield refusal("scenario-set", benchmark, f"{name} is missing", fix)
    yield from _several_systems(candidates, division)


def _several_systems(candidates: list[Candidate], division: Division) -> Iterator[Finding]:
    """Check that all results are of one system, and that scenarios of one closed benchmark ran one model, however
    quantised, on one data set."""
    recorded = (candidate for candidate in candidates if candidate.record is not None)
    for question, first, other, found in unlike(recorded, *([TREE] if division == "open" else CLOSED_TREE)):
        for reason in describe(found, f"in {first.name}", f"in {other.name}"):
            yield refusal(question.rule, other.name, reason, question.text)


def _reuse_unseen(candidates: list[Candidate]) -> Iterator[Finding]:
    """Servers that do not report cached prompt tokens, and have no audit that shows that there are none."""
    legs = [leg for leg in (candidate.performance for candidate in candidates) if leg is not None]
    audited = [fingerprint(leg.manifest) for leg in legs if leg.manifest is not None and output_caching_passed(leg)]
    for candidate in candidates:
        records = candidate.manifests().items()
        unseen = (
            name
            for name, one in records
            if prompt_reuse(one).is_unobserved
            and all(differences(fingerprint(one), other, SERVERS) for other in audited)
        )
        if name := next(unseen, None):
            reason = "the server does not count prompt tokens from a cache, and no audit output_caching of it passed"
            fix = "run `main.py audit --test output_caching --scenario Offline ...` with it, in this result's directory"
            yield refusal("submit/prompt-reuse", candidate.name, f"{name}: {reason}", fix)


def _not_official(candidate: Candidate, dataset_path: Path | None) -> Iterator[str]:
    """Why the records show that legs are not official, even if they claim to be.

    Args:
        dataset_path: of the data set, if it was moved.
    """
    for manifest in candidate.manifests().values():
        if not manifest.plan.engine_record.runs_model:
            yield f"the {manifest.plan.engine} engine runs no model"
        places = [Path(manifest.plan.dataset_path), *([dataset_path] if dataset_path else [])]
        if any(_is_synthetic(path, manifest.plan.dataset_sha256) for path in places):
            yield "the data set is synthetic"


@cache
def _is_synthetic(path: Path, digest: str) -> bool:
    """False also for a data set that is missing or was replaced."""
    try:
        content = read_whole(path, "", max_bytes=MAX_LOG_BYTES)
        return hashlib.sha256(content).hexdigest() == digest and SYNTHETIC_MARK.encode() in content
    except InputError:
        return False
