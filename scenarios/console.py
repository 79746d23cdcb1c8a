"""Text output without markup, colors or control characters of a terminal."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from runs.wording import printable

if TYPE_CHECKING:  # `--help` and errors must not import rich.
    from rich.console import Console


def say(console: "Console", text: str) -> None:
    """Print a text to a console without markup."""
    console.print(printable(text, lines=True), highlight=False, soft_wrap=True, markup=False)


def tell(text: str) -> None:
    """Print a text to standard output without markup."""
    from scenarios.terminal import Terminal

    say(Terminal(), text)


def say_lines(console: "Console", lines: Iterable[str]) -> None:
    """Print lines without markup, those of a `StyledLine` with their style."""
    from rich.text import Text

    from compliance.judge.text import StyledLine

    for line in lines:
        shown = Text(line)
        if isinstance(line, StyledLine):
            shown.stylize(line.style, 0, line.length)
        console.print(shown, highlight=False, soft_wrap=True)


def wide_console(width: int) -> "Console":
    """Return a console as wide as the terminal, or `width` columns wide if the output is not a terminal."""
    from scenarios.terminal import Terminal

    console = Terminal()
    return console if console.is_terminal else Terminal(width=width)
