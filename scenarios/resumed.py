"""A directory that one command fills over several runs: held by one process at a time, nothing in it deleted."""

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from qsl.model_files import file_hashes
from runs.errors import InputError, SetupError
from runs.interrupts import pause
from runs.record.layout import RunDir
from runs.record.progress import read_progress
from scenarios.run.plan import PreparedRun

CHANGED_FIX = (
    "revert the change, give --output-log-dir another directory, or start these runs again with --restart-changed (the "
    "existing files move to discarded/)"
)
RUN_END_TIMEOUT_S = 30.0  # a run whose command was killed is killed by its guardian, at once


@contextlib.contextmanager
def held(lock: Path, what: str) -> Iterator[None]:
    """Hold a directory by a lock file in it; the kernel releases it however this process ends.

    Args:
        lock: the file; its directory is made.
        what: who holds it, for messages: campaign, tune.

    Raises:
        SetupError: another process holds it, or it cannot be written.
    """
    root = lock.parent
    try:
        root.mkdir(parents=True, exist_ok=True)
        stream = lock.open("a")
    except OSError as error:
        raise SetupError(
            f"{what} directory {root} cannot be written: {error.strerror}",
            "give --output-log-dir a directory you may write to",
        ) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(
                f"another {what} runs in {root}", "wait for its end, or give --output-log-dir another directory"
            ) from error
        except OSError as error:
            raise SetupError(
                f"{lock} cannot be locked: {error.strerror}", "give --output-log-dir a directory on another file system"
            ) from error
        yield


def set_aside(paths: list[Path], discarded: Path) -> Path:
    """Move files and run directories to a new numbered folder in `discarded`, and return that folder.

    Raises:
        SetupError: a run in one of them has not ended.
    """
    for path in paths:
        wait_for_end(path)
    folder = discarded / str(next_number(discarded))
    folder.mkdir()
    for path in paths:
        path.rename(folder / path.name)
    return folder


def next_number(discarded: Path) -> int:
    """The next free N of a folder's entries, which are named N or N-words."""
    discarded.mkdir(exist_ok=True)
    taken = [int(head) for path in discarded.iterdir() if (head := path.name.partition("-")[0]).isdecimal()]
    return max(taken, default=0) + 1


def wait_for_end(folder: Path) -> None:
    """Wait for a run whose command was killed: its processes must be gone before its files are moved.

    Raises:
        SetupError: it does not end.
    """
    end = time.monotonic() + RUN_END_TIMEOUT_S
    for path in [folder, *folder.glob("*/")]:
        progress = read_progress(RunDir(path).progress)
        while progress is not None and _is_run(progress.pid, path):
            if time.monotonic() > end:
                raise SetupError(
                    f"{path}: its run has not ended (process {progress.pid})", "end that process, then start again"
                )
            pause(0.2)


def _is_run(pid: int, folder: Path) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder.resolve()
    except psutil.Error:
        return False


def model_hashes(run: PreparedRun) -> dict[str, str]:
    """SHA-256 of the model's files.

    Raises:
        InputError: a file cannot be read.
    """
    try:
        return file_hashes(run.model.folder) if run.model else {}
    except OSError as error:
        raise InputError(
            f"the model's files cannot be hashed: {error.filename}: {error.strerror}", "check --model-path"
        ) from error
