"""The shared parts of the programs that write a dataset: check of the output, progress and writing."""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from qsl.dataset_kind import Steps
from qsl.prepared_rows import Prepared, write_rows
from runs.errors import InputError
from runs.files.writing import is_special
from scenarios.terminal import Terminal

INTERRUPTED = "interrupted: nothing was written"


def add_output_options(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add the options of the file to write; `what` is the help text of --output."""
    parser.add_argument("--output", required=True, type=Path, metavar="OUT.json", help=help_text)
    parser.add_argument("--force", action="store_true", help="replace the output file if it exists")


def check_output(options: argparse.Namespace) -> None:
    """Check before minutes of work that the output can be written.

    Raises:
        InputError: If the file cannot be written, or exists and may not be replaced.
    """
    output: Path = options.output
    if not options.force and (output.is_file() or output.is_symlink()) and not is_special(output):
        raise InputError(f"--output {output}: already exists", "give another file, or replace this one with --force")
    if output.is_dir():
        raise InputError(f"--output {output}: is a directory", "give the name of the file to write")
    if not output.absolute().parent.is_dir():
        raise InputError(f"--output {output}: its directory does not exist", f"mkdir -p {output.absolute().parent}")


@contextmanager
def progress(total: int, *tasks: str) -> Iterator[list[Steps]]:
    """Show a progress bar on stderr for each task, if stderr is a terminal.

    Args:
        total: Number of rows of each task.
    """
    console = Terminal(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield [_steps(bar, bar.add_task(task, total=total)) for task in tasks]


def _steps(bar: Progress, task: TaskID) -> Steps:
    return lambda done: bar.update(task, completed=done)


def write(options: argparse.Namespace, rows: Iterable[dict[str, Any]]) -> Prepared:
    """Write the dataset; a failure leaves no partial file.

    Args:
        options: Values of `add_output_options`.

    Raises:
        InputError: If the file cannot be written, or a row is invalid.
    """
    output: Path = options.output

    def checked() -> Iterator[dict[str, Any]]:
        yield from rows
        check_output(options)  # Another program may have created the file meanwhile.

    try:
        return write_rows(output, checked())
    except OSError as error:
        raise InputError(f"--output {output}: cannot be written: {error.strerror}", "give another file") from error
