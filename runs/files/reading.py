"""Reading untrusted files: regular files only, of a bounded size.

Opening a pipe waits for its writer, a device has no end, a sparse file fills the memory, and a link in a run directory
can name a file outside the run. Every file from outside is therefore opened here.
"""

import contextlib
import json
import math
import os
import stat
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from runs.errors import InputError

if TYPE_CHECKING:  # most readers use no schema
    from pydantic import BaseModel, ValidationError

Schema = TypeVar("Schema", bound="BaseModel")
MIB = 1024 * 1024


class Bounds(NamedTuple):
    """The largest file of a kind, and its longest line (in whole KiB; 0 if it is not read by lines)."""

    file_bytes: int
    line_bytes: int = 0


# The largest files that are read, by kind.
MAX_TEXT_BYTES = 16 * MIB  # records: honest ones have kilobytes
MAX_YAML_BYTES = MIB  # configurations: honest ones have kilobytes, and YAML is read at about 0.2 MB/s
MAX_LOG_BYTES = 1024 * MIB  # logs with lines for each query; 300,000 queries make 90 MB of requests.jsonl
MAX_ATTESTED_BYTES = 64 * 1024 * MIB  # a file that is hashed only: a trace or an engine's log may have gigabytes
MAX_WEIGHTS_BYTES = 2**50  # weights of a model: no limit in practice
DETAIL_LOG = Bounds(128 * MIB, 16 * MIB)  # honest: 100 kB, or an error record per query; a line has up to 90 kB
SUMMARY_LOG = Bounds(MIB)  # honest: 4 kB
ACCURACY_LOG = Bounds(128 * MIB)  # or what a benchmark's responses need; parsing takes five times as much memory
TRACE_LOG = Bounds(MAX_LOG_BYTES, MIB)
REQUESTS_LOG = Bounds(MAX_LOG_BYTES, 64 * 1024)  # an honest line has 300 bytes
ENGINE_LOG = Bounds(MAX_LOG_BYTES)
LEDGER = Bounds(MAX_LOG_BYTES)
TIME_STAMP = Bounds(MIB)  # with the authority's certificates it has kilobytes
SIGNING_KEY = Bounds(64 * 1024)
TOKENIZER = Bounds(64 * MIB)  # a tokenizer.json: that of Llama 3.1 has 9 MB
# Rows to prepare a dataset of, and the text of the columns read: CNN-DailyMail's training split has 1.3 GB.
SOURCE_FILE = Bounds(2048 * MIB)
PARQUET_ROWS = 10_000_000  # a few bytes may claim as many; OpenOrca has 4.2 million

GIT_LFS_POINTER = b"version https://git-lfs.github.com/spec/"  # first bytes [git-lfs, docs/spec.md]

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_file(
    path: Path, fix: str, *, max_bytes: int = MAX_LOG_BYTES, within: Path | None = None, option: str = ""
) -> BufferedReader:
    """Open a regular file for reading, without blocking.

    Args:
        fix: of the error.
        max_bytes: the largest file that is read.
        within: a directory that symbolic links must stay in; None: they may lead anywhere.
        option: the option that named the file, for messages.

    Raises:
        InputError: it cannot be read, is no regular file, is too large, or is outside of `within`.
    """
    name = f"{option} {path}".lstrip()
    try:
        if within is not None and not _is_within(path, within):
            raise InputError(f"{name} is a link to {path.resolve()}, out of its directory", "put the file itself there")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links; ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        if isinstance(error, FileNotFoundError) and path.is_symlink():
            why = f"it is a link to {path.readlink()}, which does not exist"
        if isinstance(error, PermissionError):
            fix = "let this user read it (chmod)"
        raise InputError(f"cannot read {name}: {why}", fix) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            kind = next((name for test, name in _KINDS if test(facts.st_mode)), "no file")
            raise InputError(f"cannot read {name}: it is {kind}, not a regular file", fix)
        if facts.st_size > max_bytes:
            raise InputError(f"cannot read {name}: it has {facts.st_size:,} bytes, at most {max_bytes:,} are read", fix)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _is_within(path: Path, folder: Path) -> bool:
    """Return whether a file is in a directory or below it, after all links."""
    if path.parent == folder and path.name != ".." and not path.is_symlink():
        return True
    return path.resolve(strict=True).is_relative_to(folder.resolve())


def open_record(path: Path, fix: str, *, max_bytes: int = MAX_LOG_BYTES) -> BufferedReader:
    """`open_file` for a file of a run directory or a tree, which must be in its directory itself."""
    return open_file(path, fix, max_bytes=max_bytes, within=path.parent)


def read_whole(
    path: Path, fix: str, *, max_bytes: int = MAX_TEXT_BYTES, within: Path | None = None, option: str = ""
) -> bytes:
    """The content of a file, as `open_file` opens it.

    Raises:
        InputError: as `open_file`; also where the file grows beyond `max_bytes` while it is read.
    """
    with open_file(path, fix, max_bytes=max_bytes, within=within, option=option) as stream:
        try:
            size = os.fstat(stream.fileno()).st_size  # read() allocates what it is asked for
            content = stream.read(size + 1)
            if len(content) > size:
                content += stream.read(max_bytes - size)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}", fix) from error
    if len(content) > max_bytes:
        raise InputError(f"cannot read {path}: it has more than {max_bytes:,} bytes", fix)
    return content


def stand_in(content: bytes) -> str:
    """Return what a file has in place of its content, as a sentence; "" where its content may be there."""
    if content.startswith(GIT_LFS_POINTER):
        return "it is a git-lfs pointer, not the file itself"
    return "" if content else "it is empty"


def read_record(path: Path, fix: str, *, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """`read_whole` for a file of a run directory or a tree, which must be in its directory itself."""
    return read_whole(path, fix, max_bytes=max_bytes, within=path.parent)


def read_object(path: Path, fix: str, *, max_bytes: int = MAX_TEXT_BYTES, within: Path | None = None) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        InputError: unreadable, not JSON, no object, or one with a key twice.
    """
    return json_object(read_whole(path, fix, max_bytes=max_bytes, within=within), path, fix)


def json_object(content: bytes, path: Path, fix: str, *, twice: bool = False) -> dict[str, Any]:
    """The object in the content of `path`; with `twice` a key may occur twice, and the last counts."""
    value = json_value(content, path, fix, twice=twice)
    if not isinstance(value, dict):
        raise InputError(f"{path} holds no object", fix)
    return value


def json_value(content: bytes, path: Path, fix: str, *, twice: bool = False) -> Any:
    """The JSON value in the content of `path`.

    Raises:
        InputError: not JSON, a key twice, or a number that is NaN or too large.
    """
    try:
        return _parse(content.decode(), dict if twice else _object)
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, AmbiguousError) else stand_in(content) or f"it is not JSON ({error})"
        raise InputError(f"{path} cannot be read: {why}", fix) from error


def read_as(path: Path, schema: type[Schema], fix: str, *, within: Path | None = None, strict: bool = False) -> Schema:
    """The JSON object in a file, as a model of pydantic.

    Args:
        strict: no conversion of types, such as 1 for true.

    Raises:
        InputError: as `read_object`; or a field is wrong.
    """
    from pydantic import ValidationError

    content = read_object(path, fix, within=within)
    try:
        if strict:  # validate as JSON, which has no tuples and no objects
            return schema.model_validate_json(json.dumps(content), strict=True)
        return schema.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}", fix) from error


def first_problem(error: "ValidationError") -> str:
    """The first problem, and its field."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


class AmbiguousError(ValueError):
    """JSON that two readers may understand differently."""


class KeyTwiceError(AmbiguousError):
    """An object with one key twice."""

    def __init__(self, key: str) -> None:
        super().__init__(f"it has {key[:40]!r} twice")
        self.key = key


def _parse(text: str, as_object: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> Any:
    value = json.loads(text, object_pairs_hook=as_object, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # refuses a lone surrogate
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise KeyTwiceError(twice)
    return found


def _whole(word: str) -> int:
    """A whole number of 64 bits; a longer word is not converted."""
    if len(word) <= len(str(-(2**64))) and -(2**63) <= (value := int(word)) < 2**64:
        return value
    raise AmbiguousError(f"{word[:40]} is too large")


def _finite(word: str) -> float:
    if math.isfinite(value := float(word)):
        return value
    raise AmbiguousError(f"{word[:40]} is too large, or no number")


def files_below(root: Path) -> list[Path]:
    """Everything but directories below a directory, in order, at any depth; links are not followed."""
    found: list[Path] = []
    waiting = [os.fspath(root)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    found.append(Path(entry.path))
    return sorted(found)


def bounded_lines(path: Path, bounds: Bounds, fix: str) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line with its end) of a file of a run directory.

    Raises:
        InputError: the file cannot be read, or it or a line is too long.
    """
    longest = bounds.line_bytes
    with open_record(path, fix, max_bytes=bounds.file_bytes) as stream:
        try:
            for number, line in enumerate(iter(lambda: stream.readline(longest + 1), b""), start=1):
                if len(line) > longest:
                    raise InputError(f"{path} line {number} is longer than {longest >> 10:,} KiB", fix)
                yield number, line
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}", fix) from error
