"""The shape of a detail log: is it one log, of one process, written once?

`runs.detail_log` reads what a log says and keeps the last value of each key. Here every record is looked at, because a
log that was put together from two says some things twice.
"""

from dataclasses import dataclass, field
from pathlib import Path

import orjson

from runs.detail_log import PREFIX
from runs.errors import InputError

# What LoadGen may write several times in one run.
_REPEATED = frozenset({"generic_message", "loaded_qsl_set", "early_stopping_result"})


@dataclass
class LogShape:
    """Process ids, and keys that stand there twice with the line of the second."""

    pids: set[int] = field(default_factory=set)
    repeated: dict[str, int] = field(default_factory=dict)
    lines: int = 0


def read_shape(path: Path) -> LogShape:
    """Look at every record.

    Raises:
        InputError: unreadable or damaged.
    """
    shape = LogShape()
    seen: set[str] = set()
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                shape.lines = number
                if line.startswith(PREFIX):
                    _take(shape, seen, line, number)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "give a LoadGen detail log") from error
    return shape


def _take(shape: LogShape, seen: set[str], line: bytes, number: int) -> None:
    try:
        record = orjson.loads(line[len(PREFIX) :])
        key, metadata = record["key"], record["metadata"]
        shape.pids.add(int(metadata["pid"]))
        ordinary = not (metadata["is_error"] or metadata["is_warning"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return  # `read_detail` has said what is wrong with it
    if ordinary and key not in _REPEATED:
        if key in seen:
            shape.repeated.setdefault(key, number)
        seen.add(key)
