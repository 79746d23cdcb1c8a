"""The shape of a detail log: is it one log, of one process, written once?

`runs.loadgen.detail_log` reads what a log says and keeps the last value of each key. Here every record is looked at,
because a log that was put together from two says some things twice.
"""

from dataclasses import dataclass, field
from pathlib import Path

import orjson

from runs.loadgen.detail_log import PREFIX
from runs.reading import open_record

# What LoadGen may write several times in one run.
_REPEATED = frozenset({"generic_message", "loaded_qsl_set", "early_stopping_result"})


@dataclass
class LogShape:
    """Process ids, keys that stand there twice with the line of the second, and LoadGen's clock after the last query.

    `power_end_ms` is of the record that LoadGen writes when all queries are complete, counted from its start;
    `clock_ms` are all its readings.
    """

    pids: set[int] = field(default_factory=set)
    repeated: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    power_end_ms: float | None = None
    clock_ms: set[float] = field(default_factory=set)


def read_shape(path: Path) -> LogShape:
    """Look at every record.

    Raises:
        InputError: unreadable or damaged.
    """
    shape = LogShape()
    seen: set[str] = set()
    with open_record(path, "give a LoadGen detail log") as stream:
        for number, line in enumerate(stream, start=1):
            shape.lines = number
            if line.startswith(PREFIX):
                _take(shape, seen, line, number)
    return shape


def _take(shape: LogShape, seen: set[str], line: bytes, number: int) -> None:
    try:
        record = orjson.loads(line[len(PREFIX) :])
        key, metadata = record["key"], record["metadata"]
        shape.pids.add(int(metadata["pid"]))
        time_ms = float(record["time_ms"])
        shape.clock_ms.add(time_ms)
        if key == "power_end":
            shape.power_end_ms = time_ms
        ordinary = not (metadata["is_error"] or metadata["is_warning"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return  # `read_detail` has said what is wrong with it
    if ordinary and key not in _REPEATED:
        if key in seen:
            shape.repeated.setdefault(key, number)
        seen.add(key)
