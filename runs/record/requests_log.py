"""`requests.jsonl`: the harness's own record of every sample, one JSON line each.

LoadGen's files hold no per-sample times and no token counts (only its trace has times, and that is often
off), so this file is what a result can be recomputed from. Times are `time.time_ns()`, the clock LoadGen reads.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from runs.errors import InputError, names_its_file
from runs.reading import bounded_lines

NO_TIME = -1  # stands for null in the columns
_NO_REPLICA = -1
_ABSENT = ""  # no value of a field
MAX_LINE_BYTES = 64 * 1024  # an honest line has about 300
_WHOLE_NUMBERS = ("seq", "sample_index", "prompt_tokens", "output_tokens", "issue_ns", "complete_ns")
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One sample's way through the system under test."""

    seq: int  # order of issue, from 0; equals LoadGen's sample sequence
    sample_index: int  # index in the query sample library
    prompt_tokens: int
    output_tokens: int
    issue_ns: int  # when LoadGen handed it over
    first_token_ns: int | None  # None in Offline, where LoadGen asks for none
    complete_ns: int
    finish_reason: str
    output_sha256: str  # hex, of the output token ids as they were given to LoadGen
    replica: int | None = None  # of a leg with several engines, the one that answered


_FIELDS = {field.name for field in fields(RequestRecord)}


@dataclass(frozen=True)
class RequestTable:
    """All records of one leg, in order of `seq`; the columns are of equal length and int64."""

    seq: NDArray[np.int64]
    sample_index: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    issue_ns: NDArray[np.int64]
    first_token_ns: NDArray[np.int64]  # NO_TIME where there is none
    complete_ns: NDArray[np.int64]
    finish_reason: list[str]
    output_sha256: list[str]
    replica: NDArray[np.int64] | None = None  # None in a leg with one engine

    def __len__(self) -> int:
        return len(self.seq)


def encode(record: RequestRecord) -> bytes:
    """One line of the file, with its line end."""
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


@names_its_file
def read_requests(path: Path) -> RequestTable:
    """Parse a `requests.jsonl`; an empty file is an empty table.

    Raises:
        InputError: the file is missing, or a line is damaged or a `seq` occurs twice; names line and field.
    """
    columns = {name: array("q") for name in (*_WHOLE_NUMBERS, "first_token_ns", "replica")}
    appends = [(name, columns[name].append) for name in _WHOLE_NUMBERS]
    append_first_token, append_replica = columns["first_token_ns"].append, columns["replica"].append
    finish_reason: list[str] = []
    output_sha256: list[str] = []
    known_reasons: dict[str, str] = {}
    for number, line in _lines(path):
        record = _parse(path, number, line)
        for name, append in appends:
            value = record.get(name)
            if type(value) is not int or not 0 <= value <= _LARGEST:
                raise _bad_field(path, number, name, record, "a whole number")
            append(value)
        first_token_ns = record.get("first_token_ns", _ABSENT)
        if first_token_ns is None:
            first_token_ns = NO_TIME
        elif type(first_token_ns) is not int or not 0 <= first_token_ns <= _LARGEST:
            raise _bad_field(path, number, "first_token_ns", record, "a whole number or null")
        append_first_token(first_token_ns)
        replica = record.get("replica")
        if replica is None:
            replica = _NO_REPLICA
        elif type(replica) is not int or not 0 <= replica <= _LARGEST:
            raise _bad_field(path, number, "replica", record, "a whole number or null")
        append_replica(replica)
        reason, digest = record.get("finish_reason"), record.get("output_sha256")
        if type(reason) is not str:
            raise _bad_field(path, number, "finish_reason", record, "a text")
        if type(digest) is not str or len(digest) != 64:
            raise _bad_field(path, number, "output_sha256", record, "a SHA-256 of 64 digits")
        finish_reason.append(known_reasons.setdefault(reason, reason))  # few different ones: share them
        output_sha256.append(digest)
    return _sorted_table(path, columns, finish_reason, output_sha256)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    def too_long(number: int) -> InputError:
        return InputError(f"{path} line {number} is longer than {MAX_LINE_BYTES >> 10} KiB", _FIX)

    return bounded_lines(path, MAX_LINE_BYTES, too_long, "give a run directory that this harness wrote")


_FIX = "take the unchanged requests.jsonl of the run; a cut last line means that the run was stopped"


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path} line {number} holds no valid JSON ({error})", _FIX) from error
    if not isinstance(record, dict):
        raise InputError(f"{path} line {number} is no object with the fields of a request", _FIX)
    if unknown := record.keys() - _FIELDS:
        raise InputError(f"{path} line {number}: there is no field {min(unknown)[:40]!r}", _FIX)
    if line.count(b'":') != len(record):  # none of the texts has these signs
        raise InputError(f"{path} line {number} has a field twice, or is not as this harness writes it", _FIX)
    return record


def _bad_field(path: Path, number: int, name: str, record: dict[str, Any], wanted: str) -> InputError:
    said = f"is {str(record[name])[:40]!r}, not {wanted}" if name in record else "is missing"
    return InputError(f"{path} line {number}: field {name!r} {said}", _FIX)


def _sorted_table(
    path: Path, columns: dict[str, "array[int]"], finish_reason: list[str], output_sha256: list[str]
) -> RequestTable:
    seq = np.frombuffer(columns["seq"], dtype=np.int64) if finish_reason else np.empty(0, np.int64)
    order = np.argsort(seq, kind="stable")
    repeated = np.flatnonzero(np.diff(seq[order]) == 0)
    if len(repeated):
        first, second = sorted(int(place) + 1 for place in order[repeated[0] : repeated[0] + 2])
        raise InputError(
            f"{path} line {second}: field 'seq' is {int(seq[second - 1])}, as on line {first}",
            "one line per sample; a run never completes a sample twice",
        )
    places = order.tolist()
    in_order = {
        name: np.array(column, dtype=np.int64)[order] if finish_reason else np.empty(0, np.int64)
        for name, column in columns.items()
    }
    replica = in_order.pop("replica")
    return RequestTable(
        **in_order,
        replica=None if np.all(replica == _NO_REPLICA) else replica,
        finish_reason=[finish_reason[place] for place in places],
        output_sha256=[output_sha256[place] for place in places],
    )
