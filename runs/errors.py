"""Exit codes and the errors that carry them.

Every failure that a user can cause or meet is a `HarnessError`: the problem with the value, the fix, and the exit code.
`main.py` prints it without a traceback. An interruption is not a `HarnessError`: code that continues after a failure
must not continue after an interruption.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from pathlib import Path
from traceback import clear_frames
from typing import Any, Concatenate, ParamSpec, TypeVar

from runs.wording import printable

P = ParamSpec("P")
R = TypeVar("R")


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0  # done, PASS, VALID
    NEGATIVE = 1  # an honest negative result: INVALID, FAIL
    BAD_INPUT = 2  # invalid option, file or configuration
    REFUSED = 3  # set-up or validation refused to start
    FAILED = 4  # the engine died, or LoadGen, the watchdog or a tool reported an error
    INTERRUPTED = 130


class Ending(BaseException):
    """A failure or an interruption, with an exit code.

    Args:
        message: the problem, with the option or file and the value.
        fix: what the user can do, as a sentence; may be empty.
        path: file with the problem, if it is a single file.
        missing: whether that file does not exist.
        cause: rule that was violated.
        line: line of the file, counted from 1.
    """

    exit_code: ExitCode = ExitCode.FAILED
    cause: str = ""  # more specific than the exit code: a rule's ID, or "stall"

    def __init__(
        self,
        message: str,
        fix: str = "",
        *,
        path: Path | None = None,
        missing: bool = False,
        cause: str = "",
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.cause = cause or self.cause
        self.message = printable(message, lines=True)  # it may contain text of a server or an untrusted file
        self.fix = printable(fix, lines=True)
        self.path = path
        self.missing = missing
        self.line = line

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message


class HarnessError(Ending, Exception):
    """A failure."""


class InputError(HarnessError):
    """Invalid options, files or configuration."""

    exit_code = ExitCode.BAD_INPUT


class SetupError(HarnessError):
    """Set-up or validation refuses to start."""

    exit_code = ExitCode.REFUSED


class ExecutionError(HarnessError):
    """The engine, LoadGen or a tool failed while running."""

    exit_code = ExitCode.FAILED


class StalledError(ExecutionError):
    """The engine made no progress for too long, and the run was ended."""

    cause = "stall"


class Interrupted(Ending):
    """The user or the system requested the end. It is not an `Exception`, so no handler takes it for a failure."""

    exit_code = ExitCode.INTERRUPTED


ERROR_BY_EXIT_CODE: dict[int, type[Ending]] = {
    cls.exit_code: cls for cls in (InputError, SetupError, ExecutionError, Interrupted)
}


def error_record(error: Ending) -> dict[str, Any]:
    """Return a failure as JSON, for a run's files and for other processes."""
    return {"exit_code": int(error.exit_code), "cause": error.cause, "message": error.message, "fix": error.fix}


def error_of(record: dict[str, Any], prefix: str = "") -> Ending:
    """Return the failure in an `error_record`; `prefix` comes before its message."""
    cause = record.get("cause", "")
    kind = StalledError if cause == StalledError.cause else ERROR_BY_EXIT_CODE.get(record["exit_code"], ExecutionError)
    return kind(f"{prefix}: {record['message']}" if prefix else record["message"], record["fix"], cause=cause)


def names_its_file(read: Callable[Concatenate[Path, P], R]) -> Callable[Concatenate[Path, P], R]:
    """Decorate a reader whose first argument is a file, so that its errors have that `path`."""

    @wraps(read)
    def reading(path: Path, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(path, *args, **kwargs)
        except HarnessError as error:
            error.path = error.path or path
            clear_frames(error.__traceback__)  # otherwise the traceback keeps the file's content in memory
            raise

    return reading
