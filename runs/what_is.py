"""The kind of a path by its files, and the commands that read it, for the messages of other commands."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

from runs.errors import InputError
from runs.harness import PROGRAM
from runs.mlperf_endpoints.layout import is_run_folder
from runs.record.layout import BENCH_FILE, LOADGEN_LOGS, CampaignDir, RunDir

KindName = Literal[
    "missing", "file", "unreadable", "empty", "tree", "endpoints", "run", "logs", "campaign", "bench", "other"
]

Division = Literal["closed", "open", "network"]
DIVISIONS: tuple[Division, ...] = get_args(Division)  # the divisions of a submission
POINTS = "results/*/*/r[0-9]*"  # the runs in a submission to MLPerf Endpoints
REHEARSAL_FILE = "REHEARSAL.txt"  # marks a submission that must not be uploaded
_MAX_DEPTH, _MAX_DIRECTORIES = 6, 2_000  # limits of the search for runs below a directory
_TEXTS: dict[KindName, str] = {
    "missing": "does not exist",
    "file": "is a file, not a directory",
    "unreadable": "cannot be read by this account",
    "empty": "is empty",
    "tree": "is a submission tree",
    "endpoints": "is a run directory of the MLPerf Endpoints client",
    "run": "is a run directory of this harness",
    "logs": "has LoadGen's logs, but no manifest.json of this harness",
    "campaign": "is the directory of a campaign",
    "bench": "is the directory of a bench",
    "other": "has no run in it",
}
# Fixes by kind; {} is the path.
_FIXES: dict[KindName, str] = {
    "tree": f"check it with `{PROGRAM} check {{}}`",
    "endpoints": f"verify it with `{PROGRAM} verify {{}}`, or show it with `{PROGRAM} report {{}}`",
    "run": f"verify it with `{PROGRAM} verify {{}}`, or show it with `{PROGRAM} report {{}}`",
    "logs": f"verify it with `{PROGRAM} verify {{}}`, store it with `{PROGRAM} store ingest {{}}`, or check its "
    f"submission tree with `{PROGRAM} check TREE`",
    "campaign": f"show its state with `{PROGRAM} status {{}}`",
    "bench": f"verify it with `{PROGRAM} verify {{}}`, list its runs with `{PROGRAM} results {{}}`, or write its page "
    f"with `{PROGRAM} report {{}}`",
}


@dataclass(frozen=True)
class PathKind:
    """A path and its kind."""

    path: Path
    kind: KindName
    inside: Path | None = None  # first run below a directory without a run of its own

    @property
    def text(self) -> str:
        """The kind as text, to follow the path in a sentence."""
        if self.inside is None:
            return _TEXTS[self.kind]
        content = {"logs": "LoadGen's logs without a manifest.json of this harness"}.get(self.kind, "runs")
        return f"has {content} in its subdirectories, such as {self.inside.relative_to(self.path)}"

    @property
    def fix(self) -> str:
        """The commands that read the path; empty if no command reads it."""
        if self.kind == "file" and _own_kind(self.path.parent) is not None:
            return f"give its directory, {self.path.parent}"
        if self.kind == "endpoints" and self.inside is not None:
            return f"verify a run, such as `{PROGRAM} verify {self.inside}`, or all with `{PROGRAM} check {self.path}`"
        above = self.path.resolve().parents[: POINTS.count("/") + 1] if self.kind == "other" else ()
        if tree := next((parent for parent in above if any(parent.glob(POINTS))), None):
            return f"give the submission tree, {tree}"
        return _FIXES.get(self.kind, "").replace("{}", shlex.quote(str(_result_of(self.inside or self.path))))

    def refused(self, required: str, option: str = "") -> InputError:
        """Return the error of a command that does not read this kind.

        Args:
            required: kind that the command reads, as a noun.
            option: option that named the path.
        """
        subject = f"{option} {self.path} {self.text}".strip()
        return (
            InputError(f"{subject}; required: {required}", self.fix)
            if self.fix
            else InputError(subject, f"name {required}")
        )


def what_is(path: Path) -> PathKind:
    """Return the kind of a path. Its own files have priority over files in subdirectories."""
    if not path.is_dir():
        return PathKind(path, "file" if os.path.lexists(path) else "missing")
    if not os.access(path, os.R_OK | os.X_OK):
        return PathKind(path, "unreadable")
    if any((path / division).is_dir() for division in DIVISIONS) or any(path.glob(POINTS)):
        return PathKind(path, "tree")
    if (kind := _own_kind(path)) is not None:
        return PathKind(path, kind)
    if CampaignDir(path).configuration.is_file():
        return PathKind(path, "campaign")
    if (path / BENCH_FILE).is_file():
        return PathKind(path, "bench")
    for folder in islice(_directories(path), _MAX_DIRECTORIES):
        if (kind := _own_kind(folder)) is not None:
            return PathKind(path, kind, folder)
    return PathKind(path, "other" if any(path.iterdir()) else "empty")


def _own_kind(path: Path) -> KindName | None:
    if is_run_folder(path):
        return "endpoints"
    if RunDir(path).manifest.is_file():
        return "run"
    return "logs" if any((path / name).is_file() for name in LOADGEN_LOGS) else None


def _result_of(run: Path) -> Path:
    """Return the directory of the result that a run belongs to, for commands on results; for a single run, its
    directory.
    """
    if run.parent.name == "performance":
        return run.parent.parent
    return run.parent if run.name in ("performance", "accuracy") else run


def _directories(path: Path) -> Iterator[Path]:
    """Yield the directories below a path, parents first."""
    for name, children, _ in os.walk(path):
        folder = Path(name)
        children[:] = sorted(children) if len(folder.parts) - len(path.parts) < _MAX_DEPTH else []
        yield from (folder / child for child in children)
