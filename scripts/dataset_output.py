"""What the programs that write a dataset share: the output checked beforehand, progress, and the facts at the end."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from qsl.cnn_dailymail.rows import Prepared, write_rows
from runs.errors import InputError
from scenarios.terminal import Terminal

Steps = Callable[[int], None]  # called with the number of rows that are done
INTERRUPTED = "interrupted: nothing was written"


def check_output(output: Path) -> None:
    """Find out before minutes of work, not after them.

    Raises:
        InputError: no file of this name can be written.
    """
    if output.is_dir():
        raise InputError(f"--output {output} is a directory", "give the name of the file to write")
    if not output.absolute().parent.is_dir():
        raise InputError(f"the directory of --output {output} does not exist", f"mkdir -p {output.absolute().parent}")


@contextmanager
def progress(total: int, *tasks: str) -> Iterator[list[Steps]]:
    """A bar on stderr for each task; none where stderr is no terminal.

    Args:
        total: rows of each task.
    """
    console = Terminal(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield [_steps(bar, bar.add_task(task, total=total)) for task in tasks]


def _steps(bar: Progress, task: TaskID) -> Steps:
    return lambda done: bar.update(task, completed=done)


def write(output: Path, rows: Iterable[dict[str, Any]]) -> Prepared:
    """Write the dataset, whole or not at all.

    Raises:
        InputError: it cannot be written, or a row cannot be used.
    """
    try:
        return write_rows(output, rows)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}", "name another place with --output") from error
