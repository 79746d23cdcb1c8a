"""A console of the harness on a screen without a terminal device."""

import io

from scenarios.terminal import Terminal
from tests.support.terminals.screen import Screen


class FakeTerminal(io.StringIO):
    """An output that claims to be a terminal, with the screen that it shows."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.screen = Screen(columns, rows)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.screen.feed(text.replace("\n", "\r\n").encode())
        return super().write(text)


def terminal(columns: int = 40, rows: int = 10) -> tuple[Terminal, Screen]:
    """Return a console of a size, and its screen."""
    file = FakeTerminal(columns, rows)
    return Terminal(file=file, force_terminal=True, width=columns, height=rows), file.screen
