"""What was named on the command line: results, each with its legs and audits, and where each belongs in a tree."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from compliance.audits.audit_registry import AUDITS
from compliance.verify.find_results import ResultLegs, campaign_results, find_results
from runs.benchmark import Scenario
from runs.benchmarks import BENCHMARKS, SUBMISSIONS
from runs.errors import InputError
from runs.record.layout import ResultDir, RunDir, audit_record
from runs.record.leg import ACCURACY, PERFORMANCE, FinishedLeg
from runs.record.manifest import Manifest, read_manifest

# Audits that a submission of this benchmark has a place for; whatever others were run are none of its business.
SUBMITTED_TESTS = tuple(sorted({name for one in SUBMISSIONS.values() for name in one.audits}))


@dataclass(frozen=True)
class Audit:
    """One audit's directory, as `main.py audit` fills it."""

    test: str
    folder: Path
    benchmark: str  # directory name in a submission
    scenario: Scenario

    @cached_property
    def leg(self) -> FinishedLeg:
        return FinishedLeg(_audit_leg(self.folder))

    @property
    def run(self) -> RunDir:
        return self.leg.run

    @property
    def manifest(self) -> Manifest:
        found = self.leg.manifest
        return read_manifest(self.run.manifest) if found is None else found


@dataclass
class Candidate:
    """One scenario of one benchmark: what may enter a tree."""

    benchmark: str  # directory name in a submission
    scenario: Scenario
    result: ResultLegs
    audits: dict[str, Audit] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.benchmark}/{self.scenario}"

    @property
    def performance(self) -> FinishedLeg | None:
        return self.result.leg(PERFORMANCE)

    @property
    def accuracy(self) -> FinishedLeg | None:
        return self.result.leg(ACCURACY)

    @property
    def legs(self) -> list[FinishedLeg]:
        return [leg for leg in (self.performance, self.accuracy) if leg is not None]

    @property
    def homes(self) -> list[ResultDir]:
        """The result's directory: as it was named, and by the places of its legs."""
        roots = [leg.run.root.absolute() for leg in self.legs]
        above = [root.parent.parent if root.parent.name == "performance" else root.parent for root in roots]
        return [ResultDir(path) for path in dict.fromkeys([self.result.home.absolute(), *above])]

    def manifests(self) -> dict[str, Manifest]:
        """The record of every leg, audits included, by a name for people."""
        found = {leg.mode.removesuffix("Only").lower(): leg.manifest for leg in self.legs if leg.manifest is not None}
        return found | {audit.test: audit.manifest for audit in self.audits.values()}


def gather(paths: list[Path]) -> list[Candidate]:
    """Find every result and audit in `paths`, in the order of their places in a tree.

    A path is a campaign's directory, a result's (`performance/run_1`, `accuracy`, `audit/NAME`), a leg's, or an
    audit's. Legs that were named one by one are paired as `verify` pairs them.

    Raises:
        InputError: a path holds nothing of these, two results or audits are for one place, or an audit's result is
            not there.
        HarnessError: a leg cannot be read.
    """
    leg_paths: list[Path] = []
    audit_paths: list[Path] = []
    for path in paths:
        for legs, audits in _parts(path):
            leg_paths += legs
            audit_paths += audits
    candidates: dict[tuple[str, str], Candidate] = {}
    for result in find_results(leg_paths) if leg_paths else []:
        if result.error is not None:
            raise result.error
        if not result.legs:
            continue
        benchmark, scenario = result.legs[0].benchmark.submission_name, result.legs[0].scenario
        earlier = candidates.setdefault((benchmark, scenario), Candidate(benchmark, scenario, result))
        if earlier.result is not result:
            raise InputError(
                f"two results for {benchmark}/{scenario}: {_listed(earlier.result)} and {_listed(result)}",
                "name the one that is to be submitted",
            )
    _add_audits(candidates, [_audit(path) for path in dict.fromkeys(path.resolve() for path in audit_paths)])
    if not candidates:
        raise InputError(f"no result in {', '.join(map(str, paths))}", "name a campaign's or a result's directory")
    return [candidates[key] for key in sorted(candidates)]


def _parts(path: Path) -> Iterator[tuple[list[Path], list[Path]]]:
    """Directories of legs and of audits in one path."""
    if any(audit_record(path, test).is_file() for test in AUDITS):
        yield [], [path]
        return
    campaign = campaign_results(path)
    if campaign:
        for root in campaign:
            yield [root], _audits_of(ResultDir(root))
        return
    audits = _audits_of(ResultDir(path))
    holds_legs = any((path / part).exists() for part in ("performance", "accuracy", RunDir(path).manifest.name))
    yield [path] if holds_legs or not audits else [], audits


def _audit_leg(folder: Path) -> RunDir:
    """The only leg of TEST06."""
    return RunDir(folder / "performance")


def _audits_of(result: ResultDir) -> list[Path]:
    return [result.audit(test) for test in SUBMITTED_TESTS if result.audit(test).is_dir()]


def _audit(folder: Path) -> Audit:
    test = next((name for name in AUDITS if audit_record(folder, name).is_file()), None)
    if test is None:
        raise InputError(
            f"{folder} holds no outcome ({audit_record(folder, folder.name).name}): the audit did not end",
            "run the audit again",
        )
    if test not in SUBMITTED_TESTS:
        raise InputError(f"{folder}: {test} has no place in a submission of this benchmark", "leave it out")
    plan = read_manifest(_audit_leg(folder).manifest).resolved
    if plan.loadgen_key not in BENCHMARKS:
        raise InputError(f"{folder}: unknown benchmark {plan.loadgen_key}", "give an audit of this benchmark")
    return Audit(test, folder, BENCHMARKS[plan.loadgen_key].submission_name, plan.scenario)


def _add_audits(candidates: dict[tuple[str, str], Candidate], audits: list[Audit]) -> None:
    for audit in audits:
        candidate = candidates.get((audit.benchmark, audit.scenario))
        if candidate is None:
            raise InputError(
                f"{audit.folder}: {audit.test} of {audit.benchmark}/{audit.scenario}, of which no result was named",
                "name the result as well, or leave the audit out",
            )
        earlier = candidate.audits.setdefault(audit.test, audit)
        if earlier is not audit:
            raise InputError(
                f"two {audit.test} for {candidate.name}: {earlier.folder} and {audit.folder}",
                "name the one that is to be submitted",
            )


def _listed(result: ResultLegs) -> str:
    return " + ".join(str(path) for path in result.directories)
