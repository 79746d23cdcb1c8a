"""The paths in a submission tree, for every round.

Source: mlcommons/inference commit b66003e1, tools/submission/submission_checker/constants.py (the `*_PATH` tables) and
submission_structure.md. Until v5.1, measurements and compliance logs have separate directory trees; since v6.0, all
files of a scenario are in one directory.
"""

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compliance.judge.rule import OURS, RERUN, Rank, declare
from runs.record.layout import RunDir
from runs.rounds import CURRENT_ROUND, Round
from runs.what_is import DIVISIONS as DIVISIONS
from runs.what_is import REHEARSAL_FILE
from runs.what_is import Division as Division

# Rules on runs that do not apply in the open division: submitters choose its models, data and targets, and the official
# checker requires no number of samples ([checker] performance_check.min_query_count_check).
NOT_IN_OPEN = frozenset(
    {
        "accuracy-target", "accuracy-no-target", "accuracy-longest",
        "perf-samples", "perf-output-tokens", "perf-tokens-per-sample", "plausible-scores",
    }
)  # fmt: skip

OPEN_IS_FREE = "the open division has no such rule"
# All rules that are not applied in the open division.
FREE_IN_OPEN = NOT_IN_OPEN | {"perf-network-name", "measurements-retraining", "measurements-fewer-weights"}

# Rules that both `main.py submit` and `main.py check` apply.
declare(
    "tree",
    (
        ("scenario-set", "error", "[checker] performance_check.scenarios_check",
         "missing scenarios of a benchmark", "add the missing scenario"),
        ("suite-benchmark", "error", "[checker] performance_check.scenarios_check",
         "type of the system, compared with the benchmark",
         "correct system_type, or move the benchmark to another system"),
        ("log-damaged", "error", "[loadgen]", "damaged logs", RERUN),
    ),
)  # fmt: skip
declare(
    "tree",
    (
        ("audit-missing", "error", "[checker] compliance_check.dir_exists_check",
         "missing audits of the benchmark", "run the audit"),
    ),
    Rank.AUDITS,
)  # fmt: skip
declare(
    "tree",
    (
        ("perf-network", "error", "[checker] performance_check.network_check", "LoadGen's name of a SUT over a network",
         "use LoadGen's network SUT, or move the result to another division"),
        ("perf-network-name", "warning", OURS, "LoadGen's name of a SUT that is not over a network",
         "explain the name to the reviewers, or correct it"),
    ),
    Rank.LIMITS,
)  # fmt: skip

MAX_FILE_BYTES = 50 * 1024 * 1024  # [mlcommons/inference tools/submission/repository_checks.sh]
# File in the root of a rehearsal tree. Other files of the tree also contain the mark.
REHEARSAL_MARK = "REHEARSAL - NOT FOR UPLOAD"


@dataclass(frozen=True, order=True)
class Place:
    """The names of the directories of one scenario: system, benchmark and scenario."""

    division: str
    organization: str
    system: str
    benchmark: str
    scenario: str

    def __str__(self) -> str:
        return "/".join((self.division, self.organization, self.system, self.benchmark, self.scenario))


@dataclass(frozen=True)
class Tree:
    """The paths in a submission tree of a round."""

    root: Path
    round: Round = CURRENT_ROUND

    def organization(self, division: str, organization: str) -> Path:
        return self.root / division / organization

    def results(self, division: str, organization: str) -> Path:
        return self.organization(division, organization) / "results"

    def system(self, division: str, organization: str, system: str) -> Path:
        """Return the path of the description of a system."""
        return self.organization(division, organization) / "systems" / f"{system}.json"

    def source(self, division: str, organization: str) -> Path:
        """Return the directory of the submitter's source code."""
        return self.organization(division, organization) / ("code" if self.round.split_tree else "src")

    def documentation(self, division: str, organization: str) -> Path:
        """Return the directory of diagrams and calibration documents."""
        return self.organization(division, organization) / "documentation"

    def _part(self, kind: str, place: Place) -> Path:
        folder = kind if self.round.split_tree else "results"
        home = self.organization(place.division, place.organization)
        return home / folder / place.system / place.benchmark / place.scenario

    def scenario(self, place: Place) -> Path:
        """Return the directory with the logs of a scenario."""
        return self._part("results", place)

    def performance(self, place: Place) -> RunDir:
        return RunDir(self.scenario(place) / "performance" / "run_1")

    def accuracy(self, place: Place) -> RunDir:
        return RunDir(self.scenario(place) / "accuracy")

    def measurements_folder(self, place: Place) -> Path:
        """Return the directory with measurements, user.conf and README.md of a scenario."""
        return self._part("measurements", place)

    def measurements(self, place: Place) -> Path:
        folder = self.measurements_folder(place)
        if not self.round.split_tree:
            return folder / "measurements.json"
        # The name of the file begins with the name of the system. [checker] loader.Loader.get_measurement_path
        of_system = folder / f"{place.system}.json"
        if of_system.exists():
            return of_system
        return next(iter(sorted(folder.glob(f"{glob.escape(place.system)}*.json"))), of_system)

    def user_conf(self, place: Place) -> Path:
        return self.measurements_folder(place) / "user.conf"

    def readme(self, place: Place) -> Path:
        return self.measurements_folder(place) / "README.md"

    def audit(self, place: Place, test: str) -> Path:
        """Return the directory of a compliance test. It contains `verify_accuracy.txt`."""
        return self._part("compliance", place) / test

    def rehearsal_file(self) -> Path:
        return self.root / REHEARSAL_FILE

    def organizations(self) -> Iterator[tuple[str, str]]:
        """Yield (division, organization) for each submitter's directory."""
        for division in DIVISIONS:
            yield from ((division, path.name) for path in subfolders(self.root / division))

    def places(self) -> Iterator[Place]:
        """Yield the place of every scenario directory below results/. Names may be unknown."""
        for division, organization in self.organizations():
            for system in subfolders(self.results(division, organization)):
                for benchmark in subfolders(system):
                    for scenario in subfolders(benchmark):
                        yield Place(division, organization, system.name, benchmark.name, scenario.name)


def subfolders(path: Path) -> list[Path]:
    """Return the directories in a directory. Links and unreadable directories are left out."""
    try:
        if path.is_symlink():
            return []
        with os.scandir(path) as entries:
            return sorted(path / entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
