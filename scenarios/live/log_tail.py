"""The new lines of a growing log."""

from pathlib import Path

from rich.text import Text

from runs.wording import printable


class LogTail:
    """A reader of the new lines of a growing file, which escapes control characters."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = ""

    def lines(self) -> list[str]:
        """Return the lines that were completed since the last call; for a line rewritten in place, its last form."""
        try:
            with self._path.open("rb") as log:
                log.seek(self._read)
                new = log.read()
        except OSError:
            return []
        self._read += len(new)
        *complete, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        plain = (Text.from_ansi(line.rstrip("\r").rpartition("\r")[2]).plain for line in complete)
        return [printable(line.replace("\t", " ")) for line in plain]
