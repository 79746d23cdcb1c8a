"""What takes long to make is made once a session, whichever of the processes side by side asks for it first."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The directory of that name, filled by `make`. Read it only."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-once" / name
    made = folder.with_name(f"{folder.name}.made")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one who failed
            folder.mkdir()
            make(folder)
            made.touch()
    return folder
