"""The blocks of runs in progress, for repeated snapshots on a terminal."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from scenarios.live.run_block import block_lines, signs_of
from scenarios.live.run_view import RunFollower
from scenarios.status.run_status import RunStatus
from scenarios.status.snapshot import StatusSnapshot, lines, view_of

INDENT = 4  # columns before a block
MIN_ROWS = 2


class RunBlocks:
    """The blocks of all runs, with the history of their open queries since the first snapshot."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._followers: dict[Path, RunFollower] = {}

    def lines(self, snapshot: StatusSnapshot) -> list[Text]:
        """Return the text of a snapshot with a block for each run whose queries are measured now."""
        in_progress = sum(run.alive for run in snapshot.runs)
        rows = max(MIN_ROWS, self._console.height // max(1, in_progress) - MIN_ROWS)

        def block_of(run: RunStatus) -> list[Text]:
            view = view_of(run, self._followers.setdefault(run.root, RunFollower("")))
            if view is None:
                return []
            return block_lines(view, self._console.width - INDENT, rows, signs_of(self._console))

        return lines(snapshot, block_of)
