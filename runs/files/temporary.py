"""Temporary folders that are removed even if a signal ends the process."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from runs.processes.interrupts import critical, ensured

REMOVALS = 5


@contextlib.contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Create a folder for the block; it is removed at the end of the block, or when a signal ends the process."""
    import tempfile

    with contextlib.ExitStack() as at_the_end:
        with critical():
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            at_the_end.enter_context(ensured(partial(remove_folder, folder)))
        yield folder


def remove_folder(folder: Path) -> None:
    """Remove a folder, ignoring errors: an abandoned thread may still write into it."""
    import shutil

    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
