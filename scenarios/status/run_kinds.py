"""The kinds of runs that `status`, `results` and `report` read: those of this harness and those of other programs."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from runs.errors import ExitCode, HarnessError
from scenarios.status.client_run import client_run_status, is_client_run
from scenarios.status.harness_run import harness_run_status, is_harness_run
from scenarios.status.run_status import RunStatus


class RunKind(NamedTuple):
    """The runs of one program."""

    is_run: Callable[[Path], bool]
    read: Callable[[Path], RunStatus]
    is_point: bool = False  # True: a report shows each run as a point of a curve, not in a section of its own


# The first kind that recognizes a directory reads it.
KINDS = (RunKind(is_harness_run, harness_run_status), RunKind(is_client_run, client_run_status, is_point=True))


def kind_of_run(folder: Path) -> RunKind | None:
    """Return the kind of the run in a directory; None if it is not a run directory."""
    return next((kind for kind in KINDS if kind.is_run(folder)), None)


def run_status(root: Path) -> RunStatus:
    """Read a run directory. Damage is a state, not an error."""
    try:
        return (kind_of_run(root) or KINDS[0]).read(root)
    except HarnessError as error:
        return RunStatus(root=root, state="damaged", text=error.message, exit_code=ExitCode.BAD_INPUT)
