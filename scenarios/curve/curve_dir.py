"""The files of a curve's directory. The state of each point follows from them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.files.reading import read_object
from runs.what_is import REHEARSAL_FILE

VERIFIED, CLIENT_CONFIG, CLIENT_PROCESS, CLIENT_LOG = "verify.json", "client.yaml", "client.json", "client.log"
_FIX = "move the file away"


@dataclass(frozen=True)
class CurveDir:
    """A curve's directory."""

    root: Path

    @property
    def config(self) -> Path:
        """The configuration with all defaults."""
        return self.root / "curve.yaml"

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def probes(self) -> Path:
        return self.root / "probes"

    @property
    def points(self) -> Path:
        return self.root / "points"

    @property
    def discarded(self) -> Path:
        return self.root / "discarded"

    @property
    def tree(self) -> Path:
        return self.root / "tree"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def progress(self) -> Path:
        """The run in progress; missing if no run is in progress."""
        return self.root / "progress.json"

    @property
    def page(self) -> Path:
        return self.root / "report.html"

    @property
    def rehearsal(self) -> Path:
        return self.root / REHEARSAL_FILE

    @property
    def exists(self) -> bool:
        """Whether the directory is that of a curve: the command has locked it and written its configuration."""
        return self.lock.is_file() and self.config.is_file()

    def point(self, name: str) -> Path:
        return self.points / name

    def probe(self, concurrency: int, number: int) -> Path:
        return self.probes / f"{concurrency}-{number}"

    def unfinished(self) -> list[Path]:
        """Return the directories of points and probes whose run did not end with a record of its verification."""
        folders = (path for parent in (self.points, self.probes) if parent.is_dir() for path in parent.iterdir())
        return sorted(path for path in folders if path.is_dir() and not (path / VERIFIED).is_file())


def read_verified(folder: Path) -> dict[str, Any] | None:
    """Return the record of a finished point or probe; None if the run is missing or did not end.

    Raises:
        InputError: If the record is damaged.
    """
    path = folder / VERIFIED
    return read_object(path, _FIX, within=folder) if path.is_file() else None
