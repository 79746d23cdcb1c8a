"""Output for people, without markup, colors, line breaks or control characters of a terminal."""

from typing import TYPE_CHECKING

from runs.wording import printable

if TYPE_CHECKING:  # `--help` and errors are printed without it
    from rich.console import Console


def say(console: "Console", text: str) -> None:
    """One line as it is."""
    console.print(printable(text, lines=True), highlight=False, soft_wrap=True, markup=False)


def tell(text: str) -> None:
    """The same, on the standard output."""
    from scenarios.terminal import Terminal

    say(Terminal(), text)


def wide_console(width: int) -> "Console":
    """As wide as the terminal, or so many columns where there is none to ask."""
    from scenarios.terminal import Terminal

    console = Terminal()
    return console if console.is_terminal else Terminal(width=width)
