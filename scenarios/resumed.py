"""The directory of a resumable command (campaign, tune). One process holds it, and no file is deleted."""

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from qsl.model_files import file_hashes
from runs.errors import InputError, SetupError
from runs.processes.interrupts import pause
from runs.record.layout import RunDir
from runs.record.progress import read_progress
from scenarios.run.plan import PreparedRun

CHANGED_FIX = (
    "revert the change, give another --output-log-dir, or repeat these runs with --restart-changed (the existing files "
    "move to discarded/)"
)
RUN_END_TIMEOUT_S = 30.0  # The guardian of a run kills the run as soon as its command is killed.


@contextlib.contextmanager
def held(lock: Path, what: str) -> Iterator[None]:
    """Hold a directory by a lock file in it; the kernel releases the lock when this process ends.

    Args:
        lock: The lock file; its directory is created.
        what: Name of the holder in messages: campaign, tune.

    Raises:
        SetupError: If another process holds the directory, or it cannot be written.
    """
    root = lock.parent
    try:
        root.mkdir(parents=True, exist_ok=True)
        stream = lock.open("a")
    except OSError as error:
        raise SetupError(
            f"{what} directory {root} cannot be written: {error.strerror}",
            "give a writable directory with --output-log-dir",
        ) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(
                f"{root}: another {what} is in progress here", "wait for its end, or give another --output-log-dir"
            ) from error
        except OSError as error:
            raise SetupError(
                f"{lock} cannot be locked: {error.strerror}", "give an --output-log-dir on another file system"
            ) from error
        yield


def set_aside(paths: list[Path], discarded: Path) -> Path:
    """Move files and run directories to a new numbered folder in `discarded`, and return that folder.

    Raises:
        SetupError: If a run in these directories has not ended.
    """
    for path in paths:
        wait_for_end(path)
    folder = discarded / str(next_number(discarded))
    folder.mkdir()
    for path in paths:
        path.rename(folder / path.name)
    return folder


def next_number(discarded: Path) -> int:
    """Return the next free number of a folder whose entries are named N or N-words."""
    discarded.mkdir(exist_ok=True)
    taken = [int(head) for path in discarded.iterdir() if (head := path.name.partition("-")[0]).isdecimal()]
    return max(taken, default=0) + 1


def wait_for_end(folder: Path) -> None:
    """Wait until the processes of a run whose command was killed have ended, so that its files can be moved.

    Raises:
        SetupError: If a process does not end in time.
    """
    end = time.monotonic() + RUN_END_TIMEOUT_S
    for path in [folder, *folder.glob("*/")]:
        progress = read_progress(RunDir(path).progress)
        while progress is not None and _is_run(progress.pid, path):
            if time.monotonic() > end:
                raise SetupError(
                    f"{path}: the run has not ended (process {progress.pid})",
                    f"end process {progress.pid}, then start again",
                )
            pause(0.2)


def _is_run(pid: int, folder: Path) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder.resolve()
    except psutil.Error:
        return False


def model_hashes(run: PreparedRun) -> dict[str, str]:
    """Return the SHA-256 of the model's files.

    Raises:
        InputError: If a file cannot be read.
    """
    try:
        return file_hashes(run.model.folder) if run.model else {}
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}", "check --model-path") from error
