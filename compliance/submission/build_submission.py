"""`submit`: gather the runs, describe the system, judge, sign off, build. All reasons of a refusal are reported."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from compliance.evidence.accuracy import ScoreSources, with_scorer
from compliance.finding import OURS, Finding, decides
from compliance.signoff import sign_off as judge_legs
from compliance.signoff.evidence import Evidence
from compliance.signoff.harness import audit_problems
from compliance.signoff.signoff_verdict import SignOff
from compliance.submission.build import SubmitOutcome, build, refuse_taken
from compliance.submission.build_inputs import Candidate, SubmitRequest, gather
from compliance.submission.gates import judge_candidate, judge_set, refusal
from compliance.submission.source import read_documentation, read_source
from compliance.submission.system import SystemDescription, describe
from compliance.submission.weights import lacking, with_calibration
from runs.benchmarks import SUBMISSIONS
from runs.errors import InputError, SetupError
from runs.record.manifest import Manifest

# Names of directories that every file system and the official scripts take.
_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]*")


@decides(
    "submit",
    ("submit/calibration", "error", "[rules] closed division", "a document describes how the weights were quantised",
     "give it with --documentation"),
    ("submit/sign-off", "error", OURS, "the legs sign off together", "run what the sign-off names again"),
)  # fmt: skip
def submit(request: SubmitRequest, say: Callable[[str], None]) -> SubmitOutcome:
    """Build the tree, or refuse it; quick checks come first.

    Args:
        say: called with the name of each step that takes time.

    Raises:
        InputError: a path, a name or the system's description is wrong. SetupError: the output is taken, or the
            source cannot be found. ExecutionError: a leg cannot be read.
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
            raise SetupError(f"--output {request.output} is in {path}", "name a directory outside the runs")
    if request.division == "network" and request.documentation is None:
        raise InputError(
            "the network division requires a diagram of how LoadGen's machine and the servers are connected",
            "name its directory with --documentation",
        )
    candidates = gather(request.results)
    manifests = _manifests(candidates)
    if manifests:  # else every candidate is refused below
        description = describe_system(request, candidates)
        source = read_source(request.source, manifests)
    with with_scorer(request.sources) as (sources, _):  # answers are scored once for both judges
        outcome = judge(replace(request, sources=sources), candidates, say)
        if not outcome.findings and request.division != "open":  # last, since it takes longest
            say("signing off")
            outcome.signed = sign_off(candidates, sources)
            outcome.findings += [*_unsigned(outcome.signed, candidates)] or [*unsigned_audits(candidates, sources)]
    given = read_documentation(request.documentation) if request.documentation else {}
    documents = with_calibration(given, manifests)
    if request.division != "open":
        fix = "give the calibration.md of the weights' folder, or another document: --documentation"
        outcome.findings += [
            refusal("submit/calibration", "documentation", one, fix) for one in lacking(documents, manifests)
        ]
    if not outcome.findings:
        say("building")
        build(outcome, description, source, documents)
    return outcome


def judge(request: SubmitRequest, candidates: list[Candidate], say: Callable[[str], None]) -> SubmitOutcome:
    """Apply the rules to each result, then to all of them together."""
    judged = []
    for candidate in candidates:
        say(f"verifying {candidate.name}")
        judged.append(judge_candidate(candidate, request))
    refusals = [found for one in judged for found in one.refusals]
    return SubmitOutcome(request, judged, findings=[*refusals, *judge_set(candidates, request.division)])


def sign_off(candidates: list[Candidate], sources: ScoreSources) -> SignOff:
    """The sign-off of all legs together."""
    return judge_legs("bundle", _directories(candidates), sources=sources)


def unsigned_audits(candidates: list[Candidate], sources: ScoreSources) -> Iterator[Finding]:
    """What is wrong with the legs of audits."""
    for candidate in candidates:
        performance = candidate.performance
        for audit in candidate.audits.values():
            assert performance is not None  # else it was refused before
            for found in audit_problems(Evidence.of(performance, sources), [audit.run.root]):
                fix = "run the audit again"
                yield refusal(found.rule, candidate.name, f"{audit.test}: {found.sentence}", fix)


def describe_system(request: SubmitRequest, candidates: list[Candidate]) -> SystemDescription:
    """The description of the system of these results.

    Raises:
        InputError: fields are missing.
    """
    over_network = any(leg.detail.is_network for one in candidates for leg in one.legs)
    return describe(
        _manifests(candidates),
        submitter=request.organisation,
        division=request.division,
        system_name=request.system_name,
        suites={SUBMISSIONS[candidate.benchmark].suite for candidate in candidates},
        given=request.given,
        network=request.division == "network" or (request.division == "open" and over_network),
    )


def _directories(candidates: list[Candidate]) -> list[Path]:
    return [leg.run.root for candidate in candidates for leg in candidate.legs]


def _unsigned(signed: SignOff, candidates: list[Candidate]) -> Iterator[Finding]:
    """Why the sign-off refuses; a failure of the sign-off itself refuses too."""
    if signed.blocks:
        command = f"main.py signoff --scope bundle {' '.join(f'--ref {path}' for path in _directories(candidates))}"
        fix = f"see `{command}`; run what it names again"
        if signed.error is not None:
            yield refusal("submit/sign-off", "sign-off", signed.headline, fix)
        for found in signed.of("error"):
            yield refusal(found.rule, "sign-off", found.sentence, fix)


def _manifests(candidates: list[Candidate]) -> list[Manifest]:
    return [manifest for candidate in candidates for manifest in candidate.manifests().values()]
