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

if TYPE_CHECKING:  # most readers need no schema
    from pydantic import BaseModel, ValidationError

Schema = TypeVar("Schema", bound="BaseModel")
MIB = 1024 * 1024


class Bounds(NamedTuple):
    """The largest file of a kind, and its longest line (in whole KiB; 0 if it is not read by lines)."""

    file_bytes: int
    line_bytes: int = 0


# Size limits of files, by kind.
MAX_TEXT_BYTES = 16 * MIB  # JSON files: usual size some kB
MAX_YAML_BYTES = MIB  # configurations: usual size some kB; YAML is parsed at about 0.2 MB/s
MAX_LOG_BYTES = 1024 * MIB  # logs with a line per query; 300,000 queries take 90 MB in requests.jsonl
MAX_ATTESTED_BYTES = 64 * 1024 * MIB  # files that are only hashed: a trace or an engine's log may have gigabytes
MAX_WEIGHTS_BYTES = 2**50  # weights of a model: no limit in practice
DETAIL_LOG = Bounds(128 * MIB, 16 * MIB)  # usual size 100 kB, or an error record per query; a line has up to 90 kB
SUMMARY_LOG = Bounds(MIB)  # usual size 4 kB
ACCURACY_LOG = Bounds(128 * MIB)  # or the size for a benchmark's responses; parsing takes five times as much memory
TRACE_LOG = Bounds(MAX_LOG_BYTES, MIB)
REQUESTS_LOG = Bounds(MAX_LOG_BYTES, MIB)  # a usual line has 300 bytes; with times of tokens, some per token
ENGINE_LOG = Bounds(MAX_LOG_BYTES)
LEDGER = Bounds(MAX_LOG_BYTES)
TIME_STAMP = Bounds(MIB)  # usual size some kB, with the authority's certificates
SIGNING_KEY = Bounds(64 * 1024)
TOKENIZER = Bounds(64 * MIB)  # tokenizer.json; the file of Llama 3.1 has 9 MB
# Limits for preparing a dataset: text in the columns that are read (CNN-DailyMail's training split: 1.3 GB), and rows.
SOURCE_FILE = Bounds(2048 * MIB)
PARQUET_ROWS = 10_000_000  # a small file may claim any number of rows; OpenOrca has 4.2 million

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
        fix: fix in the error.
        max_bytes: the largest file that is read.
        within: directory that symbolic links must not leave; None = no restriction.
        option: the option that named the file, for messages.

    Raises:
        InputError: If the file is unreadable, not a regular file, too large, or outside `within`.
    """
    name = f"{option} {path}".lstrip()
    try:
        if within is not None and not _is_within(path, within):
            raise InputError(
                f"{name} is a link to {path.resolve()}, outside its directory",
                "replace the link with a copy of the file",
            )
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links; ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        if isinstance(error, FileNotFoundError) and path.is_symlink():
            why = f"it is a link to {path.readlink()}, which does not exist"
        if isinstance(error, PermissionError):
            fix = "give this user read permission (chmod)"
        raise InputError(f"cannot read {name}: {why}", fix) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            kind = next((name for test, name in _KINDS if test(facts.st_mode)), "no file")
            raise InputError(f"cannot read {name}: it is {kind}, not a regular file", fix)
        if facts.st_size > max_bytes:
            raise InputError(
                f"cannot read {name}: it has {facts.st_size:,} bytes, required: at most {max_bytes:,}", fix
            )
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
    """Open a file of a run directory or tree, like `open_file`; the file must be inside its directory."""
    return open_file(path, fix, max_bytes=max_bytes, within=path.parent)


def read_whole(
    path: Path, fix: str, *, max_bytes: int = MAX_TEXT_BYTES, within: Path | None = None, option: str = ""
) -> bytes:
    """Return the content of a file.

    Raises:
        InputError: If `open_file` raises it, or the file grows beyond `max_bytes` while it is read.
    """
    with open_file(path, fix, max_bytes=max_bytes, within=within, option=option) as stream:
        try:
            size = os.fstat(stream.fileno()).st_size  # read() allocates the requested size
            content = stream.read(size + 1)
            if len(content) > size:
                content += stream.read(max_bytes - size)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}", fix) from error
    if len(content) > max_bytes:
        raise InputError(f"cannot read {path}: it has more than {max_bytes:,} bytes", fix)
    return content


def stand_in(content: bytes) -> str:
    """Return why a file has no content (empty, or a git-lfs pointer), as a sentence; "" if it may have content."""
    if content.startswith(GIT_LFS_POINTER):
        return "it is a git-lfs pointer, not the file itself"
    return "" if content else "it is empty"


def read_record(path: Path, fix: str, *, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Return the content of a file of a run directory or tree; the file must be inside its directory."""
    return read_whole(path, fix, max_bytes=max_bytes, within=path.parent)


def read_object(path: Path, fix: str, *, max_bytes: int = MAX_TEXT_BYTES, within: Path | None = None) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        InputError: If the file is unreadable, not JSON, not an object, or an object has a key twice.
    """
    return json_object(read_whole(path, fix, max_bytes=max_bytes, within=within), path, fix)


def json_object(content: bytes, path: Path, fix: str, *, twice: bool = False) -> dict[str, Any]:
    """Return the object in the content of `path`. With `twice` a key may occur twice, and the last value counts."""
    value = json_value(content, path, fix, twice=twice)
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object", fix)
    return value


def json_value(content: bytes, path: Path, fix: str, *, twice: bool = False) -> Any:
    """Return the JSON value in the content of `path`.

    Raises:
        InputError: If the content is not JSON, has a key twice, or has a number that is NaN or too large.
    """
    try:
        return _parse(content.decode(), dict if twice else _object)
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, AmbiguousError) else stand_in(content) or f"it is not JSON ({error})"
        raise InputError(f"{path} cannot be read: {why}", fix) from error


def read_as(path: Path, schema: type[Schema], fix: str, *, within: Path | None = None, strict: bool = False) -> Schema:
    """Return the JSON object in a file as a pydantic model.

    Args:
        strict: whether to refuse conversions of types, such as 1 to true.

    Raises:
        InputError: If `read_object` raises it, or a field is invalid.
    """
    from pydantic import ValidationError

    content = read_object(path, fix, within=within)
    try:
        if strict:  # validate in JSON mode, so that lists are accepted for tuples
            return schema.model_validate_json(json.dumps(content), strict=True)
        return schema.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}", fix) from error


def first_problem(error: "ValidationError") -> str:
    """Return the first problem and its field."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


class AmbiguousError(ValueError):
    """JSON that different parsers read differently."""


class KeyTwiceError(AmbiguousError):
    """An object that has a key twice."""

    def __init__(self, key: str) -> None:
        super().__init__(f"it has {key[:40]!r} twice")
        self.key = key


def _parse(text: str, as_object: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> Any:
    value = json.loads(text, object_pairs_hook=as_object, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # raises for a lone surrogate
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise KeyTwiceError(twice)
    return value


def _whole(word: str) -> int:
    """Return a whole number of 64 bits; longer words are refused before conversion."""
    if len(word) <= len(str(-(2**64))) and -(2**63) <= (value := int(word)) < 2**64:
        return value
    raise AmbiguousError(f"{word[:40]} is too large")


def _finite(word: str) -> float:
    if math.isfinite(value := float(word)):
        return value
    raise AmbiguousError(f"{word[:40]} is too large, or not a number")


def files_below(root: Path) -> list[Path]:
    """Return all files below a directory at any depth, in order, without following links."""
    files: list[Path] = []
    waiting = [os.fspath(root)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    files.append(Path(entry.path))
    return sorted(files)


def bounded_lines(path: Path, bounds: Bounds, fix: str) -> Iterator[tuple[int, bytes]]:
    """Yield number (from 1) and content (with line end) of each line of a file in a run directory.

    Raises:
        InputError: If the file is unreadable, or the file or a line is too long.
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
