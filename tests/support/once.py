"""What takes long to make is made once: in a session, whichever of the processes side by side asks for it first; or,
for runs, as long as nothing that they are made of changes."""

import fcntl
import hashlib
import importlib.metadata
import inspect
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

import pytest
from filelock import FileLock

from qsl.embedded.articles import bundled_dataset

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".pytest_cache" / "runs"  # `make clean` removes it
KEPT_S = 2 * 24 * 3600.0
# Packages that a run imports.
RUN = (
    *("main.py", "runs", "qsl", "sut", "scenarios/launch", "scenarios/command_line", "compliance/accuracy"),
    *("tests/support/engines/cheats.py", "tests/support/processes/warm.py", "tests/support/engines/null_sut.py"),
)

Make = Callable[[Path], object]
Files = dict[str, list[int]]  # path → 1 for a file, time of the last change in ns, size of a file in bytes


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of this session share."""
    base = factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-once"


def make_once(factory: pytest.TempPathFactory, name: str, make: Make) -> Path:
    """The directory of that name, filled by `make`, of this session. Read it only: `find_changes` fails the writer."""
    return _filled(session_folder(factory) / name, make)


def make_and_keep(name: str, make: Make, made_of: tuple[str, ...] = RUN) -> Path:
    """The directory of that name, filled by `make` with runs, maybe of an earlier session. Read it only: `find_changes`
    fails the writer.

    Args:
        made_of: files and folders of the checkout that decide what `make` makes, beside the module that it stands in.
    """
    source = inspect.getsourcefile(make)
    key = hashlib.sha256(f"{name}\n{_content(made_of)}\n".encode() + Path(source).read_bytes()).hexdigest()[:16]
    return _filled(KEPT / f"{name.replace('/', '-')}-{key}", make)


def _filled(folder: Path, make: Make) -> Path:
    marker = folder.with_name(f"{folder.name}.made")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if _files_of_complete(marker) is None or not folder.exists():
            shutil.rmtree(folder, ignore_errors=True)  # folder of a failed caller
            folder.mkdir()
            make(folder)
            marker.write_text(json.dumps(_files(folder)))
        if folder not in _shared:
            _shared[folder] = _files_of_complete(marker) or {}
            _users.append(_lock(folder, fcntl.LOCK_SH))
    return folder


def _files_of_complete(marker: Path) -> Files | None:
    """The files of a complete folder."""
    try:
        files: Files = json.loads(marker.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return files


_shared: dict[Path, Files] = {}  # folders that this process uses, with their directories and files
_users: list[IO[str]] = []  # locks that keep other sessions from removing them, until this process ends


def _lock(folder: Path, kind: int) -> IO[str]:
    stream = folder.with_name(f"{folder.name}.users").open("w")
    fcntl.flock(stream, kind | fcntl.LOCK_NB)
    return stream


def find_changes(*, by_directory: bool = False) -> list[str]:
    """The files of shared folders that were written, added or removed since the last call, by any process.

    The permissions of the folders would not stop the writer: tests may run as root, and copies would inherit them.

    Args:
        by_directory: look only for directories whose entries changed, as they do when `main.py` writes a file: the
            fast search after each test.
    """
    changes: list[str] = []
    for folder, before in _shared.items():
        if not _is_unchanged({path: state for path, state in before.items() if not by_directory or not state[0]}):
            now = _shared[folder] = _files(folder)
            paths = {path for path in now.keys() | before if now.get(path) != before.get(path)}
            changes += sorted(path for path in paths if not Path(path).is_dir())
    return changes


def _is_unchanged(files: Files) -> bool:
    try:
        return all(_state(path) == state for path, state in files.items())
    except FileNotFoundError:
        return False


def _files(folder: Path) -> Files:
    paths = [str(folder)]
    for place, folders, names in os.walk(folder):
        paths += [f"{place}/{name}" for name in (*folders, *names)]  # `Path` takes four times as long
    return {path: _state(path) for path in sorted(paths)}


def _state(path: str) -> list[int]:
    status = os.lstat(path)
    is_file = not stat.S_ISDIR(status.st_mode)
    return [is_file, status.st_mtime_ns, is_file * status.st_size]


def remove_unusable() -> None:
    """Remove the kept folders that are old, or in which a test of an earlier session wrote, if nobody uses them."""
    for marker in KEPT.glob("*.made"):
        folder = marker.with_suffix("")
        with suppress(FileNotFoundError, BlockingIOError), _lock(folder, fcntl.LOCK_EX):
            is_old = time.time() - marker.stat().st_mtime > KEPT_S
            if is_old or not _is_unchanged(_files_of_complete(marker) or {str(folder): []}):
                marker.unlink()
                shutil.rmtree(folder, ignore_errors=True)


@cache
def _content(made_of: tuple[str, ...]) -> str:
    """A digest of the files, of what runs them, and of where the articles lie that runs are started with."""
    digest = hashlib.sha256(repr((sys.version, sys.prefix, str(bundled_dataset("bytes")))).encode())
    digest.update(importlib.metadata.version("mlcommons-loadgen").encode())
    for name in made_of:
        place = ROOT / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(str(path.relative_to(ROOT)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
