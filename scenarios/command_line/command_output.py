"""The output of a command. A closed output does not end the command.

With `--json`, a command writes one JSON object to standard output and text to standard error:

    {"command": "run", "exit_code": 0, "error": null, "answer": {…}}

`error` is {"message", "fix", "cause"} if the output is missing or partial; its cause is the violated rule, if known.
`answer` depends on the command: for a run its directory and result.json, for an audit its directory and verdict.

`main.py … | head`, a closed terminal and a full disk behind standard output do not end a run: the harness drops output
that it cannot write, and completes the files of the run.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

from runs.errors import Ending, InputError
from runs.files.reading import read_object
from runs.wording import json_printable, printable

QUIET, JSON = ("-q", "--quiet"), "--json"
VERBOSITY = {"-v": 1, "--verbose": 1, "-vv": 2}
READER_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)  # errors of a closed pipe, terminal or descriptor

_output: dict[str, Any] = {}
_in_progress: list[tuple[TextIO, str]] = []  # standard output and the name of a command whose output is JSON


@dataclass(frozen=True)
class OutputOptions:
    """The selected output of a command."""

    is_quiet: bool  # only errors
    verbosity: int  # 1: details and the engine's log; 2: debug messages too
    is_json: bool  # one JSON object on standard output


def take_output_options(words: Sequence[str]) -> tuple[OutputOptions, list[str]]:
    """Return the options of the output, and the other words of a command line.

    The command parses the other words later, so that these options apply to a mistake in them, too. They may precede
    the name of the command. `--json FILE` stays: it is an option of some commands.
    """
    verbosity = max((VERBOSITY.get(word, 0) for word in words), default=0)
    rest = [word for word in words if word not in (*QUIET, *VERBOSITY)]
    is_json = any(word == JSON and (not following or following[0] == "-") for word, following in pairwise([*rest, ""]))
    if is_json:
        rest.remove(JSON)
    return OutputOptions(any(word in QUIET for word in words), verbosity, is_json), rest


def begin() -> None:
    """Discard the JSON values of an earlier command of this process."""
    _output.clear()


def put(**values: Any) -> None:
    """Add values to the JSON object of the current command."""
    _output.update(values)


def put_file(name: str, path: Path) -> None:
    """Add the JSON object in a file to the output, as `name`; null if it cannot be read."""
    try:
        _output[name] = read_object(path, "")
    except InputError:
        _output[name] = None


def document(command: str, exit_code: int, error: Ending | None) -> str:
    """Return the whole JSON object on one line."""
    import orjson

    failure = None if error is None else {"message": error.message, "fix": error.fix, "cause": error.cause}
    content = {"command": command, "exit_code": int(exit_code), "error": failure, "answer": dict(_output)}
    return json_printable(orjson.dumps(content, default=str).decode())


def prints_json() -> bool:
    """Return whether the output of the command in progress is JSON."""
    return bool(_in_progress)


def print_update(exit_code: int) -> None:
    """With `--json`, print the JSON object of a command in progress. The command prints its last object at its end."""
    for stream, command in _in_progress:
        print(document(command, exit_code, None), file=stream, flush=True)


@contextlib.contextmanager
def prose(quiet: bool, json_of: str | None) -> Iterator[None]:
    """Direct a command's text to standard output, to standard error (JSON) or nowhere (quiet).

    Args:
        json_of: Name of the command, if its output is JSON.
    """
    _in_progress[:] = [] if json_of is None else [(sys.stdout, json_of)]
    with contextlib.ExitStack() as at_the_end:
        if quiet:
            nothing = at_the_end.enter_context(Path(os.devnull).open("w"))
            at_the_end.enter_context(contextlib.redirect_stdout(nothing))
        elif json_of is not None:
            at_the_end.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


class SteadyStream:
    """A text stream whose writes never fail, and which writes control characters as `\\x1b`.

    Names and contents of foreign files must not control a terminal. The line ends `\\n` and `\\r\\n` stay.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None  # the first error of a write; later output is dropped
        # rich writes its own colors and cursor movements here; scenarios/terminal.py escapes the texts.
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
        # Buffered output goes to the null device too; otherwise Python would fail again at its end.
        with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Unescaped:
    """A view of a steady stream that writes without escaping."""

    def __init__(self, stream: SteadyStream) -> None:
        self.write = stream.write_unescaped
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def steady_output() -> Iterator[SteadyStream]:
    """Replace standard output and error with streams that never fail and escape unsupported characters as \\u."""
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
