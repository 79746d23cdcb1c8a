"""Disk space that a process reserves for the files that it writes at its end."""

import errno
import os
import tempfile
from pathlib import Path
from typing import IO, Self

from runs.errors import SetupError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
FREE_DISK_SPACE = "free disk space and rerun"


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error means that a disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in _DISK_FULL


class DiskReserve:
    """Reserved space on the disk of a directory.

    The reserve is a file without a name, so the system frees it if the process is killed. File systems that cannot
    reserve space get no reserve.
    """

    def __init__(self, folder: Path, size_bytes: int) -> None:
        """Reserve the space.

        Raises:
            SetupError: If the disk has too little free space.
        """
        self._file: IO[bytes] | None = None
        try:
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (`release` closes it)
            os.posix_fallocate(self._file.fileno(), 0, size_bytes)
        except OSError as error:
            self.release()
            if is_disk_full(error):
                raise SetupError(
                    f"the disk of {folder} is full: {size_bytes >> 20} MiB cannot be reserved for the last files of "
                    "the run",
                    FREE_DISK_SPACE,
                ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Free the reserved space. A second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None
