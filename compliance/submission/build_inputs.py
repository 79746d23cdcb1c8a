"""The input of `submit`: results, each with its runs and audits, and its place in a tree."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from compliance.audits.base import PERFORMANCE as AUDIT_RUN
from compliance.audits.discovery import AUDITS
from compliance.audits.state import result_homes
from compliance.evidence.scoring import ScoreSources
from compliance.submission.system import SystemFile, not_detected
from compliance.submission.tree import Division
from compliance.verify.find_results import ResultRuns, campaign_results, find_results
from runs.benchmark import Scenario
from runs.benchmarks import BENCHMARKS, SUBMISSIONS
from runs.errors import InputError
from runs.record.fingerprint import Facts, fingerprint
from runs.record.finished_run import ACCURACY, PERFORMANCE, FinishedRun
from runs.record.layout import ResultDir, RunDir, audit_record
from runs.record.manifest import Manifest, read_manifest
from runs.rounds import Round

# Audits that a submission contains; others are ignored.
SUBMITTED_TESTS = tuple(sorted({name for one in SUBMISSIONS.values() for name in one.audits}))


@dataclass(frozen=True)
class SubmitRequest:
    """What to build, from what."""

    results: list[Path]
    output: Path
    organization: str
    system_name: str
    division: Division
    round: Round
    given: SystemFile
    source: Path | None = None
    documentation: Path | None = None
    rehearsal: bool = False  # results may be ineligible for submission; every other rule applies
    sources: ScoreSources = field(default_factory=ScoreSources)  # for scoring the responses
    detect_here: Callable[[Manifest], Mapping[str, str]] = not_detected


@dataclass(frozen=True)
class Audit:
    """One audit's directory, as `main.py audit` fills it."""

    test: str
    folder: Path
    benchmark: str  # directory name in a submission
    scenario: Scenario

    @cached_property
    def finished_run(self) -> FinishedRun:
        return FinishedRun(RunDir(self.folder / AUDIT_RUN))

    @property
    def dir(self) -> RunDir:
        return self.finished_run.dir

    @property
    def manifest(self) -> Manifest:
        return self.finished_run.manifest or read_manifest(self.dir.manifest)


@dataclass
class Candidate:
    """One scenario of one benchmark that may enter a tree."""

    benchmark: str  # directory name in a submission
    scenario: Scenario
    result: ResultRuns
    audits: dict[str, Audit] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.benchmark}/{self.scenario}"

    @property
    def performance(self) -> FinishedRun | None:
        return self.result.run(PERFORMANCE)

    @property
    def accuracy(self) -> FinishedRun | None:
        return self.result.run(ACCURACY)

    @property
    def runs(self) -> list[FinishedRun]:
        return [run for run in (self.performance, self.accuracy) if run is not None]

    @property
    def all_runs(self) -> list[FinishedRun]:
        """With those of the audits."""
        return [*self.runs, *(audit.finished_run for audit in self.audits.values())]

    @property
    def homes(self) -> list[ResultDir]:
        """The possible directories of the result: as named, and by the places of its runs."""
        return result_homes(*(run.dir.root for run in self.runs), named=self.result.home)

    def manifests(self) -> dict[str, Manifest]:
        """The manifest of every run, audits included, by a name for people."""
        found = {run.mode.removesuffix("Only").lower(): run.manifest for run in self.runs if run.manifest is not None}
        return found | {audit.test: audit.manifest for audit in self.audits.values()}

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of its first run, the performance run where it is there."""
        return next(iter(self.manifests().values()), None)

    @cached_property
    def facts(self) -> Facts:
        """The fingerprint of that record."""
        return fingerprint(self.manifest) if self.manifest is not None else {}


def gather(paths: list[Path], *, beside: bool = True) -> list[Candidate]:
    """Find every result and audit in `paths`, in the order of their places in a tree.

    A path is a campaign's directory, a result's (`performance/run_1`, `accuracy`, `audit/NAME`), a run's, or an
    audit's. Runs that were named one by one are paired as `verify` pairs them.

    Args:
        beside: whether runs that were named one by one have the audits in their result's directory.

    Raises:
        InputError: a path has none of these, two results or audits are for one place, or an audit's result is
            missing.
        HarnessError: a run cannot be read.
    """
    parts = [_parts(path) for path in paths]
    run_paths = [path for runs, _ in parts for path in runs]
    audit_paths = [path.resolve() for _, audits in parts for path in audits]
    candidates: dict[tuple[str, str], Candidate] = {}
    for result in find_results(run_paths) if run_paths else []:
        if result.error is not None:
            raise result.error
        if not result.runs:
            continue
        benchmark, scenario = result.runs[0].benchmark.submission_name, result.runs[0].scenario
        earlier = candidates.setdefault((benchmark, scenario), Candidate(benchmark, scenario, result))
        if earlier.result is not result:
            one, other = (" + ".join(map(str, found.directories)) for found in (earlier.result, result))
            raise InputError(
                f"two results for {benchmark}/{scenario}: {one} and {other}",
                "name the one to submit",
            )
    for path in dict.fromkeys(audit_paths):
        audit = _audit(path)
        candidate = candidates.get((audit.benchmark, audit.scenario))
        if candidate is None:
            raise InputError(
                f"{path}: no result was named for this {audit.test} of {audit.benchmark}/{audit.scenario}",
                "name the result as well, or leave the audit out",
            )
        twin = candidate.audits.setdefault(audit.test, audit)
        if twin is not audit:
            raise InputError(
                f"two {audit.test} for {candidate.name}: {twin.folder} and {path}",
                "name the one to submit",
            )
    for candidate in candidates.values() if beside else ():
        folders = [folder for home in candidate.homes for folder in _audits_of(home)]
        for audit in (_audit(folder) for folder in folders if audit_record(folder, folder.name).is_file()):
            if (audit.benchmark, audit.scenario) == (candidate.benchmark, candidate.scenario):
                candidate.audits.setdefault(audit.test, audit)
    if not candidates:
        raise InputError(f"no result in {', '.join(map(str, paths))}", "name a campaign's or a result's directory")
    return [candidates[key] for key in sorted(candidates)]


def _parts(path: Path) -> tuple[list[Path], list[Path]]:
    """Directories of runs and of audits in one path."""
    if any(audit_record(path, test).is_file() for test in AUDITS):
        return [], [path]
    if campaign := campaign_results(path):
        return list(campaign), [audit for root in campaign for audit in _audits_of(ResultDir(root))]
    audits = _audits_of(ResultDir(path))
    holds_runs = any((path / part).exists() for part in ("performance", "accuracy", RunDir(path).manifest.name))
    return [path] if holds_runs or not audits else [], audits


def _audits_of(result: ResultDir) -> list[Path]:
    return [result.audit(test) for test in SUBMITTED_TESTS if result.audit(test).is_dir()]


def _audit(folder: Path) -> Audit:
    test = next((name for name in AUDITS if audit_record(folder, name).is_file()), None)
    if test is None:
        raise InputError(
            f"{folder} has no {audit_record(folder, folder.name).name}: the audit did not end",
            "run the audit again",
        )
    if test not in SUBMITTED_TESTS:
        raise InputError(f"{folder}: {test} is not submitted", "leave it out")
    plan = read_manifest(RunDir(folder / AUDIT_RUN).manifest).plan
    if plan.loadgen_key not in BENCHMARKS:
        raise InputError(f"{folder}: unknown benchmark {plan.loadgen_key}", "give an audit of this benchmark")
    return Audit(test, folder, BENCHMARKS[plan.loadgen_key].submission_name, plan.scenario)
