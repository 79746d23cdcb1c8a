"""A server that the leg starts: in the leg's process group, so that it ends with the leg."""

import asyncio
import contextlib
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from runs.environment import module_path
from runs.errors import ExecutionError, HarnessError, InputError, SetupError
from sut.endpoint.address import Access, ServerAddress
from sut.endpoint.questions import ask
from sut.vllm import command as command_of_vllm

POLL_S = 0.5
STOP_TIMEOUT_S = 10.0
LAST_LINES = 3


def words(command: str) -> list[str]:
    """A `--serve` command as the program and its arguments; `vllm` is that of this environment.

    Raises:
        InputError: no command, or an open quotation mark.
    """
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--serve {command!r}: {error}", "quote it as a shell would") from error
    if not found:
        raise InputError("--serve: the command is empty", 'write, for example, --serve "vllm serve MODEL"')
    if found[0] == command_of_vllm.PROGRAM and command_of_vllm.is_needed():
        return [sys.executable, "-m", command_of_vllm.__name__, *found[1:]]
    return found


def _environment() -> dict[str, str]:
    """Programs and modules of this environment come first."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return {**os.environ, "PATH": path, **module_path()}


@dataclass(eq=False)
class ServedServer:
    """The process of one `--serve` command."""

    command: str  # not given to a shell
    log: Path  # takes its output
    address: ServerAddress  # where it will listen
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    async def start(self, access: Access, *, owner: bool) -> None:
        """Start it and wait until it answers; the leg's own time limit bounds the wait.

        Args:
            owner: whether to start it; the other clients of the same server only wait.

        Raises:
            SetupError: something else answers there already, or the process ends.
        """
        if owner:
            await self._launch(access)
        while not await self._answers(access):
            try:
                self.check()
            except ExecutionError as error:
                raise SetupError(error.message, error.fix) from error
            await asyncio.sleep(POLL_S)

    async def _launch(self, access: Access) -> None:
        if await self._answers(access):
            raise SetupError(
                f"--serve: a server already answers at {self.address.url}", "end it, or leave --serve out to use it"
            )
        command = words(self.command)
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=_environment(),
                )
        except OSError as error:
            raise SetupError(f"--serve {command[0]}: {error.strerror}", "name an existing program") from error

    async def _answers(self, access: Access) -> bool:
        try:
            return (await ask(self.address, access, "/v1/models")).status == 200
        except HarnessError:
            return False

    def check(self) -> None:
        """Raise ExecutionError if the process has ended."""
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            raise ExecutionError(f"the server ended with status {code}: {self._last_words()}", f"see {self.log.name}")

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            return " / ".join([line.strip() for line in lines if line.strip()][-LAST_LINES:])
        return "no output"

    async def stop(self) -> None:
        """End the process: SIGTERM, then SIGKILL."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
