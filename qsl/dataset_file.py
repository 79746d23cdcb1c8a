"""The rows of a dataset file, in each of the accepted JSON shapes, and the errors of other files.

Accepted: a JSON array of objects (what the official preparation writes), JSON lines, and the column-oriented JSON that
`DataFrame.to_json` writes by default. Pickles are refused whatever their name: loading one runs code.
"""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from qsl.hub import PULL
from runs.errors import InputError
from runs.files.reading import GIT_LFS_POINTER, MIB, read_whole

PREPARE_FIX = "make the file with scripts/prepare_dataset.py, or save the table as JSON"

MAX_BYTES = 512 * MIB  # a dataset with 24,576 rows of text and IDs has about 200 MB
_PICKLE_SUFFIXES = {".pkl", ".pickle", ".pck", ".pkl.gz", ".pickle.gz", ".p", ".pt"}
_GZIP = b"\x1f\x8b"
# First bytes of other files that users may pass, with their kind and the fix.
_FOREIGN = (
    (b"PAR1", "a Parquet file", "convert it to JSON with scripts/prepare_dataset.py --source FILE"),
    (GIT_LFS_POINTER, "a git-lfs pointer", f"fetch the file itself ({PULL})"),
    (b"PK\x03\x04", "a zip archive", "unpack it, and give the JSON file inside"),
    (b"BZh", "bzip2-compressed", "decompress it with bunzip2"),
    (b"\xfd7zXZ", "xz-compressed", "decompress it with unxz"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "decompress it with unzstd"),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8"),
)
_UTF8_BOM = b"\xef\xbb\xbf"


def read_dataset_bytes(path: Path) -> bytes:
    """Return the content of a file; refuse files that cannot be a JSON dataset.

    Raises:
        InputError: If the file is missing, a directory, unreadable, empty, or has a recognized other format.
    """
    try:
        data = read_whole(path, "check its permissions", max_bytes=MAX_BYTES)
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise InputError(f"dataset file {path} does not exist", "check the path; " + PREPARE_FIX) from error
        if path.is_dir():
            raise InputError(f"dataset {path} is a directory", "give the JSON file inside it") from error
        raise
    _refuse_pickle(path, data)
    if data.startswith(_GZIP):
        raise InputError(f"dataset file {path} is gzip-compressed", "decompress it with gunzip")
    for magic, content_kind, fix in _FOREIGN:
        if data.startswith(magic):
            raise InputError(f"dataset file {path} is {content_kind}, not JSON", fix)
    if b"\0" in data:  # check before a parser allocates memory
        raise InputError(f"dataset file {path} is not JSON: it contains a null byte", PREPARE_FIX)
    if not data.strip():
        raise InputError(f"dataset file {path} is empty ({len(data)} bytes)", PREPARE_FIX)
    return data


def _refuse_pickle(path: Path, data: bytes) -> None:
    head = data[:4096]
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, 16)
        except (zlib.error, gzip.BadGzipFile):
            head = b""
    # Protocols 2 to 5 start with the PROTO opcode and their number.
    binary = len(head) >= 2 and head[0] == 0x80 and 2 <= head[1] <= 5
    named = path.suffix.lower() in _PICKLE_SUFFIXES or "".join(path.suffixes[-2:]).lower() in _PICKLE_SUFFIXES
    if binary or named:
        raise InputError(
            f"dataset file {path} is a pickle ({'by its first bytes' if binary else 'by its name'}); "
            "a pickle can run any code when it is loaded, so the harness never opens pickles",
            "if you trust it, convert it to JSON: pandas.read_pickle(...).to_json('dataset.json')",
        )


def parse_rows(data: bytes, path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of a dataset in any accepted shape, in file order.

    Args:
        path: name of the file, for messages.
        columns: required columns of a column-oriented file; the caller checks the columns of rows.

    Raises:
        InputError: If the data are not JSON, cut off, not UTF-8, or of another shape.
    """
    data = data.removeprefix(_UTF8_BOM)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        first, _, rest = data.lstrip().partition(b"\n")
        if rest.strip() and _is_object(first):
            return _json_lines(data, path)
        raise _broken_json(data, path, error) from error
    if isinstance(value, list):
        for number, row in enumerate(value):
            if not isinstance(row, dict):
                raise InputError(
                    f"{path}: row {number} is {shorten(row)}, not an object with the columns {', '.join(columns)}",
                    PREPARE_FIX,
                )
        return value
    if isinstance(value, dict):
        present = [value[column] for column in columns if column in value]
        if present and all(isinstance(cells, dict) for cells in present):
            return _from_columns(value, path, columns)
        return [value]  # a file with a single JSON line
    raise InputError(f"{path} contains {shorten(value)}, not a table of rows", PREPARE_FIX)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def _json_lines(data: bytes, path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    lines = data.rstrip().split(b"\n")
    offset = 0
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f", line {number} (row {len(rows)})"
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                is_last = number == len(lines)
                raise _broken_json(line, path, error, where, offset=offset, may_be_cut=is_last) from error
            if not isinstance(row, dict):
                raise InputError(f"{path}{where}: {shorten(row)} is not an object", PREPARE_FIX)
            rows.append(row)
        offset += len(line) + 1
    return rows


def _from_columns(table: dict[str, Any], path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    missing = [column for column in columns if column not in table]
    if missing:
        raise InputError(
            f"{path} (column-oriented JSON) has no column {missing[0]!r}; its columns are {shorten(list(table))}",
            PREPARE_FIX,
        )
    keys = list(table[columns[0]])
    for column in columns[1:]:
        cells = table[column]
        if not isinstance(cells, dict) or cells.keys() != table[columns[0]].keys():
            raise InputError(
                f"{path} (column-oriented JSON): columns {columns[0]!r} and {column!r} do not have the same rows",
                PREPARE_FIX,
            )
    return [{column: table[column][key] for column in columns} for key in keys]


def _broken_json(
    data: bytes, path: Path, error: orjson.JSONDecodeError, where: str = "", *, offset: int = 0, may_be_cut: bool = True
) -> InputError:
    """Return the error for `data`, which starts at byte `offset` of the file and does not parse."""
    try:
        text = data.decode()
        # If the data end inside a literal, a number or an escape, the parser reports that instead of the end.
        at_end = len(text.rstrip()) - error.pos < 8 and not text.rstrip().endswith(("]", "}"))
        is_cut = "end of data" in error.msg or (at_end and "after document" not in error.msg)
    except UnicodeDecodeError as bad:
        is_cut = bad.reason == "unexpected end of data"
        if not (is_cut and may_be_cut):
            return InputError(
                f"{path}{where}: byte {offset + bad.start} ({data[bad.start : bad.start + 1]!r}) is not UTF-8",
                "save the file as UTF-8",
            )
        text = data.decode(errors="replace")
    if is_cut and may_be_cut and text.lstrip().startswith(("[", "{")):
        return InputError(
            f"{path}{where}: the JSON ends at byte {offset + len(data)} in the middle of a value: the file is cut",
            "copy or download it again, and compare its size or SHA-256",
        )
    byte = offset + len(text[: error.pos].encode())
    return InputError(
        f"{path}{where}: not JSON at byte {byte}: {error.msg}, at {text[error.pos : error.pos + 20]!r}", PREPARE_FIX
    )


def shorten(value: object, limit: int = 60) -> str:
    """Return the Python representation of `value`, cut to `limit` characters."""
    # Slicing first keeps the cost small for a value of megabytes.
    if isinstance(value, str | bytes | list) and len(value) > limit:
        value = value[:limit]
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
