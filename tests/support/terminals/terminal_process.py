"""A process on a terminal of its own."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import ROOT
from tests.support.terminals.screen import Screen

ANY_COLORS = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES")


class TerminalProcess:
    """A process whose input and outputs are a terminal, which a thread reads.

    Args:
        command: Arguments of Python.
    """

    def __init__(
        self,
        command: Sequence[object],
        folder: Path,
        columns: int,
        rows: int,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.screen = Screen(columns, rows)
        self.output = b""
        self.frames: list[list[str]] = []  # the screen after each read
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        inherited = {name: value for name, value in os.environ.items() if name not in ANY_COLORS}
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=folder,
            env={**inherited, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **(environment or {})},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, columns: int, rows: int) -> None:
        """Change the size. The screen keeps its lines, as xterm does."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.columns, self.screen.rows = columns, rows

    def type(self, text: str) -> None:
        """Type on the keyboard; `\\x03` is ^C."""
        os.write(self._master, text.encode())

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        code = self.process.wait()
        self._reader.join()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join()
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                output = os.read(self._master, 1 << 16)
            except OSError:  # The last process closed the terminal.
                return
            if not output:
                return
            self.output += output
            self.screen.feed(output)
            self.frames.append(self.screen.lines)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
