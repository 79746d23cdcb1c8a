"""The frozen legs of the sign-off's back-test, unpacked once a session, and copies of them to damage."""

import shutil
import tarfile
from pathlib import Path

from compliance.signoff.backtest import DEFAULT_FOLDER, LEGS, RUNS_NAME
from compliance.signoff.evidence import Evidence, load
from runs.record.layout import RunDir
from tests.signoff.forge.faults import inject


class FrozenLegs:
    """Unpacks when it is first asked."""

    def __init__(self, root: Path) -> None:
        self._root = root / "archive"

    def __call__(self, name: str) -> Path:
        """A leg's directory. Read it only."""
        if not self._root.exists():
            with tarfile.open(DEFAULT_FOLDER / RUNS_NAME) as archive:
                archive.extractall(self._root, filter="data")
        return self._root / LEGS / name

    def paths(self, *names: str) -> list[Path]:
        return [self(name) for name in names]

    def copy(self, target: Path, name: str, *faults: list[object]) -> Path:
        """A copy with faults in it."""
        shutil.copytree(self(name), target)
        for fault, *arguments in faults:
            inject(RunDir(target), str(fault), arguments, self._root / LEGS)
        return target


def evidence(path: Path) -> Evidence:
    """A leg as sign-off sees it."""
    (found,), _ = load([path])
    return found
