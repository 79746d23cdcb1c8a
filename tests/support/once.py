"""Directories that take long to fill and that tests share.

`make_once` fills a directory once in a session, in the process that asks first. `make_and_keep` keeps a directory for
later sessions until the code or the data that it was made from changes.
"""

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

import pytest
from filelock import FileLock

from qsl.embedded.articles import bundled_dataset
from tests.support.files.loaded_code import ROOT, loaded_files, module_files

KEPT = ROOT / ".pytest_cache" / "runs"  # `make clean` removes it
KEPT_S = 2 * 24 * 3600.0

Make = Callable[[Path], object]
Files = dict[str, list[int]]  # path → 1 for a file, time of the last change in ns, size of a file in bytes


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all processes of this session share."""
    base = factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-once"


def make_once(factory: pytest.TempPathFactory, name: str, make: Make) -> Path:
    """Return the directory of this name in the session, filled by `make`.

    Do not write into it: `find_changes` fails the test that does.
    """
    return _filled(session_folder(factory) / name, make)


def make_and_keep(name: str, make: Make, *, programs: Sequence[str] = (), data: Sequence[str] = ()) -> Path:
    """Return the directory of this name, filled by `make` in this session or an earlier one.

    The directory is filled again after a change of the code that `make` loads, or of its data. Do not write into it:
    `find_changes` fails the test that does.

    Args:
        programs: modules that other processes of `make` import.
        data: files of the checkout that `make` reads.
    """
    source = inspect.getsourcefile(make)
    assert source is not None
    key = hashlib.sha256(f"{name}\n{_content(Path(source), tuple(programs), tuple(data))}".encode()).hexdigest()[:16]
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
    """Return the files of a complete folder."""
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
    """Return the files of shared folders that any process wrote, added or removed since the last call.

    Permissions would not stop the writer: tests may run as root, and copies would inherit them.

    Args:
        by_directory: Look only for directories with changed entries, as `main.py` changes them when it writes a file.
        This
            is the fast search after each test.
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
    """Remove unused kept folders that are old, or in which a test of an earlier session wrote."""
    for marker in KEPT.glob("*.made"):
        folder = marker.with_suffix("")
        with suppress(FileNotFoundError, BlockingIOError), _lock(folder, fcntl.LOCK_EX):
            is_old = time.time() - marker.stat().st_mtime > KEPT_S
            if is_old or not _is_unchanged(_files_of_complete(marker) or {str(folder): []}):
                marker.unlink()
                shutil.rmtree(folder, ignore_errors=True)


@cache
def _content(source: Path, programs: tuple[str, ...], data: tuple[str, ...]) -> str:
    """Return a digest of the loaded code, the data, Python, LoadGen, and the place of the bundled dataset."""
    digest = hashlib.sha256(repr((sys.version, sys.prefix, str(bundled_dataset("bytes")))).encode())
    digest.update(importlib.metadata.version("mlcommons-loadgen").encode())
    code = loaded_files([source, *(path for name in programs for path in module_files(name))])
    for path in (*code, *(ROOT / name for name in data)):
        digest.update(str(path).encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
