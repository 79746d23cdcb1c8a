"""Child processes of a command. They always end with the command.

A child leads its own process group, which includes its descendants; the group is killed at the end. If this process is
killed, a guardian (a shell that waits for the end of a pipe) kills the group.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

from runs.processes.interrupts import critical, ended, ended_within, ensured

GROUP_GONE_TIMEOUT_S = 5.0
_POLL_S = 0.005


@contextlib.contextmanager
def owned(child: "subprocess.Popen[bytes]", folder: str = "") -> Iterator[None]:
    """End a child's process group at the end of the block, or when this process ends. Enter this block in the critical
    block that starts the child.

    Args:
        folder: temporary folder of the group, which the guardian removes.
    """
    with contextlib.ExitStack() as at_the_end:
        try:
            at_the_end.enter_context(_guardian(child.pid, folder))
        except BaseException:
            end_group(child)
            raise
        at_the_end.enter_context(ensured(partial(end_group, child)))
        yield


@contextlib.contextmanager
def _guardian(group: int, folder: str) -> Iterator[None]:
    """Start a guardian process. It kills the group and removes its folder if this process ends within the block."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'read _ || { kill -9 "-$0"; [ -z "$1" ] || rm -rf -- "$1"; }', str(group), folder],
        env={},  # the guardian needs no variables, and must not see the API key of a server
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def end() -> None:
        process.kill()
        process.wait()
        if process.stdin:
            process.stdin.close()

    with ensured(end):
        yield


def end_group(child: "subprocess.Popen[bytes]") -> None:
    """Kill the remaining processes of a child's process group, and wait for their end."""
    end = time.monotonic() + GROUP_GONE_TIMEOUT_S
    while time.monotonic() < end:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            break
        child.poll()  # reaps the leader; otherwise the group would never end
        time.sleep(_POLL_S)
    ended_within(child, GROUP_GONE_TIMEOUT_S)


def run_program(
    command: Sequence[str | Path],
    *,
    timeout_s: float | None = None,
    message: bytes = b"",
    output: IO[bytes] | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program to its end, as `subprocess.run` does; a signal ends it.

    Args:
        message: text for its standard input.
        output: file for both of its outputs; by default the result has them.

    Raises:
        OSError: If the program cannot be started. TimeoutExpired: If it exceeded the time limit. Interrupted: By a
            signal.
    """
    with contextlib.ExitStack() as at_the_end:
        files = [at_the_end.enter_context(_unnamed_file()) for _ in ("stdin", "stdout", "stderr")]
        files[0].write(message)
        files[0].seek(0)
        with critical():
            process = subprocess.Popen(
                command,
                stdin=files[0],
                stdout=output or files[1],
                stderr=subprocess.STDOUT if output else files[2],
                cwd=cwd,
                env=env,
                start_new_session=True,
            )
            at_the_end.enter_context(owned(process))
        if not ended(process, float("inf") if timeout_s is None else timeout_s):
            assert timeout_s is not None
            raise subprocess.TimeoutExpired(process.args, timeout_s)
        texts = []
        for stream in files[1:]:
            stream.seek(0)
            texts.append(stream.read())
        return subprocess.CompletedProcess(process.args, process.returncode, *texts)


def _unnamed_file() -> IO[bytes]:
    """Open a temporary file, in memory if the system can, so that a full disk does not end a program."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("output"), "w+b")
    import tempfile

    return tempfile.TemporaryFile()
