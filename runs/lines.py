"""Lines of a file of unknown origin: numbered, and never more than a given length in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path

from runs.errors import InputError


def bounded_lines(
    path: Path, max_bytes: int, too_long: Callable[[int], InputError], fix: str
) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line with its end).

    Args:
        path: the file.
        max_bytes: the longest line that is read.
        too_long: makes the error for a longer line, of the line's number.
        fix: for a file that cannot be read.

    Raises:
        InputError: the file cannot be read, or a line is too long.
    """
    try:
        with path.open("rb") as stream:
            number = 0
            while line := stream.readline(max_bytes + 1):
                number += 1
                if len(line) > max_bytes:
                    raise too_long(number)
                yield number, line
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", fix) from error
