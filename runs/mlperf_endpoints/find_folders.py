"""Search for run directories of the MLPerf Endpoints client, and for submissions built from them."""

from collections.abc import Iterator
from pathlib import Path

from runs.errors import InputError
from runs.mlperf_endpoints.layout import AUDIT, AUDIT_FILES, EVENTS, is_run_folder
from runs.what_is import DIVISIONS, POINTS

MAX_FOLDERS = 64  # run directories; twice the points of a curve


def is_for_endpoints(root: Path) -> bool:
    """Return whether a directory is a run directory of the client, contains some, or is a submission of them.

    The directories closed/ and open/ decide first, because a tree of LoadGen results may contain a run directory.
    """
    if is_run_folder(root):
        return True
    if any((root / division).is_dir() for division in DIVISIONS):
        return any(True for _ in point_folders(root))
    return bool(run_folders(root)) or any(True for _ in point_folders(root))


def run_folders(root: Path) -> list[Path]:
    """Return the run directories at or below a path, without the two of each audit.

    Raises:
        InputError: If there are more than MAX_FOLDERS.
    """
    if is_run_folder(root):
        return [root]
    if not root.is_dir():
        return []
    candidates = (
        path.parents[name.count("/")]
        for depth in ("*", "*/*", "*/*/*", "*/*/*/*")
        for name in (EVENTS, *AUDIT_FILES)
        for path in root.glob(f"{depth}/{name}")
    )
    folders = {folder for folder in candidates if folder.parent.name != AUDIT}
    if len(folders) > MAX_FOLDERS:
        raise InputError(f"{root}: more than {MAX_FOLDERS} run directories", "give the directories of one curve")
    return sorted(folders)


def point_folders(root: Path) -> Iterator[Path]:
    """Return the directories that may be points of a submission."""
    return (path for depth in ("", "*/", "*/*/") for path in root.glob(f"{depth}{POINTS}"))
