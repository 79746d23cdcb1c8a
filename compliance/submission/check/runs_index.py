"""Run directories that a submission was made of, found by the logs in the tree."""

from dataclasses import dataclass, field
from pathlib import Path

from compliance.submission.check.reading import is_regular
from runs.errors import InputError
from runs.files import sha256_of
from runs.reading import read_record
from runs.record.layout import RunDir

_FIX = "name a run directory, or one with runs in it"


@dataclass
class RunsIndex:
    """Runs by the SHA-256 of their detail log, which no two runs share."""

    by_detail: dict[str, RunDir] = field(default_factory=dict)

    def find(self, run: RunDir) -> RunDir | None:
        """The run that a leg of a tree is a copy of."""
        try:
            return self.by_detail.get(sha256_of(run.detail)) if is_regular(run.detail) else None
        except InputError:  # no log is so large
            return None


def index_runs(directories: list[Path]) -> RunsIndex:
    """Every run under the directories; logs without a manifest.json beside them (another tree's) are no run.

    Raises:
        InputError: a directory is none, or holds no run; or two runs have the same log and other files differ.
    """
    index = RunsIndex()
    for directory in directories:
        if not directory.is_dir():
            raise InputError(f"--runs {directory} is no directory", _FIX)
        places = [RunDir(path.parent) for path in sorted(directory.rglob("mlperf_log_detail.txt"))]
        found = [run for run in places if is_regular(run.detail) and is_regular(run.manifest)]
        if not found:
            raise InputError(f"--runs {directory} holds no run", _FIX)
        for run in found:
            earlier = index.by_detail.setdefault(sha256_of(run.detail), run)
            if earlier is not run and read_record(earlier.manifest, _FIX) != read_record(run.manifest, _FIX):
                raise InputError(f"{earlier.root} and {run.root} have the same log", "name the one that was run")
    return index
