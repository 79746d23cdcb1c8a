"""`vllm serve` with the options that the harness gives the engine in a leg's process, kept alive beside the legs."""

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from runs.environment import HARNESS_ROOT
from runs.errors import ExecutionError
from sut.endpoint.served import words

from .legs import EnginePlan

START_TIMEOUT_S = 300.0
# What the program has under another name, or not at all; the harness gives its own engine these for its own sake.
_NOT_OF_THE_PROGRAM = ("disable_log_stats", "enable_log_requests")


@contextlib.contextmanager
def vllm_serve(folder: Path, model: Path, plan: EnginePlan) -> Iterator[str]:
    """Start the server, and end its process group on leaving; gives its URL.

    Raises:
        ExecutionError: it did not come up.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    flags = [word for name, value in plan.options.items() for word in _flag(name, value)]
    command = words(f"vllm serve {model} --host 127.0.0.1 --port {port}") + flags
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=HARNESS_ROOT,
            env={**os.environ, **plan.environment},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + START_TIMEOUT_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > end:
                raise ExecutionError("vllm serve did not come up", f"see {log}")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _flag(name: str, value: object) -> list[str]:
    flag = name.replace("_", "-")
    if value is None or name in _NOT_OF_THE_PROGRAM:
        return []
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", json.dumps(value) if isinstance(value, dict | list) else str(value)]
