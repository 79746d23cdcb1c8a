"""The steps of `main.py submit`: find the runs, describe the system, check, sign off, and write the tree.

The tree is written to a temporary directory next to the output, and renamed when it is complete. It contains
neither the time nor the machine of the build, so equal runs lead to equal bytes. The runs are only read.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import orjson
from jinja2 import Environment, FileSystemLoader

from compliance.audits.discovery import AUDITS
from compliance.judge.record import not_applied_record, record
from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, Policy, Subject, Verdict, compared, judge, not_applied
from compliance.results.scoring import ScoreSources, with_scorer
from compliance.signoff.evidence import Evidence
from compliance.signoff.harness import audit_problems
from compliance.signoff.judge import sign_off as judge_runs
from compliance.signoff.signoff_verdict import SignOff, blocks, headline
from compliance.submission.build_inputs import gather, manifests_below
from compliance.submission.candidate import Candidate, SubmitRequest, not_official
from compliance.submission.gates import (
    SUBMIT,
    SetEvidence,
    never_eligible,
)
from compliance.submission.source import CODE_FOLDER, README, SourceCode, read_documentation, read_source_code
from compliance.submission.submitted_accuracy import submitted_accuracy
from compliance.submission.system import SystemDescription, system_description
from compliance.submission.text import built_lines, refusal_lines
from compliance.submission.weights import Documents, lacking, measurements, model_name, with_calibration
from compliance.trees.tree import MAX_FILE_BYTES, REHEARSAL_MARK, Place, Tree
from runs.attestation.attestation import read_attestation
from runs.benchmarks import SUBMISSIONS
from runs.errors import ExecutionError, HarnessError, InputError, SetupError
from runs.files.reading import read_record
from runs.files.temporary import remove_folder
from runs.files.writing import sha256_of
from runs.processes.interrupts import critical, ensured
from runs.record.layout import RunDir
from runs.record.manifest import Manifest

_RERUN = "rerun"
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), trim_blocks=True, lstrip_blocks=True
)
_FILES = ("_path", "_conf", "_dir")  # endings of the names of options that have a path as value
# Options that the command lines in README.md omit, because its table contains the declaration.
_NOT_OF_THE_RUN = frozenset({"output_log_dir", "signing_key", "mechanism"})


@dataclass
class SubmissionDetails:
    """What `submit` states besides the findings, which are the reasons why no tree was built."""

    request: SubmitRequest
    judged: Sequence[Candidate] = ()
    description: SystemDescription | None = None
    signed: SignOff | None = None  # None if no sign-off is required
    built: dict[str, int] | None = None  # path in the tree → size in bytes

    @property
    def unofficial(self) -> list[str]:
        """The reasons why the results are not eligible for submission."""
        return list(dict.fromkeys(reason for candidate in self.judged for reason in candidate.unofficial))

    @property
    def rehearsal(self) -> list[str]:
        """The reasons why the tree is a rehearsal; empty if the tree is not a rehearsal."""
        return self.unofficial if self.request.rehearsal else []

    @property
    def notes(self) -> list[str]:
        if self.request.rehearsal:
            return (
                []
                if self.unofficial
                else ["every result is eligible for submission, so the tree is not marked as a rehearsal"]
            )
        allowed = self.unofficial if self.request.division == "open" else []
        return [f"not eligible for submission, which the open division allows: {reason}" for reason in allowed]

    def lines(self, verdict: "Submission") -> Iterator[str]:
        """Yield the text of the verdict."""
        return refusal_lines(verdict.all_findings) if verdict.all_findings else built_lines(self)

    def as_json(self, verdict: "Submission", common: dict[str, Any]) -> dict[str, Any]:
        built, description = self.built or {}, self.description
        return common | {
            "not_judged": [not_applied_record(entry) for entry in not_applied(*verdict.all_verdicts)],
            "verdict": "BUILT" if built else "REFUSED",
            "tree": str(self.request.output) if built else None,
            "rehearsal": self.rehearsal if built else [],
            "notes": self.notes,
            "signoff": None if self.signed is None else record(self.signed),
            "results": [
                {
                    "place": candidate.name,
                    "directories": [str(path) for path in candidate.result.directories],
                    "audits": {test: str(audit.folder) for test, audit in candidate.audits.items()},
                    "verdict": candidate.verdict.outcome if candidate.is_complete else None,
                    "not_official": candidate.unofficial,
                }
                for candidate in self.judged
            ],
            "system": None
            if description is None
            else {
                name: {"value": value, "from": description.origins[name]} for name, value in description.values.items()
            },
            "files": built,
            "bytes": sum(built.values()),
        }


Submission = Verdict[SubmissionDetails]


def refuse_used_directory(root: Path) -> None:
    """Refuse an output directory that already exists and is not empty.

    Raises:
        SetupError: If the output exists and is not empty, or cannot be written.
    """
    if root.is_symlink() or (root.exists() and (not root.is_dir() or any(root.iterdir()))):
        raise SetupError(f"--output {root}: directory exists and is not empty", "name a new directory")
    existing = next(parent for parent in root.absolute().parents if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise SetupError(f"--output {root}: {existing} cannot be written", "name a directory you may write to")


def build(outcome: SubmissionDetails, description: SystemDescription, source: SourceCode, documents: Documents) -> None:
    """Write the tree of checked results.

    Args:
        documents: path in documentation/ → content.

    Raises:
        SetupError: If the output exists or cannot be written, or a file is too large for a submission.
        InputError: If a file of a run is missing.
        ExecutionError: If a file of a run has changed.
    """
    request, root = outcome.request, outcome.request.output
    refuse_used_directory(root)
    draft = root.absolute().with_name(f".{root.absolute().name}.{os.getpid()}.tmp")
    tree = Tree(draft, request.round)
    home = request.division, request.organization
    try:
        with ensured(partial(remove_folder, draft)):
            draft.mkdir(parents=True)
            for candidate in outcome.judged:
                _scenario(outcome, tree, candidate)
            values = dict(description.values)
            if outcome.rehearsal:
                values["sw_notes"] = f"{REHEARSAL_MARK}. {values['sw_notes']}".rstrip()
            _json(tree.system(*home, request.system_name), values)
            _write(tree.source(*home) / README, source.readme())
            for name, content in source.files.items():
                _write(tree.source(*home) / CODE_FOLDER / name, content)
            for name, content in documents.items():
                _write(tree.documentation(*home) / name, content)
            if outcome.rehearsal:
                reasons = [f"- {reason}" for reason in outcome.rehearsal]
                lines = [REHEARSAL_MARK, "", "This tree must not be uploaded:", *reasons]
                _write(tree.rehearsal_file(), "\n".join(lines) + "\n")
            sizes = _sizes(draft)
            draft.replace(root)
    except OSError as error:
        raise SetupError(f"--output {root}: cannot be written: {error.strerror}", "name another directory") from error
    outcome.description, outcome.built = description, sizes


def _scenario(outcome: SubmissionDetails, tree: Tree, candidate: Candidate) -> None:
    request, rehearsal = outcome.request, outcome.rehearsal
    home = request.division, request.organization, request.system_name
    place = Place(*home, candidate.benchmark, candidate.scenario)
    manifests = candidate.manifests()
    performance, accuracy = candidate.result.performance, candidate.result.accuracy
    if performance is None or accuracy is None:
        raise InputError(f"{candidate.name}: a run is missing", "name the performance and the accuracy run")
    copies = [(performance.dir, tree.performance(place)), (accuracy.dir, tree.accuracy(place))]
    for test, audit in sorted(candidate.audits.items()):
        folder = tree.audit(place, test)
        copies.append((audit.dir, RunDir(folder / "performance" / "run_1")))
        _copy(audit.dir.accuracy_log, RunDir(folder / "accuracy").accuracy_log)
        text_name = AUDITS[test].text_name
        _write(folder / text_name, read_record(audit.folder / text_name, _RERUN))
    for run, to in copies:  # A submission contains no trace.
        _copy(run.summary, to.summary)
        _copy(run.detail, to.detail)
    # The accuracy log of the performance run is kept. Its empty list shows that LoadGen logged no responses.
    _copy(performance.dir.accuracy_log, tree.performance(place).accuracy_log)
    submitted = submitted_accuracy(accuracy.dir)
    _write(tree.accuracy(place).accuracy_log, submitted.log)
    _write(tree.accuracy(place).accuracy_text, submitted.text)
    values = measurements(manifests["performance"], request.given.measurements, rehearsal)
    _json(tree.measurements(place), values)
    _write(tree.user_conf(place), read_record(performance.dir.user_conf, _RERUN))
    _write(tree.readme(place), _readme(candidate, place, tree, rehearsal))


def _readme(candidate: Candidate, place: Place, tree: Tree, rehearsal: list[str]) -> str:
    """Return README.md of a scenario."""
    manifests = candidate.manifests()
    manifest = manifests["performance"]
    text = _ENVIRONMENT.get_template("scenario_readme.md").render(
        place=place,
        round=tree.round,
        mark=REHEARSAL_MARK,
        rehearsal=rehearsal,
        parts=candidate.verdict.parts,
        code=f"{tree.source(place.division, place.organization).name}/{CODE_FOLDER}",
        code_folder=CODE_FOLDER,
        commands=[_command(name, manifest) for name, manifest in manifests.items()],
        plan=manifest.plan,
        model_name=model_name(manifest),
        mechanism=manifest.mechanism,
        engine=manifest.engine,
        observed=manifest.observed,
    )
    return text.rstrip() + "\n"


def _command(name: str, manifest: Manifest) -> str:
    """Return the command line of a run. It omits the output directory and the folders of input files."""
    words = ["python", "main.py"]
    requested = dict(manifest.asked)
    if manifest.plan.audit:
        words += ["audit", "--test", name]
        for key in ("audit_conf", "accuracy"):
            requested.pop(key, None)
    for key, value in requested.items():
        if key not in _NOT_OF_THE_RUN and value is not False and value is not None:
            words += _option(key, value)
    return shlex.join(words)


def _option(key: str, value: Any) -> list[str]:
    flag = "--" + key.replace("_", "-")
    if value is True:
        return [flag]
    if isinstance(value, dict):
        return [word for name, setting in value.items() for word in (flag, f"{name}={setting}")]
    if isinstance(value, list):
        return [word for setting in value for word in (flag, str(setting))]
    is_hub_id = key == "model_path" and not PurePath(str(value)).is_absolute()
    if key.endswith(_FILES) and not is_hub_id:
        return [flag, PurePath(str(value)).name]
    return [flag, str(value)]


def _copy(source: Path, target: Path) -> None:
    """Copy a log of LoadGen and check that it is unchanged."""
    if not source.is_file():
        raise InputError(f"{source} is missing", _RERUN)
    with critical():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    if read_attestation(RunDir(source.parent)).files.get(source.name) != sha256_of(target):
        raise ExecutionError(f"{source}: changed after the run ended", _RERUN)


def _write(path: Path, content: bytes | str) -> None:
    with critical():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def _json(path: Path, value: dict[str, Any]) -> None:
    _write(path, orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))


def _sizes(root: Path) -> dict[str, int]:
    """Return the size of every file by its path in the tree.

    Raises:
        SetupError: If a file is too large.
    """
    sizes = {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*") if path.is_file()}
    for name, size in sizes.items():
        if size > MAX_FILE_BYTES:
            raise SetupError(
                f"{name}: {size / (1 << 20):.0f} MiB, allowed: at most {MAX_FILE_BYTES >> 20} MiB per file",
                "remove it from --source" if CODE_FOLDER in name else "repeat the run without --enable-log-trace",
            )
    return dict(sorted(sizes.items()))


# The steps of `submit` ------------------------------------------------------------------------------------------------


# Directory names that every file system and the official scripts accept.
_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]*")


@decides(
    "submit",
    ("submit/calibration", "error", "[rules] closed division", "document on the quantization of the weights",
     "name its directory with --documentation"),
    ("submit/sign-off", "error", OURS, "sign-off of all runs together", "repeat the runs that the sign-off names"),
)  # fmt: skip
def build_submission(request: SubmitRequest, say: Callable[[str], None]) -> Submission:
    """Build the tree, or refuse the results. Quick checks come first.

    Args:
        say: reports the name of each step that takes time.

    Raises:
        InputError: If a path, a name or the system description is wrong.
        SetupError: If the output exists or the source cannot be found.
        ExecutionError: If a run cannot be read.
    """
    for name, value in (("--organization", request.organization), ("--system-name", request.system_name)):
        if not _NAME.fullmatch(value):
            raise InputError(
                f"{name} {value!r}: not a valid directory name in a submission",
                "use letters, digits, and . _ - + after the first character; give the full name with --system",
            )
    refuse_used_directory(request.output)
    for path in request.results:
        if request.output.resolve().is_relative_to(path.resolve()):
            raise SetupError(f"--output {request.output}: lies in the run directory {path}", "name another directory")
    if request.division == "network" and request.documentation is None:
        raise InputError(
            "--documentation is missing: the network division requires a diagram of the network to the SUT",
            "name the directory of the diagram with --documentation",
        )
    try:
        candidates = gather(request.results)
        manifests = _manifests(candidates)
        if manifests:  # results without a manifest are refused below
            description = describe_system(request, candidates)
            source = read_source_code(request.source, manifests)
    except HarnessError:
        if never := _never_eligible(request):  # more runs or files would not help
            return Submission(never, details=SubmissionDetails(request))
        raise
    with with_scorer(request.sources) as (sources, _):  # verify and sign-off share these scores
        verdict = judge_results(replace(request, sources=sources), candidates, say)
        if not verdict.all_findings and request.division != "open":  # the sign-off comes last: it takes longest
            say("signing off")
            judged = verdict.details.judged
            signed = verdict.details.signed = sign_off_runs(judged, sources)
            verdict.findings += [*_unsigned(signed, judged)] or [*unsigned_audits(judged, sources)]
    documentation = read_documentation(request.documentation) if request.documentation else {}
    documents = with_calibration(documentation, manifests)
    if request.division != "open":
        fix = "add the calibration.md of the weights' folder, or another document, to the directory of --documentation"
        verdict.findings += [
            compared("submit/calibration", False, problem, "", text="documentation", fix=fix)
            for problem in lacking(documents, manifests)
        ]
    if not verdict.all_findings:
        say("building")
        build(verdict.details, description, source, documents)
    return verdict


def _never_eligible(request: SubmitRequest) -> list[Finding]:
    """Return the facts that make finished and planned runs not eligible for submission, from their manifests alone."""
    findings: list[Finding] = []
    for place, manifest in () if request.rehearsal else manifests_below(request.results):
        reasons = list(not_official([manifest], request.sources.dataset_path))
        reasons += manifest.unofficial_reasons if request.division != "open" else []
        findings += [never_eligible(place, reason) for reason in reasons]
    return list(dict.fromkeys(findings))


def judge_results(request: SubmitRequest, candidates: list[Candidate], say: Callable[[str], None]) -> Submission:
    """Apply the rules to each result, then to all results together."""

    def each(parts: Sequence[Subject], policy: Policy) -> Iterator[Verdict[Any]]:
        for part in parts:
            say(f"verifying {part.name}")
            yield judge(part, policy)

    requested = [
        replace(candidate, result=replace(candidate.result, sources=request.sources), request=request)
        for candidate in candidates
    ]
    results = SetEvidence(requested, request)
    verdict: Submission = judge(results, SUBMIT, each)
    if verdict.error is not None:
        raise verdict.error
    verdict.details = SubmissionDetails(request, results.candidates)
    return verdict


def sign_off_runs(candidates: Sequence[Candidate], sources: ScoreSources) -> SignOff:
    """Sign off all runs together."""
    read = [run for candidate in candidates for run in candidate.result.parts]
    return judge_runs("bundle", _directories(candidates), sources=sources, read=read)


def unsigned_audits(candidates: Sequence[Candidate], sources: ScoreSources) -> Iterator[Finding]:
    """Yield a refusal for each error in an audit run."""
    for candidate in candidates:
        performance = candidate.result.performance
        for audit in candidate.audits.values():
            assert performance is not None  # a result without a performance run was refused before
            for problem in audit_problems(Evidence.of(performance, sources=sources), audit.runs):
                fix = "repeat the audit"
                yield compared(
                    problem.rule,
                    False,
                    f"{audit.test}: {problem.sentence}",
                    "",
                    text=candidate.name,
                    severity="error",
                    fix=fix,
                )


def describe_system(request: SubmitRequest, candidates: Sequence[Candidate]) -> SystemDescription:
    """Return the description of the system of these results.

    Raises:
        InputError: If fields are missing.
    """
    over_network = any(run.detail.is_network for candidate in candidates for run in candidate.result.parts)
    return system_description(
        _manifests(candidates),
        submitter=request.organization,
        division=request.division,
        system_name=request.system_name,
        suites={SUBMISSIONS[candidate.benchmark].suite for candidate in candidates},
        system_file=request.given,
        detect_here=request.detect_here,
        network=request.division == "network" or (request.division == "open" and over_network),
    )


def _directories(candidates: Sequence[Candidate]) -> list[Path]:
    return [run.dir.root for candidate in candidates for run in candidate.result.parts]


def _unsigned(signed: SignOff, candidates: Sequence[Candidate]) -> Iterator[Finding]:
    """Yield a refusal for each finding of the sign-off, or for a failure of the sign-off itself."""
    if blocks(signed):
        command = f"main.py signoff --scope bundle {' '.join(f'--ref {path}' for path in _directories(candidates))}"
        fix = f"repeat the runs that `{command}` names"
        if signed.error is not None:
            yield compared("submit/sign-off", False, headline(signed), "", text="sign-off", fix=fix)
        for finding in signed.of("error"):
            yield compared(finding.rule, False, finding.sentence, "", text="sign-off", severity="error", fix=fix)


def _manifests(candidates: Sequence[Candidate]) -> list[Manifest]:
    return [manifest for candidate in candidates for manifest in candidate.manifests().values()]
