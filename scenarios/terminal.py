"""The console of every command. Texts from files cannot control the terminal."""

from collections.abc import Iterable
from typing import IO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from runs.wording import printable
from scenarios.verbosity import is_verbose


class Terminal(Console):
    """A console of rich that escapes control characters in texts, as `\\x1b`. Colors and movements of rich stay."""

    @property
    def file(self) -> IO[str]:
        """The stream for output. A live display replaces standard output with a proxy of the escaping stream."""
        stream = super().file
        return cast("IO[str]", getattr(stream, "rich_proxied_file", stream))

    @file.setter
    def file(self, stream: IO[str]) -> None:
        self._file = stream

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of the output, with control characters in texts escaped."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text, lines=True), segment.style)


def consoles_of_runs(console: Console) -> tuple[Console, Console]:
    """Return the consoles of the display of a run and of the output of the runs, of which one is shown.

    The output of a run would disturb the table of a bench. With -v, it replaces the display.
    """
    quiet: Console = Terminal(quiet=True, force_terminal=False)
    return (quiet, console) if is_verbose() else (console, quiet)
