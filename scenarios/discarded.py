"""Files and runs that are set aside: they move to a numbered directory in `discarded/`. No file is deleted."""

import time
from pathlib import Path

import psutil

from runs.errors import SetupError
from runs.processes.interrupts import pause
from runs.record.layout import RunDir
from runs.record.progress import read_progress

RUN_END_TIMEOUT_S = 30.0  # The guardian of a run kills the run as soon as its command is killed.


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
