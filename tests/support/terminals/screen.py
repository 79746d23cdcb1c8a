"""The screen of a terminal: what a user sees after some output. It accepts only the codes that the harness may use."""

import re

# Colors, the erasure of a line, movements upwards, and the visibility of the cursor.
_PART = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|(\r)|(\n)|([^\x00-\x1f\x7f]+)")


class Screen:
    """A terminal of some columns and rows. Lines that leave it at the top are kept in `history`."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.history: list[str] = []
        self.is_cursor_visible = True
        self._lines: list[list[str]] = [[]]
        self._row = self._column = 0
        self._rest = b""

    @property
    def lines(self) -> list[str]:
        """The rows of the screen from the top to the cursor."""
        return ["".join(line).rstrip() for line in self._lines]

    @property
    def text(self) -> str:
        """All lines, with those that left the screen."""
        return "\n".join([*self.history, *self.lines])

    @property
    def is_cursor_on_an_empty_line(self) -> bool:
        return self._column == 0 and not self.lines[self._row]

    def feed(self, output: bytes) -> None:
        """Show some output.

        Raises:
            ValueError: If it contains an unexpected control code.
        """
        output = self._rest + output
        cut = len(output.decode(errors="ignore").encode())  # a character may be incomplete
        text, self._rest = output[:cut].decode(), output[cut:]
        if "\x1b" in text[-12:] and not re.search(r"\x1b\[[?\d;]*[A-Za-z][^\x1b]*\Z", text):
            text, _, code = text.rpartition("\x1b")  # so may a code
            self._rest = f"\x1b{code}".encode() + self._rest
        place = 0
        while place < len(text):
            part = _PART.match(text, place)
            if part is None:
                raise ValueError(f"unexpected output {text[place : place + 20]!r}")
            self._apply(part)
            place = part.end()

    def _apply(self, part: re.Match[str]) -> None:
        parameters, code, is_return, is_feed, text = part.groups()
        if is_return:
            self._column = 0
        elif is_feed:
            self._next_row()
        elif text:
            for character in text:
                self._write(character)
        elif code == "A":
            self._row = max(0, self._row - int(parameters or 1))
        elif code == "K" and parameters == "2":
            self._lines[self._row] = []
        elif code == "K" and parameters in ("", "0"):
            del self._lines[self._row][self._column :]
        elif code in "hl" and parameters == "?25":
            self.is_cursor_visible = code == "h"
        elif code != "m":
            raise ValueError(f"unexpected code {part.group()!r}")

    def _write(self, character: str) -> None:
        if self._column == self.columns:
            self._column = 0
            self._next_row()
        line = self._lines[self._row]
        line.extend(" " * (self._column + 1 - len(line)))
        line[self._column] = character
        self._column += 1

    def _next_row(self) -> None:
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append([])
        if len(self._lines) > self.rows:
            self.history.append("".join(self._lines.pop(0)).rstrip())
            self._row -= 1
