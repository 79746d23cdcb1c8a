"""Lines at the end of a terminal that are replaced in place.

The cursor is always below the block, at the start of a line, and always visible. So a process that is killed leaves a
terminal that needs no repair. Nothing reads from the terminal or changes its settings, so a process in the background
is never stopped.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TextIO, cast

from rich.console import Console, ConsoleRenderable, RenderHook
from rich.control import Control
from rich.file_proxy import FileProxy
from rich.segment import ControlType
from rich.text import Text


def is_live(console: Console) -> bool:
    """Return whether lines can be replaced in the output of a console. `FORCE_COLOR` makes a pipe no terminal."""
    return console.is_terminal and not console.is_dumb_terminal and console.file.isatty()


class TerminalBlock(RenderHook):
    """A context manager that shows a block of lines below all other output.

    Other texts appear above the block: those of the console, and lines that code prints to standard output or error.
    The last lines stay at the end.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: list[Text] = []
        self._rows = 0  # rows above the cursor that belong to the block
        self._at_the_end = contextlib.ExitStack()

    def __enter__(self) -> "TerminalBlock":
        self._at_the_end.enter_context(self._restarted_after_stop())
        self._console.push_render_hook(self)
        self._at_the_end.callback(self._console.pop_render_hook)
        self._at_the_end.enter_context(self._redirected_output())
        return self

    def __exit__(self, *_: object) -> None:
        self._at_the_end.close()

    def show(self, lines: Sequence[Text]) -> None:
        """Replace the lines of the block. A low terminal shows the last ones, a narrow one the beginning of each."""
        self._lines = list(lines)
        if not self._is_in_background():
            self._console.print(Control())  # The hook draws the block.

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return an output with the block below it."""
        if self._is_in_background():
            return renderables
        width, height = self._console.size
        erased = _erased(min(self._rows, height - 1))
        lines = [_in_one_row(line, width) for line in self._lines[-max(1, height - 1) :]]
        self._rows = len(lines)
        return [erased, *renderables, *lines]

    def _is_in_background(self) -> bool:
        """Return whether this process is in the background of its terminal."""
        try:
            return os.tcgetpgrp(self._console.file.fileno()) != os.getpgrp()
        except (OSError, ValueError):  # The terminal belongs to another session.
            return False

    @contextlib.contextmanager
    def _redirected_output(self) -> Iterator[None]:
        """Print lines that other code writes to standard output and error above the block."""
        with contextlib.ExitStack() as redirections:
            proxies = []
            if sys.stderr.isatty():
                proxies.append(FileProxy(self._console, sys.stderr))
                redirections.enter_context(contextlib.redirect_stderr(cast("TextIO", proxies[-1])))
            proxies.append(FileProxy(self._console, sys.stdout))
            redirections.enter_context(contextlib.redirect_stdout(cast("TextIO", proxies[-1])))
            yield
            for proxy in proxies:
                proxy.flush()

    @contextlib.contextmanager
    def _restarted_after_stop(self) -> Iterator[None]:
        """Draw the block anew after ^Z and `fg`, because the shell has written below it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def forget_rows(_number: int, _frame: object) -> None:
            self._rows = 0

        before = signal.signal(signal.SIGCONT, forget_rows)
        try:
            yield
        finally:
            signal.signal(signal.SIGCONT, before)


def _in_one_row(line: Text, width: int) -> Text:
    """Return a line without the last column, after which some terminals begin a new row."""
    fitted = line.copy()
    fitted.no_wrap = True
    fitted.truncate(max(1, width - 1))
    return fitted


def _erased(rows: int) -> Control:
    """Return the codes that erase the line of the cursor and the rows above it. The cursor moves to the first one."""
    erase = (ControlType.ERASE_IN_LINE, 2)
    above = [(ControlType.CURSOR_UP, 1), erase] * rows
    return Control(ControlType.CARRIAGE_RETURN, erase, *above)
