"""A server that a command starts for its runs and stops afterwards.

The server leads its own process group, which always ends with the command. Its output goes to a log.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from runs.errors import ExecutionError, HarnessError, SetupError
from runs.processes.child import owned
from runs.processes.interrupts import critical, pause
from runs.record.engines.engine_stages import end_of
from sut.http.address import Access, ServerAddress
from sut.http.refusals import is_success
from sut.http.server import LAST_BYTES, LAST_LINES, ask, words

POLL_S = 0.5
STOP_TIMEOUT_S = 10.0
_HEALTH = "/health"


class StartedServer:
    """A server's process.

    Args:
        command: Command line, which is split into words; no shell runs it.
        address: Address on which the server listens.
        log: File for its output; a restarted server appends to it.
    """

    def __init__(self, command: str, address: ServerAddress, access: Access, log: Path) -> None:
        self.command, self.address, self._access, self._log = command, address, access, log
        self._process: subprocess.Popen[bytes] | None = None
        self.start_s = 0.0  # from the start of the process to the first response

    @contextlib.contextmanager
    def running(self, timeout_s: float, waiting: Callable[[float], None] = lambda _: None) -> Iterator["StartedServer"]:
        """Start the server, wait until it responds, and end it at the end of the block: SIGTERM, then SIGKILL.

        Args:
            timeout_s: Maximum time until the server responds.
            waiting: Called with the waited seconds.

        Raises:
            SetupError: If another server uses the address, the program cannot be started, or the server ends or does
                not respond in time.
            ExecutionError: If the server ends within the block.
        """
        if self._responds():
            raise SetupError(f"--serve: another server already uses {self.address.url}", "stop that server")
        with contextlib.ExitStack() as at_the_end:
            with critical():
                process = self._process = self._launch()
                at_the_end.enter_context(owned(process))
            began_s = time.monotonic()
            while not self._responds():
                self.check()
                if (waited_s := time.monotonic() - began_s) > timeout_s:
                    raise SetupError(
                        f"--serve {words(self.command)[0]}: no response at {self.address.url} after {timeout_s:.0f} s; "
                        f"end of its output: {self._last_lines()}",
                        f"read {self._log}, or raise --engine-start-timeout-s",
                    )
                waiting(waited_s)
                pause(POLL_S)
            self.start_s = time.monotonic() - began_s
            try:
                yield self
            except HarnessError:
                self.check()  # the end of the server explains the failure
                raise
            self.check()
            self._stop(process)

    def check(self) -> None:
        """Raise SetupError if the process has ended before it responded, ExecutionError if it has ended later."""
        code = self._process.poll() if self._process is not None else None
        if code is None:
            return
        kind = ExecutionError if self.start_s else SetupError
        raise kind(
            f"--serve {words(self.command)[0]}: the server ended with status {code}: {self._last_lines()}",
            f"read {self._log}",
        )

    def _launch(self) -> "subprocess.Popen[bytes]":
        command = words(self.command)
        # Programs of this Python environment take precedence.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        try:
            with self._log.open("ab") as log:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PATH": path},
                    start_new_session=True,
                )
        except OSError as error:
            raise SetupError(f"--serve {command[0]}: {error.strerror}", "give an existing program") from error

    def _responds(self) -> bool:
        return asyncio.run(self._is_ready())

    async def _is_ready(self) -> bool:
        for path in (self.address.models_path, _HEALTH):
            with contextlib.suppress(HarnessError):
                if is_success((await ask(self.address, self._access, path)).status):
                    return True
        return False

    def _last_lines(self) -> str:
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = [line.strip() for line in end_of(self._log, LAST_BYTES).split("\n") if line.strip()]
        return " / ".join(lines[-LAST_LINES:]) or "no output"

    def _stop(self, process: "subprocess.Popen[bytes]") -> None:
        """Ask the group to end. `owned` kills the processes that remain."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        end_s = time.monotonic() + STOP_TIMEOUT_S
        while process.poll() is None and time.monotonic() < end_s:
            pause(0.05)
