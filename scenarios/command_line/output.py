"""Standard output that outlives its reader.

A leg is worth more than what is said of it: `main.py … | head`, a closed terminal or a full disk behind the standard
output must not end it. What cannot be written is dropped from then on; the files of the run are complete all the same.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

READER_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)  # a pipe, a terminal, a descriptor that was closed


class SteadyStream:
    """A text stream whose writes never fail."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None  # why nothing is written any more

    def write(self, text: str) -> int:
        if self.error is None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._give_up(error)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self.error is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.error = error
        # What is buffered goes there too, instead of failing once more when Python ends.
        with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def steady_output() -> Iterator[SteadyStream]:
    """Within: standard output and error never fail, and write what their encoding lacks as \\u escapes."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    output = SteadyStream(sys.stdout)
    sys.stdout, sys.stderr = output, SteadyStream(sys.stderr)
    try:
        yield output
    finally:
        output.flush()
        sys.stdout, sys.stderr = before
