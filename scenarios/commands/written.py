"""A file that the user named on the command line is written, or a message says why not."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runs.errors import SetupError
from runs.files import write_json


@contextlib.contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Within: `path`, which `option` named, is written; its folder is made before.

    Raises:
        SetupError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise SetupError(f"{option} {path} cannot be written: {error.strerror}", "name another file") from error


def write_record(option: str, path: Path | None, record: dict[str, Any]) -> None:
    """Write a JSON object to the file that `option` named, if it named one.

    Raises:
        SetupError: it cannot be written.
    """
    if path is not None:
        with writing(option, path):
            write_json(path, record)
