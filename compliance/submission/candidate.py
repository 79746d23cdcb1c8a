"""A request to submit a result: its audits, its verdict, and the reasons why it is not eligible for submission."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from compliance.audits.base import PERFORMANCE as AUDIT_RUN
from compliance.audits.state import AuditState, audit_state, result_homes
from compliance.judge.rule import Need
from compliance.judge.verdict import Finding, Subject
from compliance.results.details import ResultVerdict, RunVerdict
from compliance.results.policy import judge_result
from compliance.results.result import Result
from compliance.results.run_evidence import RunEvidence
from compliance.results.scoring import ScoreSources
from compliance.submission.system import SystemFile, not_detected
from compliance.trees.tree import NOT_IN_OPEN, Division
from qsl.dataset import SYNTHETIC_MARK
from runs.benchmark import Scenario
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from runs.files.reading import MAX_LOG_BYTES, read_whole
from runs.record.engines.server_facts import all_servers_remote
from runs.record.fingerprint import Facts, fingerprint
from runs.record.finished_run import FinishedRun
from runs.record.layout import ResultDir, RunDir
from runs.record.manifest import Manifest, read_manifest
from runs.rounds import Round

# Rules that refuse only runs whose manifest claims that they are eligible for submission.
_OFFICIAL_INPUTS = frozenset({"record-data-set", "record-weights", "record-servers"})
COMPLETE: tuple[Need, ...] = ("both", "manifest")


@dataclass(frozen=True)
class SubmitRequest:
    """The options of `submit`."""

    results: list[Path]
    output: Path
    organization: str
    system_name: str
    division: Division
    round: Round
    given: SystemFile
    source: Path | None = None
    documentation: Path | None = None
    rehearsal: bool = False  # True: accept results that are not eligible for submission; all other rules apply
    sources: ScoreSources = field(default_factory=ScoreSources)  # model and dataset for scoring
    seed_sets: Path | None = None  # a newer seedset.yaml, for MLPerf Endpoints
    detect_here: Callable[[Manifest], Mapping[str, str]] = not_detected


@dataclass(frozen=True)
class AuditDir:
    """The directory of an audit that `main.py audit` wrote."""

    test: str
    folder: Path

    @cached_property
    def finished_run(self) -> FinishedRun:
        return FinishedRun(RunDir(self.folder / AUDIT_RUN))

    @cached_property
    def state(self) -> AuditState:
        """The audit, re-evaluated from its runs."""
        return audit_state(self.folder, self.test, self.finished_run, [self.finished_run])

    @cached_property
    def runs(self) -> list[RunEvidence]:
        """The runs of the re-evaluated audit; empty if it cannot be re-evaluated."""
        return [RunEvidence.of(run) for run in self.state.runs]

    @property
    def dir(self) -> RunDir:
        return self.finished_run.dir

    @property
    def manifest(self) -> Manifest:
        return self.finished_run.manifest or read_manifest(self.dir.manifest)

    @property
    def place(self) -> tuple[str, Scenario]:
        """The benchmark and the scenario: the names of its directories in a submission."""
        plan = self.manifest.plan
        return BENCHMARKS[plan.loadgen_key].submission_name, plan.scenario


@dataclass(eq=False)
class Candidate(Subject):
    """A request to submit a result with its audits, and the reasons to refuse it."""

    result: Result
    audits: dict[str, AuditDir] = field(default_factory=dict)
    request: SubmitRequest = None  # type: ignore[assignment]  # `judge_results` sets it before the rules are applied

    kind = "candidate"

    @property
    def benchmark(self) -> str:
        return self.result.place[0]

    @property
    def scenario(self) -> Scenario:
        return self.result.place[1]

    @property
    def name(self) -> str:
        """benchmark/scenario, the first words of each refusal of the result."""
        return "/".join(self.result.place)

    @property
    def all_runs(self) -> list[FinishedRun]:
        """The runs of the result and of its audits."""
        return [*self.result.parts, *(audit.finished_run for audit in self.audits.values())]

    @property
    def homes(self) -> list[ResultDir]:
        """The possible directories of the result: the given directory, and the directories that contain its runs."""
        return result_homes(*(run.dir.root for run in self.result.parts), named=self.result.home)

    def manifests(self) -> dict[str, Manifest]:
        """Return the manifests of all runs, with audits, by mode or name of the audit."""
        runs = self.result.parts
        manifests = {run.mode.removesuffix("Only").lower(): run.manifest for run in runs if run.manifest is not None}
        return manifests | {audit.test: audit.manifest for audit in self.audits.values()}

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of the performance run or, without it, of the first run."""
        return next(iter(self.manifests().values()), None)

    @cached_property
    def facts(self) -> Facts:
        """The fingerprint (facts on system and settings) of `manifest`."""
        return fingerprint(self.manifest) if self.manifest is not None else {}

    def absent(self, need: Need) -> str:
        runs = self.result.performance, self.result.accuracy
        if need == "both":
            return "it needs a performance and an accuracy run" if None in runs else ""
        if need == "manifest":
            has_manifests = all(run is None or run.manifest is not None for run in runs)
            return "" if has_manifests else "manifest.json of a run is missing"
        return super().absent(need)

    @property
    def is_complete(self) -> bool:
        """True if all files for the verdict of `main.py verify` are available."""
        return not any(map(self.absent, COMPLETE))

    @cached_property
    def verdict(self) -> ResultVerdict:
        """The verdict of `main.py verify` on the result."""
        return judge_result(self.result)

    @cached_property
    def violated(self) -> list[tuple[RunVerdict, Finding]]:
        """Violated rules that refuse the result. Official rules count even if its runs do not claim to meet them."""
        allowed = NOT_IN_OPEN if self.request.division == "open" else ()
        return [
            (part, finding)
            for part in (self.verdict.parts if self.verdict.outcome != "ERROR" else ())
            for finding in part.violated
            if finding.rule not in allowed and (part.details.claims_official or finding.rule not in _OFFICIAL_INPUTS)
        ]

    @cached_property
    def inputs(self) -> list[str]:
        """Facts in the manifests that make the runs not eligible for submission."""
        return list(dict.fromkeys(not_official(self.manifests().values(), self.request.sources.dataset_path)))

    @cached_property
    def unofficial(self) -> list[str]:
        """All reasons why the result is not eligible for submission. Some of them do not refuse it."""
        if self.absent("manifest"):
            return []
        reasons, refused = list(self.inputs), [finding for _, finding in self.violated]
        for part in (part for part in self.verdict.parts if not part.details.claims_official):
            official = [finding for finding in part.violated if finding.kind == "official" and finding not in refused]
            reasons += [*part.declared, *(finding.sentence for finding in official)]
        if self.request.division == "network" and not all(map(all_servers_remote, self.manifests().values())):
            reasons.append("the manifest does not show that every server runs on another machine than LoadGen")
        return list(dict.fromkeys(reasons))


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
