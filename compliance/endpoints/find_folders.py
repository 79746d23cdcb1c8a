"""Run folders of the MLPerf Endpoints client, and submissions of them, by their files."""

from collections.abc import Iterator
from pathlib import Path

from runs.endpoints.layout import AUDIT, AUDIT_FILES, EVENTS, is_run_folder
from runs.errors import InputError

MAX_FOLDERS = 64  # twice as many as a curve has points
_DIVISIONS = ("closed", "open", "network")


def is_for_endpoints(root: Path) -> bool:
    """Whether a directory is a run folder of the client, holds some, or is a submission of them.

    The directory's own marks decide before what lies in it: a tree of LoadGen results may have a run folder somewhere.
    """
    if is_run_folder(root):
        return True
    if any((root / division).is_dir() for division in _DIVISIONS):
        return any(True for _ in points(root))
    return bool(run_folders(root)) or any(True for _ in points(root))


def run_folders(root: Path) -> list[Path]:
    """The run folder, or those below, without the two of each audit.

    Raises:
        InputError: there are too many.
    """
    if is_run_folder(root):
        return [root]
    if not root.is_dir():
        return []
    there = (
        path.parents[name.count("/")]
        for depth in ("*", "*/*", "*/*/*", "*/*/*/*")
        for name in (EVENTS, *AUDIT_FILES)
        for path in root.glob(f"{depth}/{name}")
    )
    found = {folder for folder in there if folder.parent.name != AUDIT}
    if len(found) > MAX_FOLDERS:
        raise InputError(f"{root} has more than {MAX_FOLDERS} run folders", "check those of one curve at a time")
    return sorted(found)


def points(root: Path) -> Iterator[Path]:
    """Yield what may be the points of a submission."""
    return (path for depth in ("", "*/", "*/*/") for path in root.glob(f"{depth}results/*/*/r[0-9]*"))
