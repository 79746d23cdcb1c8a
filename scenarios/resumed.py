"""The directory of a resumable command (campaign, tune). One process holds it."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from qsl.model_files import file_hashes
from runs.errors import InputError, SetupError
from scenarios.run.plan import PreparedRun

CHANGED_FIX = (
    "revert the change, give another --output-log-dir, or repeat these runs with --restart-changed (the existing files "
    "move to discarded/)"
)


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


def model_hashes(run: PreparedRun) -> dict[str, str]:
    """Return the SHA-256 of the model's files.

    Raises:
        InputError: If a file cannot be read.
    """
    try:
        return file_hashes(run.model.folder) if run.model else {}
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}", "check --model-path") from error
