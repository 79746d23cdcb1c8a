"""The work of a command that can be continued (campaign, tune, bench, ab). One process locks its directory."""

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

from qsl.model_files import file_hashes
from runs.errors import ExitCode, HarnessError, InputError, Interrupted, SetupError
from runs.processes.interrupts import if_abandoned
from runs.record.group_end import record_end
from scenarios.launch.plan import PreparedRun

LOCK, DISCARDED = "lock", "discarded"  # in the directory of a bench or a comparison
CHANGED_FIX = (
    "revert the change, give another --output-log-dir, or repeat these runs with --restart-changed (the existing files "
    "move to discarded/)"
)


def resumable(lock: Path, what: str, say: Callable[[str], None], work: Callable[[], ExitCode]) -> ExitCode:
    """Lock the directory of a command, do the work of the command, and write its end into the directory.

    Args:
        what: Name of the holder in messages: campaign, tuning.

    Raises:
        SetupError: If another process holds the directory, or it cannot be written.
        Interrupted: If a signal ends the work; the same command continues it.
    """

    def say_how_to_go_on(_: Interrupted) -> None:
        say("\ninterrupted; to continue, start the same command again")

    with held(lock, what):
        try:
            with if_abandoned(say_how_to_go_on):
                return record_end(lock.parent, work)
        except Interrupted as error:
            say_how_to_go_on(error)
            raise


@contextlib.contextmanager
def recorded_end(end: Callable[..., None]) -> Iterator[None]:
    """Record how the work of a bench or a comparison ends.

    Args:
        end: Called with the status `complete`, `failed` or `interrupted`, and the error if there is one; with
            `has_page=False` if the process ends at once.
    """
    try:
        with if_abandoned(lambda error: end("interrupted", error, has_page=False)):
            yield
    except Interrupted as error:
        end("interrupted", error)
        raise
    except HarnessError as error:
        end("failed", error)
        raise
    end("complete")


@contextlib.contextmanager
def held(lock: Path, what: str) -> Iterator[None]:
    """Create a directory, and lock it with a lock file. The kernel releases the lock when this process ends."""
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
