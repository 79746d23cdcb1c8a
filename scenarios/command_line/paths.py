"""A path on the command line: one that a file can have, that is written; or a message that says why not."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from runs.errors import InputError, SetupError
from runs.files import write_json


class PathType(click.ParamType[Path]):
    """Turns an argument into a `Path`, refusing what every later step would stumble over.

    Refused are: an empty name (an unset shell variable, which would mean the working directory), a name that is not
    UTF-8 (the records are), a loop of links, a name that is too long for the file system, and a place that the user may
    not enter.
    """

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """
        Raises:
            InputError: naming the option and the value.
        """
        option = (
            param.opts[-1] if isinstance(param, click.Option) else param.name.upper() if param and param.name else ""
        )
        text = os.fspath(value)
        shown = text.encode("utf-8", "backslashreplace").decode()
        if not text:
            raise InputError(f"{option} is empty", "name a path; is a shell variable unset?")
        try:
            str(Path(text).absolute()).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{option} {shown}: its whole name is not UTF-8", "rename it") from error
        try:
            Path(text).stat()
        except OSError as error:
            why = {
                errno.ELOOP: "links that lead in a circle",
                errno.ENAMETOOLONG: "the name is too long",
                errno.EACCES: "you may not enter the directory that it lies in",
            }.get(error.errno or 0)
            if why is not None:
                raise InputError(f"{option} {shown:.200}: {why}", "name another path") from error
        except ValueError as error:
            raise InputError(f"{option} {shown!r}: {error}", "name another path") from error
        return Path(text)


PATH = PathType()


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
