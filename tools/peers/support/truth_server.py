"""A scripted server: truth_server.c sends tokens at scripted times, and logs the times of what it did."""

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from runs.errors import ExecutionError, SetupError
from runs.processes.interrupts import ended_within, ensured

SOURCE = Path(__file__).with_suffix(".c")
COMPILERS = ("cc", "gcc", "clang")
END_TIMEOUT_S = 10.0
PRIORITY = -10  # a busy client must not delay the server; needs a privilege


@dataclass(frozen=True)
class LoggedCompletion:
    """A line of the server's log. Times are in ns of CLOCK_MONOTONIC."""

    read: int  # time at which the request was complete
    first: int  # time of the write of the first token
    last: int  # time of the write of the last token
    late: int  # largest delay of a token against the script
    tokens: int


def find_compiler() -> list[str] | None:
    """Return the command of the C compiler: the variable CC, or the first compiler on PATH."""
    if chosen := os.environ.get("CC"):
        return shlex.split(chosen)
    return next(([path] for name in COMPILERS if (path := shutil.which(name))), None)


def build_server(folder: Path) -> Path:
    """Compile the server into a folder; return the program.

    Raises:
        SetupError: If there is no compiler, or it fails.
    """
    compiler = find_compiler()
    if compiler is None:
        raise SetupError(
            f"no C compiler: {', '.join(COMPILERS)} are not on PATH", "install gcc, or set CC to a C compiler"
        )
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / SOURCE.stem
    command = [*compiler, "-std=gnu11", "-O2", "-o", str(program), str(SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SetupError(f"CC={compiler[0]}: {error.strerror}", "set CC to a C compiler") from error
    if done.returncode:
        raise SetupError(f"{shlex.join(command)} failed: {done.stderr.strip()}", "set CC to a C compiler for Linux")
    return program


@contextlib.contextmanager
def truth_server(program: Path, log: Path, ttft_ms: float, tpot_ms: float) -> Iterator[str]:
    """Start the server and yield its URL. At the end of the block, it writes its log and ends."""
    command = [str(program), str(ttft_ms), str(tpot_ms), str(log)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    stdin = server.stdin
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, server.pid, PRIORITY)

    def end() -> None:
        stdin.close()
        if not ended_within(server, END_TIMEOUT_S):
            server.kill()

    with ensured(end):
        url = server.stdout.readline().strip()
        if not url:
            raise ExecutionError(f"{program} did not start", "read its message above")
        yield url


def read_log(log: Path) -> list[LoggedCompletion]:
    """Return the completions of a server that has ended, in the order of their requests."""
    return [LoggedCompletion(**orjson.loads(line)) for line in log.read_bytes().splitlines()]
