"""Input of a sign-off: the runs and the claim. Each raw file is read once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compliance.judge.rule import OURS, Check, Decider, Need, RuleSeverity, always, decides
from compliance.judge.verdict import Finding, Subject, stated
from compliance.results.details import RunVerdict
from compliance.results.find_results import find_results
from compliance.results.policy import judge_run
from compliance.results.run_evidence import RunEvidence
from compliance.results.scoring import ScoreSources, expect_scoring
from compliance.signoff.signoff_verdict import SignOffDetails
from runs.errors import HarnessError
from runs.record.finished_run import ACCURACY, PERFORMANCE, FinishedRun
from runs.record.layout import RunDir
from runs.record.liveness import unfinished
from runs.record.manifest import Manifest
from runs.record.requests_log import RequestTable

if TYPE_CHECKING:
    from compliance.signoff.anchored import Trust
    from compliance.signoff.claim import Claim

FEW_SAMPLES = 16  # minimum number of samples for a comparison of shares or medians
# Maximum median difference between the request log and LoadGen's log in times of responses. Honest runs: 3.3 ms.
STAMP_MEDIAN_NS = 5_000_000
FASTER_FAIL = 5.0  # ratio of two speeds for equal work from which a check fails

_FIXES = {
    "P": "restore all files of the run, unchanged; or repeat the run",
    "B": "repeat the runs, one at a time on an idle machine, under the same conditions",
    "C": "check the model and the responses, then repeat the accuracy run",
    "G": "correct the claim, or repeat the runs of reference and candidate with one changed option",
    "H": "repeat the performance and the accuracy run on one system",
    "M": "correct the claim, or repeat the runs with --enable-log-trace",
}


def checks(
    number: str,
    *rows: tuple[str, RuleSeverity, str],
    needs: Sequence[Need] = (),
    applies: Callable[[Any], str] = always,
) -> Callable[[Decider], Decider]:
    """Declare the rules of a check (docs/signoff-rules.md), each as (slug, severity, summary).

    A finding may be less severe than its rule; the docstring of the check states when.
    """
    fix = _FIXES[number[0]]
    declared = ((f"{number}/{slug}", severity, OURS, text, fix) for slug, severity, text in rows)
    return decides("signoff", *declared, needs=needs, applies=applies)


@dataclass(eq=False)
class Evidence(RunEvidence):
    """A run with its files. If `main.py verify` cannot check the run, access to `part` fills `reasons`."""

    reasons: list[Finding] = field(default_factory=list)

    @cached_property
    def part(self) -> RunVerdict | None:
        """The verdict of `main.py verify` on the run; None if `verify` cannot check the run."""
        verdict = None
        try:
            if self.mode in (PERFORMANCE, ACCURACY):
                verdict = judge_run(self)
            _ = self.requests, self.trace
        except (HarnessError, OSError) as error:
            self.reasons.append(unreadable(error, self.dir.root))
            return None
        return verdict

    def absent(self, need: Need) -> str:
        if need == "files":
            return "" if self.part is not None else f"{self.dir.root} cannot be checked"
        if need == "requests":
            return super().absent("record") or ("" if self.requests else f"{self.dir.requests.name} has no request")
        return super().absent(need)

    @property
    def table(self) -> RequestTable:
        """The request log. Only checks that need it use this property."""
        assert self.requests is not None
        return self.requests

    @property
    def record(self) -> Manifest:
        """The manifest. Only checks that need it use this property."""
        assert self.manifest is not None
        return self.manifest

    @property
    def complete(self) -> bool:
        """True if all raw files are readable, so that numbers can be recomputed."""
        return self.part is not None and self.manifest is not None and self.requests is not None

    @property
    def details(self) -> dict[str, Any]:
        """The numbers and scores that `main.py verify` recomputed; empty if `verify` cannot check the run."""
        return self.part.details.values if self.part is not None else {}


@dataclass(eq=False)
class Sides(Subject):
    """The runs of reference and candidate, the claim, and the details of the verdict, which the checks fill."""

    details: SignOffDetails
    ref: list[Evidence]
    cand: list[Evidence]
    claim: "Claim"
    sources: ScoreSources
    trust: "Trust"
    unread: "Sequence[Subject]" = ()  # directories that cannot be read

    @property
    def kind(self) -> str:
        return self.details.kind

    @property
    def parts(self) -> Sequence[Subject]:
        return [*self.unread, *self.runs]

    def absent(self, need: Need) -> str:
        if need == "files" and not (self.ref and all(evidence.complete for evidence in self.runs)):
            return "a raw file of a run is missing or damaged"
        if need == "both" and not (self.before and self.after):
            return "a performance run is missing on one of the two sides"
        return "" if need in ("files", "both") else super().absent(need)

    @property
    def runs(self) -> list[Evidence]:
        return self.ref + self.cand

    @cached_property
    def before(self) -> list[Evidence]:
        """The performance runs of the reference, in the order of their start."""
        return _performance_runs(self.ref)

    @cached_property
    def after(self) -> list[Evidence]:
        """The performance runs of the candidate, in the order of their start."""
        return _performance_runs(self.cand)


def _performance_runs(runs: list[Evidence]) -> list[Evidence]:
    performance = [evidence for evidence in runs if evidence.is_performance]
    return sorted(performance, key=lambda evidence: (evidence.manifest.start_time_ns or 0) if evidence.manifest else 0)


@dataclass(eq=False)
class Unread(Subject):
    """A directory that cannot be checked, with the finding that states why."""

    finding: Finding

    kind = "unread"


@dataclass(frozen=True)
class SignOffRequest:
    """The directories to sign off, and what their runs are compared with."""

    ref: Sequence[Path]
    cand: Sequence[Path]
    claim: "Claim"
    sources: ScoreSources
    trust: "Trust"
    read: Sequence[FinishedRun] = ()  # runs in the directories that were read before


def load(
    paths: Sequence[Path], sources: ScoreSources | None = None, read: Sequence[FinishedRun] = ()
) -> tuple[list[Evidence], list[Finding]]:
    """Read the runs in directories. Return them, and findings on runs that cannot be checked.

    Args:
        paths: run directories, or directories with performance/run_1 and accuracy in them.
        sources: model and dataset for scoring; the manifests name those that are not given.
        read: runs in the directories that were read before; their files are not read again.
    """
    runs: list[Evidence] = []
    reasons: list[Finding] = []
    sources = sources or ScoreSources()
    read_runs = {run.dir.root: run for run in read}
    for path in paths:
        if crashed := _crashed(read_runs.get(path) or FinishedRun(RunDir(path))):
            reasons.append(crashed)
            continue
        try:
            results = find_results([path], read=read)
        except HarnessError as error:
            reasons.append(stated("P-1/missing_raw", error.message, path))
            continue
        for result in results:
            if result.error is not None:
                reasons.append(unreadable(result.error, path))
            runs += [Evidence.of(run, sources=sources) for run in result.runs]
    expect_scoring(runs, sources)
    return runs, reasons


@checks("G-10", ("crashed", "error", "crash of the run or its engine"))
def _crashed(run: FinishedRun) -> Finding | None:
    """Return a G-10 finding if the manifest shows that the run did not finish."""
    try:
        manifest = run.manifest
    except HarnessError:
        return None
    if manifest is None:
        return None
    if manifest.status == "finished" and manifest.error is None and manifest.exit_code in (0, 1):
        return None
    if manifest.status == "finished":
        text = f"the run finished with exit code {manifest.exit_code} and the error {manifest.error}"
    else:
        text = f"{unfinished(manifest)}; exit code {manifest.exit_code}"
    return stated("G-10/crashed", text, run.dir.manifest, exit_code=manifest.exit_code)


@checks(
    "P-1",
    ("missing_raw", "error", "missing raw files"),
    ("damaged_raw", "error", "damaged raw files"),
    ("null_metric", "error", "numbers that cannot be recomputed"),
)
def unreadable(error: HarnessError | OSError, where: Path) -> Finding:
    """Return a finding on a file that is missing or damaged."""
    if isinstance(error, HarnessError):
        return stated("P-1/missing_raw" if error.missing else "P-1/damaged_raw", error.message, where)
    return stated("P-1/damaged_raw", str(error), where)


def damage_finding(_: Subject, check: Check, error: Exception) -> Finding:
    """Return a finding on the input error that ended a check; raise any other exception."""
    if isinstance(error, HarnessError):
        return stated("P-1/damaged_raw", error.message)
    raise error
