"""A line on a terminal that names what a command waits for."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from runs.wording import printable
from scenarios.live.terminal_block import TerminalBlock, is_live


@contextlib.contextmanager
def waiting(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Show a text on a terminal until the end of the block.

    Yields:
        A function that replaces the text.
    """
    if not is_live(console):
        yield lambda _: None
        return
    with TerminalBlock(console) as block:

        def show(text: str) -> None:
            block.show([Text(f"{printable(text)} ...")])

        show(text)
        try:
            yield show
        finally:
            block.show([])
