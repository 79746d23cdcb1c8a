"""A path on the command line: one that a file can have, or a message that says why not."""

import errno
import os
from pathlib import Path
from typing import Any

import click

from runs.errors import InputError


class PathType(click.ParamType[Path]):
    """Turns an argument into a `Path`, refusing what every later step would stumble over.

    Refused are: an empty name (an unset shell variable, which would mean the working directory), a name that is not
    UTF-8 (the records are), a loop of links, and a name that is too long for the file system.
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
            raise InputError(f"{option} is empty", "name a place; is a shell variable unset?")
        try:
            str(Path(text).absolute()).encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{option} {shown}: its whole name is not UTF-8", "rename it; where the locale is C, set PYTHONUTF8=1"
            ) from error
        try:
            Path(text).stat()
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
                why = {errno.ELOOP: "links that lead in a circle"}.get(error.errno, "the name is too long")
                raise InputError(f"{option} {shown:.200}: {why}", "name another place") from error
        except ValueError as error:
            raise InputError(f"{option} {shown!r}: {error}", "name another place") from error
        return Path(text)


PATH = PathType()
