"""Helpers for tests that damage files."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from hypothesis import strategies as st

from runs.errors import InputError


def input_error(action: Callable[[], object]) -> InputError | None:
    """Return the InputError of `action`, or None. Other exceptions pass through."""
    try:
        action()
    except InputError as error:
        return error
    return None


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Return `content` with one to three places replaced by random bytes."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(changed)))
        changed[place : place + draw(st.integers(0, 40))] = draw(st.binary(max_size=20))
    return bytes(changed)


@contextlib.contextmanager
def deep_folder(folder: Path, depth: int = 1500) -> Iterator[Path]:
    """Create nested folders with a file at the end, deeper than the recursion limit.

    Remove them afterwards, because pytest cannot.
    """
    here = Path.cwd()
    os.chdir(folder)
    try:
        for _ in range(depth):
            Path("d").mkdir()
            os.chdir("d")
        Path("file").touch()
    finally:
        os.chdir(here)
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", str(folder / "d")], check=True)
