"""The display of a run: a block that is replaced on a terminal, a plain line every ten seconds elsewhere."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from runs.record.progress import Progress
from scenarios.console import say
from scenarios.live.log_tail import LogTail
from scenarios.live.plain_lines import plain_lines
from scenarios.live.run_block import block_lines, signs_of
from scenarios.live.run_view import RunFollower, RunView
from scenarios.live.terminal_block import TerminalBlock, is_live

MIN_FRAME_S = 0.25  # minimum time between two updates of a block
PLAIN_INTERVAL_S = 10.0


class Display:
    """A context manager that shows each heartbeat that it is called with.

    Args:
        started_s: Start of the command on the monotonic clock. Default: now.
        followed: Log whose new lines are shown too.
        now_s: Monotonic clock.
        amended: Returns the view of a heartbeat with changes.
        plain: Returns the plain lines of a view; without lines none is printed.
        plain_interval_s: Time between the plain lines.
    """

    def __init__(
        self,
        console: Console,
        follower: RunFollower,
        started_s: float | None = None,
        *,
        followed: Path | None = None,
        now_s: Callable[[], float] = time.monotonic,
        amended: Callable[[RunView, Progress], RunView] = lambda view, _: view,
        plain: Callable[[RunView], list[str]] = plain_lines,
        plain_interval_s: float = PLAIN_INTERVAL_S,
    ) -> None:
        self._console, self._follower, self._now_s = console, follower, now_s
        self._amended, self._plain, self._plain_interval_s = amended, plain, plain_interval_s
        self._tail = LogTail(followed) if followed else None
        self._block = TerminalBlock(console) if is_live(console) else None
        self._at_the_end = contextlib.ExitStack()
        self._last_plain = now_s()
        self._started_s = self._last_plain if started_s is None else started_s
        self._view: RunView | None = None
        self._drawn_s = -MIN_FRAME_S

    def __enter__(self) -> "Display":
        if self._block:
            self._at_the_end.enter_context(self._block)
        return self

    def __exit__(self, *_: object) -> None:
        self._show_log()
        if self._block:
            self._block.show([])
        self._at_the_end.close()

    def __call__(self, progress: Progress) -> None:
        now_s = self._now_s()
        self._show_log()
        view = self._amended(self._follower.view(progress, now_s - self._started_s, now_s), progress)
        is_new = self._view is None or self._view.doing != view.doing
        self._view = view
        if self._block:
            self._draw(view, at_once=is_new)
        elif (lines := self._plain(view)) and (is_new or now_s - self._last_plain >= self._plain_interval_s):
            self._last_plain = now_s
            say(self._console, "  ".join(lines))

    def scored(self, done: int, total: int) -> None:
        """Show the number of scored responses on a terminal."""
        if self._block and self._view:
            doing = f"scoring: {done:,} of {total:,} responses"
            self._draw(replace(self._view, phase="done", doing=doing, step="verification"), at_once=False)

    def _draw(self, view: RunView, *, at_once: bool) -> None:
        now_s = self._now_s()
        if self._block and (at_once or now_s - self._drawn_s >= MIN_FRAME_S):
            self._drawn_s = now_s
            console = self._console
            self._block.show(block_lines(view, console.width - 1, console.height - 1, signs_of(console)))

    def _show_log(self) -> None:
        for line in self._tail.lines() if self._tail else ():
            say(self._console, f"| {line}")
