"""Writing files atomically, and hashing files."""

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

from runs.files.reading import MAX_LOG_BYTES, open_file
from runs.processes.interrupts import critical


def write_atomic(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content`: temporary file in the same folder, fsync, rename, fsync of the folder.

    Pipes and devices are written directly.

    Raises:
        OSError: If the path is a directory, a pipe without a reader, or cannot be written; it names the file.
    """
    data = content.encode() if isinstance(content, str) else content
    if is_special(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with critical():
        try:
            temporary.unlink(missing_ok=True)  # left by a killed writer, or a planted link
            with temporary.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
            _sync_folder(path.parent)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename is None:  # the error of a full disk has no file name
                error.filename = str(path)
            raise


def append(path: Path, lines: bytes) -> None:
    """Add whole lines to a file that only grows.

    Raises:
        OSError: If the path is a link, a directory or a pipe without a reader, or cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    with os.fdopen(descriptor, "ab") as stream:
        stream.write(lines)
        stream.flush()
        os.fsync(stream.fileno())
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename in it survives a loss of power."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # Ignore only two errors: the file system cannot sync directories, or the directory is unreadable.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise


def is_special(path: Path) -> bool:
    """Return whether `path` is a pipe, a device or a directory. Links count only if they belong to the system."""
    in_system = path.absolute().parent in (Path("/dev"), Path("/dev/fd"))
    return path.exists() and (in_system or not (path.is_file() or path.is_symlink()))


def remove_temporary(folder: Path) -> None:
    """Remove the temporary files of killed writers. No writer may be active in the folder."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    import orjson

    write_atomic(path, orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def sha256_of(path: Path, *, max_bytes: int = MAX_LOG_BYTES) -> str:
    """Return the SHA-256 of a regular file, in hexadecimal.

    Raises:
        InputError: If the file is unreadable, a pipe or a device, or larger than `max_bytes`.
    """
    with open_file(path, "give a readable file", max_bytes=max_bytes) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
