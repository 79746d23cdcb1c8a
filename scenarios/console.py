"""Output for people, without markup, colours, line breaks or control characters of a terminal."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from runs.wording import printable

if TYPE_CHECKING:  # `--help` and errors are printed without it
    from rich.console import Console


_shown = False


@contextlib.contextmanager
def engine_log_shown(level: int) -> Iterator[None]:
    """Within: the engine's log is shown, too (1), with its debug messages (2)."""
    global _shown
    variable = "VLLM_LOGGING_LEVEL"
    before = os.environ.get(variable)
    _shown = level > 0
    if level > 1:
        os.environ[variable] = "DEBUG"
    try:
        yield
    finally:
        _shown = False
        if before is not None:
            os.environ[variable] = before
        elif level > 1:
            del os.environ[variable]


def is_verbose() -> bool:
    """Whether -v was given: details, and the engine's log."""
    return _shown


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
