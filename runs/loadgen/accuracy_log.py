"""Parser of `mlperf_log_accuracy.json`: the answers that LoadGen logged.

In an accuracy run every sample is there, in a performance run only what the audit settings ask for (often
nothing: an empty list). The entries stand in the order of completion.
"""

import re
from binascii import unhexlify
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from runs.errors import InputError, names_its_file
from runs.reading import MIB, read_record

# 24,576 answers of 294 tokens (the mean of llama2-70b), 8 digits each, make 58 MB; parsing takes five times as much.
MAX_BYTES = 128 * MIB
# The tool that prepares a submission keeps both ends of a log and puts this between them.
TRUNCATION_MARK = re.compile(
    rb"\n[ \t\r]*\.\.\.[ \t\r]*\n"
)  # no \s, which takes lines: its work grows with their square
_KEYS = frozenset({"seq_id", "qsl_idx", "data", "token_count", "token_data"})


@dataclass(frozen=True, slots=True)
class AccuracyEntry:
    """One logged answer."""

    seq_id: int  # LoadGen's sample sequence
    qsl_idx: int  # index in the query sample library
    data: bytes  # what was given to QuerySamplesComplete
    token_count: int | None  # None in a run without token latencies
    token_data: bytes | None  # what was given to FirstTokenComplete; None in Offline


@names_its_file
def read_accuracy_log(path: Path) -> list[AccuracyEntry]:
    """Parse an accuracy log.

    Raises:
        InputError: missing, truncated for submission, cut off, or of another shape; names the entry.
    """
    content = read_record(path, "give a mlperf_log_accuracy.json that LoadGen wrote", max_bytes=MAX_BYTES)
    try:
        entries = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise _unreadable(path, content, error) from error
    if not isinstance(entries, list):
        raise InputError(f"{path} holds no list of entries", "give a mlperf_log_accuracy.json")
    return [_entry(path, number, entry) for number, entry in enumerate(entries, start=1)]


def _unreadable(path: Path, content: bytes, error: orjson.JSONDecodeError) -> InputError:
    if TRUNCATION_MARK.search(content):
        return InputError(
            f"{path} was truncated for submission: the middle of the log is replaced by '...'",
            "use the original log that LoadGen wrote; its SHA-256 stands in accuracy.txt",
        )
    if not content.strip():
        return InputError(f"{path} is empty", "LoadGen writes at least '[ ]': run the leg again")
    if not content.rstrip().endswith(b"]"):
        return InputError(
            f"{path} is cut off: the closing ']' is missing ({error})",
            "the run was stopped before LoadGen had finished, or the copy is incomplete",
        )
    return InputError(f"{path} holds no valid JSON ({error})", "take the unchanged log that LoadGen wrote")


def _entry(path: Path, number: int, raw: Any) -> AccuracyEntry:
    if not isinstance(raw, dict):
        raise _bad(path, number, f"is {str(raw)[:40]!r}, not an object")
    if unknown := raw.keys() - _KEYS:
        raise _bad(path, number, f"has the unknown field {min(unknown)[:40]!r}")
    token_count = raw.get("token_count")
    return AccuracyEntry(
        seq_id=_whole(path, number, "seq_id", raw.get("seq_id")),
        qsl_idx=_whole(path, number, "qsl_idx", raw.get("qsl_idx")),
        data=_hex(path, number, "data", raw.get("data")),
        token_count=None if token_count is None else _whole(path, number, "token_count", token_count),
        token_data=_hex(path, number, "token_data", raw["token_data"]) if "token_data" in raw else None,
    )


def _whole(path: Path, number: int, name: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise _bad(path, number, f"field {name!r} is {str(value)[:40]!r}, not a whole number")
    return value


def _hex(path: Path, number: int, name: str, value: Any) -> bytes:
    if type(value) is not str:
        raise _bad(path, number, f"field {name!r} is {str(value)[:40]!r}, not hexadecimal text")
    try:
        return unhexlify(value)
    except ValueError as error:
        raise _bad(path, number, f"field {name!r} is no hexadecimal text ({error})") from error


def _bad(path: Path, number: int, problem: str) -> InputError:
    return InputError(f"{path} entry {number} {problem}", "take the unchanged log that LoadGen wrote")
