"""ended.json, the end of the last command that started the runs of a directory (campaign, tuning, audit).

It is missing while the command works, and if the command was killed.
"""

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from runs.errors import Ending, ExecutionError, ExitCode, error_record
from runs.files.fields import OurExitCode
from runs.files.reading import read_as
from runs.files.writing import write_json
from runs.processes.interrupts import critical, if_abandoned

NAME = "ended.json"


class GroupEnd(BaseModel):
    """The exit code of a command, and its error."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    exit_code: OurExitCode
    message: str = ""  # message of the error; empty without an error


def record_end(folder: Path, act: Callable[[], ExitCode]) -> ExitCode:
    """Do the work of a command, and write its end to ended.json."""
    path = folder / NAME

    def write(error: Ending) -> None:
        write_json(path, error_record(error))

    path.unlink(missing_ok=True)
    try:
        with if_abandoned(write):
            code = act()
    except BaseException as error:
        with critical():
            write(error if isinstance(error, Ending) else ExecutionError(f"{type(error).__name__}: {error}"))
        raise
    write_json(path, {"exit_code": int(code)})
    return code


def read_end(folder: Path) -> GroupEnd | None:
    """Read ended.json; None if it is missing.

    Raises:
        InputError: If the file is damaged.
    """
    path = folder / NAME
    return read_as(path, GroupEnd, "remove the file") if path.exists() else None
