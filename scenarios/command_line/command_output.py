"""A command's output, which must not end it when its reader is gone.

With `--json` that is one JSON object on the standard output; what people read goes to the standard error:

    {"command": "run", "exit_code": 0, "error": null, "answer": {…}}

`error` is {"message", "fix", "cause"} where there is no response or only a part of one; its cause is the violated rule,
where one is known. `answer` is the command's own: of a run its directory and result.json, of an audit its directory and
record.

`main.py … | head`, a closed terminal or a full disk behind the standard output do not end a run: output that cannot be
written is dropped from then on; the files of the run are complete.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

from runs.errors import Ending, InputError
from runs.reading import read_object
from runs.wording import json_printable, printable

FLAG, QUIET = "--json", ("-q", "--quiet")
VERBOSE = {"-v": 1, "--verbose": 1, "-vv": 2}
READER_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)  # a pipe, a terminal, a descriptor that was closed

_output: dict[str, Any] = {}


def asked_for(words: list[str]) -> bool:
    """Whether the response is to go to the standard output: `--json` without a file's name behind it."""
    return any(word == FLAG and (not following or following[0] == "-") for word, following in pairwise([*words, ""]))


def begin() -> None:
    """Forget the response of an earlier command of this process."""
    _output.clear()


def put(**values: Any) -> None:
    """Add to the response of the command that runs."""
    _output.update(values)


def put_file(name: str, path: Path) -> None:
    """Add the JSON object of a file, null where there is none."""
    try:
        _output[name] = read_object(path, "")
    except InputError:
        _output[name] = None


def document(command: str, exit_code: int, error: Ending | None) -> str:
    """The whole object, on one line."""
    import orjson

    failure = None if error is None else {"message": error.message, "fix": error.fix, "cause": error.cause}
    whole = {"command": command, "exit_code": int(exit_code), "error": failure, "answer": dict(_output)}
    return json_printable(orjson.dumps(whole, default=str).decode())


@contextlib.contextmanager
def prose(quiet: bool, as_json: bool) -> Iterator[None]:
    """Within: what a command prints for people goes to the standard output, to the standard error or nowhere."""
    with contextlib.ExitStack() as at_the_end:
        if quiet:
            nothing = at_the_end.enter_context(Path(os.devnull).open("w"))
            at_the_end.enter_context(contextlib.redirect_stdout(nothing))
        elif as_json:
            at_the_end.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


class SteadyStream:
    """A text stream whose writes never fail, and which writes control characters as `\\x1b`.

    Names and texts of files from elsewhere must not control a terminal. Of line ends, `\\n` and `\\r\\n` stay.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None  # why nothing is written any more
        # rich writes there, with colors and movements of its own; scenarios/terminal.py escapes the texts.
        self.rich_proxied_file = _Unescaped(self)

    def write(self, text: str) -> int:
        self.write_unescaped("\r\n".join(printable(part, lines=True) for part in text.split("\r\n")))
        return len(text)

    def write_unescaped(self, text: str) -> int:
        if self.error is None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._give_up(error)
        return len(text)

    def flush(self) -> None:
        if self.error is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.error = error
        # What is buffered goes there too, instead of failing once more when Python ends.
        with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Unescaped:
    """A steady stream's other entrance."""

    def __init__(self, stream: SteadyStream) -> None:
        self.write = stream.write_unescaped
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def steady_output() -> Iterator[SteadyStream]:
    """Within: standard output and error never fail, and write what their encoding lacks as \\u escapes."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    output = SteadyStream(sys.stdout)
    sys.stdout, sys.stderr = output, SteadyStream(sys.stderr)
    try:
        yield output
    finally:
        output.flush()
        sys.stdout, sys.stderr = before
