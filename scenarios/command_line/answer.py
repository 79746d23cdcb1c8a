"""`--json`: what a command came to, as one JSON object on the standard output.

    {"command": "run", "exit_code": 0, "error": null, "answer": {…}}

`error` is {"message", "fix"} where there is no answer or only a part of one; `answer` is the command's own: of a leg
its directory and result.json, of an audit its directory and record. What people read goes to the standard error.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from runs.errors import HarnessError, InputError
from runs.reading import read_object

FLAG, QUIET = "--json", ("-q", "--quiet")
VERBOSE = {"-v": 1, "--verbose": 1, "-vv": 2}

_answer: dict[str, Any] = {}


def asked_for(words: list[str]) -> bool:
    """Whether the answer is to go to the standard output: `--json` without a file's name behind it."""
    return any(
        word == FLAG and (not following or following.startswith("-"))
        for word, following in zip(words, [*words[1:], ""], strict=True)
    )


def begin() -> None:
    """Forget the answer of an earlier command of this process."""
    _answer.clear()


def put(**values: Any) -> None:
    """Add to the answer of the command that runs."""
    _answer.update(values)


def put_file(name: str, path: Path) -> None:
    """Add the JSON object of a file, null where there is none."""
    try:
        _answer[name] = read_object(path, "")
    except InputError:
        _answer[name] = None


def document(command: str, exit_code: int, error: HarnessError | None) -> str:
    """The whole object, on one line."""
    told = None if error is None else {"message": error.message, "fix": error.fix}
    whole = {"command": command, "exit_code": int(exit_code), "error": told, "answer": dict(_answer)}
    return orjson.dumps(whole, default=str).decode()


@contextlib.contextmanager
def no_prose(quiet: bool) -> Iterator[None]:
    """Within: what a command prints for people goes to the standard error, or nowhere."""
    if quiet:
        with Path("/dev/null").open("w") as nothing, contextlib.redirect_stdout(nothing):
            yield
    else:
        with contextlib.redirect_stdout(sys.stderr):
            yield
