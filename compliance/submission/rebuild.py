"""Comparison of a tree with its runs: the tree is built again from the runs, and every file is compared.

The rules of `submit` and the sign-off apply to the runs. Values that runs do not record (`SystemFile`) come from
--system, or without that option from the tree.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby, zip_longest
from pathlib import Path

from compliance.judge.record import record
from compliance.judge.rule import OURS, Rank, decides
from compliance.judge.verdict import Finding, compared
from compliance.results.scoring import ScoreSources, with_scorer
from compliance.sources import VerdictRequest
from compliance.submission.build import build, describe_system, judge_results, sign_off_runs, unsigned_audits
from compliance.submission.build_inputs import SUBMITTED_TESTS, gather
from compliance.submission.candidate import SubmitRequest
from compliance.submission.source import SourceCode, read_source_code
from compliance.submission.system import SystemFile, find_system_file, given_in
from compliance.submission.weights import is_about_calibration, lacking
from compliance.trees.check_tree import SystemSignOff, TreeDetails, TreeVerdict
from compliance.trees.findings import (
    MAX_TEXT_BYTES,
    MISSING,
    Reads,
    is_regular,
    object_or_empty,
    presented,
    read_tree_bytes,
    value_of,
)
from compliance.trees.layout import is_document
from compliance.trees.tree import DIVISIONS, Division, Place, Tree
from runs.errors import HarnessError, InputError
from runs.files.reading import files_below, read_record
from runs.files.temporary import temporary_folder
from runs.files.writing import sha256_of
from runs.record.layout import LOADGEN_LOGS, RunDir
from runs.record.manifest import Manifest
from runs.what_is import what_is

_FIX = "give a run directory, or a directory that contains runs"
MAX_DOCUMENTS = 64  # maximum number of calibration documents, each of at most 1 MiB

RunsIndex = dict[str, RunDir]  # SHA-256 of the detail log → run


def index_runs(directories: list[Path]) -> RunsIndex:
    """Return every run in the directories. A run has a manifest.json; the logs of a tree have none.

    Raises:
        InputError: If a directory is missing or has no run, or if two different runs have identical logs.
    """
    index: RunsIndex = {}
    for directory in directories:
        places = [RunDir(path.parent) for path in files_below(directory) if path.name == LOADGEN_LOGS[1]]
        runs = [run for run in places if is_regular(run.detail) and is_regular(run.manifest)]
        if not runs:
            raise what_is(directory).refused("a directory with runs of this harness", "--runs")
        for run in runs:
            earlier = index.setdefault(sha256_of(run.detail), run)
            if earlier is not run and read_record(earlier.manifest, _FIX) != read_record(run.manifest, _FIX):
                raise InputError(f"--runs: {earlier.root} and {run.root} have identical logs", "give only one of them")
    return index


def _run_of(run: RunDir, runs: RunsIndex) -> RunDir | None:
    """Return the run whose detail log is in the tree."""
    with suppress(InputError):  # a file that is too large to be a log raises the error
        return runs.get(sha256_of(run.detail)) if is_regular(run.detail) else None
    return None


@dataclass(frozen=True)
class TreeInputs:
    """The inputs from which a tree was built: the runs, and the options of `main.py submit`."""

    runs: RunsIndex
    given: SystemFile | None = None  # system description; None: from the tree
    source: Path | None = None  # source code; None: the harness at the commit in the manifests
    sources: ScoreSources = field(default_factory=ScoreSources)


def tree_inputs(request: VerdictRequest) -> TreeInputs:
    """Return the inputs that the options of `check` name.

    Raises:
        InputError: If a directory of --runs has no run, or the file of --system is wrong.
    """
    runs, system = index_runs(list(request.runs)), find_system_file(request.system, request.runs)
    return TreeInputs(runs, system, request.source, request.scores)


@decides(
    "tree",
    ("log-not-in-runs", "error", OURS, "detail log, compared with the runs of --runs", "give its run with --runs"),
    ("runs-differ", "error", OURS, "file, compared with the tree rebuilt from the runs",
     "build the tree again, or also give the --system and --source of `submit`"),
    ("runs-unread", "error", OURS, "rebuilding the tree from the runs", "give complete runs with --runs"),
    rank=Rank.COPIES,
)  # fmt: skip
def compare_tree_with_runs(verdict: TreeVerdict, made_of: TreeInputs) -> None:
    """Compare every file with a tree that is rebuilt from the runs. Sign off each system outside the open division."""
    details, signed = verdict.details, list[SystemSignOff]()
    verdict.findings += presented(details.tree.root, _findings(details, made_of, signed))
    details.signed = signed
    verdict.refused_by += [f"sign-off of {system.system}" for system in signed if system.blocks]


def _findings(details: TreeDetails, made_of: TreeInputs, signed: list[SystemSignOff]) -> Iterator[Finding]:
    """Yield the differences between a tree and its runs, and add the sign-off of each system to `signed`."""
    tree = details.tree
    # files that `submit` builds from the runs of each system; None: unknown
    built: dict[tuple[str, str], list[set[Path] | None]] = {}
    with with_scorer(made_of.sources) as (sources, _):
        for home, places in groupby(details.places, lambda place: (place.division, place.organization, place.system)):
            files, sign_off_of = yield from _compare_system(tree, [*places], replace(made_of, sources=sources))
            built.setdefault(home[:2], []).append(files)
            signed += [sign_off_of] if home[0] != "open" else []
    for (division, organization), of_systems in built.items():
        files_of = [files for files in of_systems if files is not None]
        if len(files_of) == len(of_systems):
            yield from _foreign_files(tree, (division, organization), set[Path]().union(*files_of))
    for path in files_below(tree.root):
        name = path.relative_to(tree.root)
        of_submitter = len(name.parts) > 2 and name.parts[0] in DIVISIONS
        if not of_submitter and name.parts[0] != ".git" and path != tree.rehearsal_file():
            text = "file outside the submitters' directories"
            yield compared("runs-differ", False, text, "none", path, fix="remove the file")


def _compare_system(
    tree: Tree, places: list[Place], made_of: TreeInputs
) -> Reads[tuple[set[Path] | None, SystemSignOff]]:
    """Rebuild the part of the tree of one system, and compare it.

    Returns:
        The files that the runs give (None if unknown), and the sign-off.
    """
    first = places[0]
    result_runs = [run_dir for place in places for run_dir in (tree.performance(place), tree.accuracy(place))]
    tests = [tree.audit(place, test) for place in places for test in SUBMITTED_TESTS]
    audits = [RunDir(folder / "performance" / "run_1") for folder in tests if folder.is_dir()]
    run_of = {run_dir: _run_of(run_dir, made_of.runs) for run_dir in (*result_runs, *audits)}
    for run_dir in (run_dir for run_dir, submitted_run in run_of.items() if submitted_run is None):
        yield compared(
            "log-not-in-runs", False, "in none of the runs", "a detail log of one of the runs", run_dir.detail
        )
    name = f"{first.division}/{first.organization}/{first.system}"
    signed = SystemSignOff(name, len(result_runs), sum(run_of[run_dir] is not None for run_dir in result_runs))
    if None in run_of.values():
        return None, signed
    results = [run.root for run_dir in result_runs if (run := run_of[run_dir])]
    results += [run.root.parent for run_dir in audits if (run := run_of[run_dir])]
    home = tree.results(first.division, first.organization) / first.system
    try:
        candidates = gather(results, beside=False)
        manifests = [manifest for candidate in candidates for manifest in candidate.manifests().values()]
        with temporary_folder("check-") as folder:
            request = _request(tree, first, folder / "tree", results, candidates[0].manifests(), made_of)
            outcome = judge_results(request, candidates, lambda text: None)
            refusals, judged = outcome.all_findings, outcome.details.judged
            if request.division != "open":
                refusals = refusals or [*unsigned_audits(judged, made_of.sources)]
                signed = replace(signed, verdict=record(sign_off_runs(judged, made_of.sources)))
                yield from _check_calibration(tree.documentation(first.division, first.organization), manifests)
            for refusal in refusals:
                yield compared(
                    refusal.rule, False, refusal.found, refusal.required, home / refusal.text, fix=refusal.fix
                )
            code = tree.source(first.division, first.organization)
            source = yield from _source(made_of.source, manifests, code)
            build(outcome.details, describe_system(request, candidates), source or SourceCode({}, ""), {})
            expected = {path.relative_to(request.output): path for path in files_below(request.output)}
            if source is None:
                of_code = code.relative_to(tree.root)
                expected = {name: path for name, path in expected.items() if not name.is_relative_to(of_code)}
            for file, path in expected.items():
                yield from _compare(tree.root / file, path)
        return {*expected}, signed
    except HarnessError as error:
        yield compared("runs-unread", False, error.message, "", home, fix=error.fix)
        return None, signed


def _request(
    tree: Tree, first: Place, output: Path, results: list[Path], manifests: dict[str, Manifest], made_of: TreeInputs
) -> SubmitRequest:
    division: Division = next((name for name in DIVISIONS if name == first.division), "closed")
    # Fields that are missing in the file of --system are taken from the description in the tree.
    described = object_or_empty(tree.system(first.division, first.organization, first.system))
    system_file = given_in(described, manifests["performance"]) if manifests else SystemFile({}, {})
    if made_of.given is not None:
        system_file = SystemFile({**system_file.fields, **made_of.given.fields}, made_of.given.measurements)
    return SubmitRequest(
        results=results,
        output=output,
        organization=first.organization,
        system_name=first.system,
        division=division,
        round=tree.round,
        given=system_file,
        source=made_of.source,
        rehearsal=tree.rehearsal_file().exists(),
        sources=made_of.sources,
    )


def _check_calibration(folder: Path, manifests: list[Manifest]) -> Iterator[Finding]:
    places = [*files_below(folder), *folder.parent.iterdir()]  # in documentation/ or next to it
    files = [path for path in places if is_regular(path) and is_about_calibration(path)]
    if len(files) > MAX_DOCUMENTS:
        wanted = f"at most {MAX_DOCUMENTS}"
        yield compared("runs-differ", False, f"{len(files):,}", wanted, folder, text="calibration documents")
        return
    documents = {os.path.relpath(path, folder): value_of(read_tree_bytes(path, "runs-differ")) for path in files}
    for problem in lacking({name: content for name, content in documents.items() if content is not None}, manifests):
        yield compared(
            "runs-differ", False, problem, "how the weights were quantized", folder, text="calibration document"
        )


def _source(path: Path | None, manifests: list[Manifest], code: Path) -> Reads[SourceCode | None]:
    """Return the source code of the runs. Return None and yield a finding if it cannot be read."""
    try:
        return read_source_code(path, manifests)
    except HarnessError as error:
        yield compared("runs-unread", False, error.message, "the source code of the runs", code, fix=error.fix)
        return None


def _compare(path: Path, expected: Path) -> Iterator[Finding]:
    if not is_regular(path):
        yield compared("runs-differ", False, MISSING, "the file that follows from the runs", path)
    elif path.stat().st_size != expected.stat().st_size or sha256_of(path) != sha256_of(expected):
        yield compared("runs-differ", False, *_first_difference(path, expected), path)


def _first_difference(path: Path, expected: Path) -> tuple[str, str]:
    """Return the first line that differs, as it is in the tree and as it follows from the runs."""
    if max(path.stat().st_size, expected.stat().st_size) > MAX_TEXT_BYTES:
        return f"{path.stat().st_size:,} bytes", f"{expected.stat().st_size:,} bytes (from the runs)"
    lines = (file.read_bytes().split(b"\n") for file in (path, expected))
    for number, (line, expected_line) in enumerate(zip_longest(*lines), start=1):
        if line != expected_line:
            texts = ["end of file" if text is None else text.decode(errors="replace") for text in (line, expected_line)]
            return f"line {number}: {texts[0].strip()}", f"{texts[1].strip()} (from the runs)"
    return "different bytes", "the bytes that follow from the runs"


def _foreign_files(tree: Tree, home: tuple[str, str], expected: set[Path]) -> Iterator[Finding]:
    """Report files that do not follow from the runs, except the submitter's documents."""
    folder, code = tree.organization(*home), tree.source(*home).relative_to(tree.root)
    code_known = any(name.is_relative_to(code) for name in expected)
    for path in files_below(folder):
        name = path.relative_to(tree.root)
        if not is_regular(path) or name in expected or is_document(path.relative_to(folder)):
            continue
        if code_known or not name.is_relative_to(code):
            yield compared(
                "runs-differ", False, "file that does not follow from the runs", "none", path, fix="remove the file"
            )
