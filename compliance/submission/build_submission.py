"""From named runs to a tree: gather, describe, judge, build. What is refused is told all at once."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compliance.evidence.accuracy import ScoreSources, with_scorer
from compliance.finding import OURS, Finding, Verdict, decides
from compliance.signoff import sign_off as judge_legs
from compliance.signoff.evidence import Evidence
from compliance.signoff.harness import audit_problems
from compliance.signoff.signoff_verdict import SignOff
from compliance.submission.build import Built, TreePlan, build, refuse_taken
from compliance.submission.build_inputs import Candidate, SubmitRequest, gather
from compliance.submission.gates import Judged, judge_candidate, judge_set, refusal, unofficial_reasons
from compliance.submission.source import Source, read_documentation, read_source
from compliance.submission.system import SystemDescription, describe
from compliance.submission.weights import Documents, lacking, with_calibration
from runs.benchmarks import SUBMISSIONS
from runs.errors import InputError, SetupError
from runs.record.manifest import Manifest

# Of a directory, on every file system and in the official scripts.
_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]*")


@dataclass
class SubmitOutcome(Verdict):
    """Findings are why nothing was built: `built` is then None; `signed` where nothing was asked to sign off."""

    judged: list[Judged]
    notes: list[str]
    rehearsal: list[str] = field(default_factory=list)
    description: SystemDescription | None = None
    signed: SignOff | None = None
    built: Built | None = None

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        built = self.built
        return super().record(strict=strict) | {
            "verdict": "BUILT" if built else "REFUSED",
            "tree": str(built.root) if built else None,
            "rehearsal": self.rehearsal,
            "notes": self.notes,
            "signoff": None if self.signed is None else self.signed.record(),
            "results": [
                {
                    "place": one.candidate.name,
                    "directories": [str(path) for path in one.candidate.result.directories],
                    "audits": {test: str(audit.folder) for test, audit in one.candidate.audits.items()},
                    "verdict": one.verdict.outcome if one.verdict else None,
                    "not_official": one.unofficial,
                }
                for one in self.judged
            ],
            "system": None
            if self.description is None
            else {
                name: {"value": value, "from": self.description.origins[name]}
                for name, value in self.description.values.items()
            },
            "files": built.files if built else {},
            "bytes": built.total_bytes if built else 0,
        }


@decides(
    "submit",
    ("submit/calibration", "error", "[rules] closed division", "a document describes how the weights were quantised",
     "give it with --documentation"),
    ("submit/sign-off", "error", OURS, "the legs sign off together", "run what the sign-off names again"),
)  # fmt: skip
def submit(request: SubmitRequest, say: Callable[[str], None]) -> SubmitOutcome:
    """Build the tree, or refuse it; what costs little is checked first.

    Args:
        say: told what takes time.

    Raises:
        InputError: a path, a name or the system's description does not do. SetupError: the output is taken, or the
            source cannot be had. ExecutionError: a leg cannot be read.
    """
    for name, value in (("--organisation", request.organisation), ("--system-name", request.system_name)):
        if not _NAME.fullmatch(value):
            raise InputError(
                f"{name} {value!r} cannot be a directory's name in a submission",
                "use letters, digits, and . _ - + after the first character; the system's full name goes into --system",
            )
    refuse_taken(request.output)
    for path in request.results:
        if request.output.resolve().is_relative_to(path.resolve()):
            raise SetupError(f"--output {request.output} lies in {path}", "name a place outside of the runs")
    if request.division == "network" and request.documentation is None:
        raise InputError(
            "the network division asks for a diagram of how LoadGen's machine and the servers are connected",
            "name a directory that holds it with --documentation",
        )
    candidates = gather(request.results)
    manifests = _manifests(candidates)
    if manifests:  # else every candidate is refused below
        _describe(request, candidates, [])  # tells early what is missing
        source = read_source(request.source, manifests)
    with with_scorer(request.sources) as (sources, _):  # both judges score the same answers: once is enough
        outcome = judge(replace(request, sources=sources), candidates, say)
        if not outcome.findings and request.division != "open":  # last: it derives all numbers but the scores again
            say("signing off")
            outcome.signed = sign_off(candidates, sources)
            outcome.findings += [*_unsigned(outcome.signed, candidates)] or [*unsigned_audits(candidates, sources)]
    documents = with_calibration(read_documentation(request.documentation) if request.documentation else {}, manifests)
    if request.division != "open":
        fix = "give calibration.md, as it lay beside the weights, or whatever tells it: --documentation"
        outcome.findings += [
            refusal("submit/calibration", "documentation", one, fix) for one in lacking(documents, manifests)
        ]
    if outcome.findings:
        return outcome
    plan = tree_plan(request, outcome, source, documents)
    outcome.rehearsal, outcome.description = plan.rehearsal, plan.description
    say("building")
    outcome.built = build(plan)
    return outcome


def judge(request: SubmitRequest, candidates: list[Candidate], say: Callable[[str], None]) -> SubmitOutcome:
    """The rules on each result, then on all of them together."""
    judged = []
    for candidate in candidates:
        say(f"verifying {candidate.name}")
        judged.append(judge_candidate(candidate, request))
    refusals = [found for one in judged for found in one.refusals]
    refusals += judge_set(candidates, request.division)
    return SubmitOutcome(judged, _notes(request, unofficial_reasons(judged)), findings=refusals)


def sign_off(candidates: list[Candidate], sources: ScoreSources) -> SignOff:
    """The sign-off of all legs together."""
    return judge_legs("bundle", _directories(candidates), sources=sources)


def unsigned_audits(candidates: list[Candidate], sources: ScoreSources) -> Iterator[Finding]:
    """What is wrong with the legs of audits, which are evidence as the results' legs are."""
    for candidate in candidates:
        performance = candidate.performance
        for audit in candidate.audits.values():
            assert performance is not None  # else it was refused before
            for found in audit_problems(Evidence.of(performance, sources), [audit.run.root]):
                fix = "run the audit again"
                yield refusal(found.rule, candidate.name, f"{audit.test}: {found.sentence}", fix)


def tree_plan(request: SubmitRequest, outcome: SubmitOutcome, source: Source, documents: Documents) -> TreePlan:
    """What the tree of these results holds.

    Raises:
        InputError: fields of the system's description are missing.
    """
    rehearsal = unofficial_reasons(outcome.judged) if request.rehearsal else []
    description = _describe(request, [one.candidate for one in outcome.judged], rehearsal)
    return TreePlan(request, outcome.judged, description, source, documents, rehearsal)


def _directories(candidates: list[Candidate]) -> list[Path]:
    return [leg.run.root for candidate in candidates for leg in candidate.legs]


def _unsigned(signed: SignOff, candidates: list[Candidate]) -> Iterator[Finding]:
    """A failure of the sign-off itself refuses as well: nothing is then known."""
    if signed.blocks:
        command = f"main.py signoff --scope bundle {' '.join(f'--ref {path}' for path in _directories(candidates))}"
        fix = f"see `{command}`; run what it names again"
        if signed.error is not None:
            yield refusal("submit/sign-off", "sign-off", signed.headline, fix)
        for found in signed.of("error"):
            yield refusal(found.rule, "sign-off", found.sentence, fix)


def _manifests(candidates: list[Candidate]) -> list[Manifest]:
    return [manifest for candidate in candidates for manifest in candidate.manifests().values()]


def _describe(request: SubmitRequest, candidates: list[Candidate], rehearsal: list[str]) -> SystemDescription:
    return describe(
        _manifests(candidates),
        submitter=request.organisation,
        division=request.division,
        system_name=request.system_name,
        suites={SUBMISSIONS[candidate.benchmark].suite for candidate in candidates},
        given=request.given,
        rehearsal=rehearsal,
        network=request.division == "network"
        or (request.division == "open" and any(leg.detail.is_network for one in candidates for leg in one.legs)),
    )


def _notes(request: SubmitRequest, unofficial: list[str]) -> list[str]:
    notes = []
    if request.rehearsal and not unofficial:
        notes.append("every result is official: the tree carries no mark of a rehearsal")
    if request.division == "open" and not request.rehearsal:
        notes += [f"not official, which the open division allows: {reason}" for reason in unofficial]
    return notes
