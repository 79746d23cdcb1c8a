"""Temporary folders, which no end of a process leaves behind."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from runs.processes.interrupts import critical, ensured

REMOVALS = 5


@contextlib.contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder, removed at the end of the block, or by a signal that ends the process."""
    import tempfile

    with contextlib.ExitStack() as at_the_end:
        with critical():
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            at_the_end.enter_context(ensured(partial(remove_folder, folder)))
        yield folder


def remove_folder(folder: Path) -> None:
    """Remove a folder as far as possible. A thread that was abandoned may still write into it."""
    import shutil

    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
