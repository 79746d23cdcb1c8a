"""Parser of `mlperf_log_accuracy.json`: the responses that LoadGen logged, in the order of completion.

An accuracy run logs every sample, a performance run those that the audit settings select, often none.
"""

import re
from binascii import unhexlify
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from runs.errors import InputError, names_its_file
from runs.files.reading import ACCURACY_LOG, read_record

# The tool that prepares a submission replaces the middle of a log by this text. (\s would match lines: quadratic time.)
TRUNCATION_MARK = re.compile(rb"\n[ \t\r]*\.\.\.[ \t\r]*\n")

_ISSUED = re.compile(rb'"seq_id"\s*:\s*(\d{1,9}),\s*"qsl_idx"\s*:\s*(\d{1,9})\s*[,}]')


@dataclass(frozen=True, slots=True)
class AccuracyEntry:
    """One logged response."""

    seq_id: int  # LoadGen's sample sequence
    qsl_idx: int  # index in the query sample library
    data: bytes  # data passed to QuerySamplesComplete
    token_count: int | None  # None in a run without token latencies
    token_data: bytes | None  # data passed to FirstTokenComplete; None in Offline


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of the file: bytes as hexadecimal text."""

    seq_id: Annotated[int, msgspec.Meta(ge=0)]
    qsl_idx: Annotated[int, msgspec.Meta(ge=0)]
    data: str
    token_count: Annotated[int, msgspec.Meta(ge=0)] | None = None
    token_data: str | msgspec.UnsetType = msgspec.UNSET


_decode = msgspec.json.Decoder(list[_Entry]).decode


@names_its_file
def read_accuracy_log(path: Path, honest_bytes: int = 0) -> list[AccuracyEntry]:
    """Parse an accuracy log.

    Args:
        honest_bytes: size of the largest possible log, if it exceeds ACCURACY_LOG.

    Raises:
        InputError: If the log is missing, truncated for submission, cut off, or has an invalid entry.
    """
    content = read_record(
        path, "give a mlperf_log_accuracy.json that LoadGen wrote", max_bytes=max(ACCURACY_LOG.file_bytes, honest_bytes)
    )
    try:
        entries = _decode(content)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {error} ($[0] is the first entry)", _FIX) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(path, content, error) from error
    if any(content.count(b'"%s"' % name) != len(entries) for name in (b"seq_id", b"qsl_idx", b"data")):
        raise InputError(f"{path} has entries that contain a field twice", _FIX)  # no value contains these characters
    return [_entry(path, number, entry) for number, entry in enumerate(entries, start=1)]


def issued_samples(log: bytes) -> list[tuple[int, int]]:
    """Return seq_id and qsl_idx of each entry of a log, which may be truncated."""
    return [(int(seq), int(index)) for seq, index in _ISSUED.findall(log)]


_FIX = "use the unchanged log that LoadGen wrote"


def _unreadable(path: Path, content: bytes, error: Exception) -> InputError:
    if TRUNCATION_MARK.search(content):
        return InputError(
            f"{path} was truncated for submission: the middle of the log is replaced by '...'",
            "use the original log that LoadGen wrote; accuracy.txt has its SHA-256",
        )
    if not content.strip():
        return InputError(f"{path} is empty", "rerun, because LoadGen writes at least '[ ]' at the end of a run")
    if not content.rstrip().endswith(b"]"):
        return InputError(
            f"{path} is cut off: the closing ']' is missing ({error})",
            "copy the complete log; if the run was stopped before LoadGen had finished, rerun",
        )
    return InputError(f"{path} is not valid JSON ({error})", _FIX)


def _entry(path: Path, number: int, entry: _Entry) -> AccuracyEntry:
    try:
        token_data = unhexlify(entry.token_data) if isinstance(entry.token_data, str) else None
        return AccuracyEntry(entry.seq_id, entry.qsl_idx, unhexlify(entry.data), entry.token_count, token_data)
    except ValueError as error:
        raise InputError(f"{path} entry {number}: data or token_data is not hexadecimal ({error})", _FIX) from error
