"""What takes long to make is made once: in a session, whichever of the processes side by side asks for it first; or,
for runs, as long as nothing that they are made of changes."""

import hashlib
import importlib.metadata
import inspect
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

from qsl.embedded.articles import bundled_dataset

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".pytest_cache" / "runs"  # `make clean` removes it
KEPT_S = 2 * 24 * 3600.0
# Packages that a run imports.
RUN = (
    *("main.py", "runs", "qsl", "sut", "scenarios/run", "scenarios/command_line", "compliance/accuracy"),
    *("tests/support/cheats.py", "tests/support/warm.py", "tests/support/null_sut.py"),
)

Make = Callable[[Path], object]


def once(factory: pytest.TempPathFactory, name: str, make: Make) -> Path:
    """The directory of that name, filled by `make`, of this session. Read it only."""
    base = factory.getbasetemp()
    return _filled((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-once" / name, make)


def kept(name: str, make: Make, made_of: tuple[str, ...] = RUN) -> Path:
    """The directory of that name, filled by `make` with runs, maybe of an earlier session. Read it only.

    Args:
        made_of: files and folders of the checkout that decide what `make` makes, beside the module that it stands in.
    """
    source = inspect.getsourcefile(make)
    key = hashlib.sha256(f"{name}\n{_content(made_of)}\n".encode() + Path(source).read_bytes()).hexdigest()[:16]
    folder = KEPT / f"{name.replace('/', '-')}-{key}"
    for other in _too_old(KEPT):
        shutil.rmtree(other, ignore_errors=True)
    return _filled(folder, make)


def _filled(folder: Path, make: Make) -> Path:
    made = folder.with_name(f"{folder.name}.made")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not made.exists() or not folder.exists():
            shutil.rmtree(folder, ignore_errors=True)  # folder of a failed caller
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


def _too_old(home: Path) -> Iterator[Path]:
    for made in home.glob("*.made"):
        with suppress(FileNotFoundError):
            if time.time() - made.stat().st_mtime > KEPT_S:
                made.unlink()
                yield made.with_suffix("")


@cache
def _content(made_of: tuple[str, ...]) -> str:
    """A digest of the files, of what runs them, and of where the articles lie that runs are started with."""
    digest = hashlib.sha256(repr((sys.version, sys.prefix, str(bundled_dataset("bytes")))).encode())
    digest.update(importlib.metadata.version("mlcommons-loadgen").encode())
    for name in made_of:
        place = ROOT / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(str(path.relative_to(ROOT)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
