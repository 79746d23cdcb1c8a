"""Programs that tools.peers starts: its own modules, which print measurements, and `vllm serve`."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from runs.errors import ExecutionError
from runs.harness import HARNESS_ROOT
from runs.record.manifest import RunPlan

_OWN = Path(sys.executable).with_name("vllm")
VLLM = str(_OWN) if _OWN.exists() else "vllm"  # program of this environment
START_TIMEOUT_S = 300.0
# Engine options of the harness that have another name in `vllm serve`, or do not exist there.
_NOT_OF_THE_PROGRAM = ("disable_log_stats", "enable_log_requests")
# Like an engine in a run's process: no text of responses, and no log line per request.
_AS_IN_A_RUN = ("--enable-scale-out", "--disable-uvicorn-access-log")


def measure(module: str, *arguments: object, log: Path) -> Any:
    """Run `python -m tools.peers.MODULE ARGUMENTS…`, and return the JSON of its last line.

    Args:
        log: file for the rest of its output.

    Raises:
        ExecutionError: If the program failed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream:
        command = [sys.executable, "-m", f"tools.peers.{module}", *map(str, arguments)]
        done = subprocess.run(command, cwd=HARNESS_ROOT, stdout=subprocess.PIPE, stderr=stream, check=False)
        stream.write(done.stdout)
    if done.returncode != 0:
        raise ExecutionError(f"tools.peers.{module} ended with code {done.returncode}", f"see {log}")
    return orjson.loads(done.stdout.splitlines()[-1]) if done.stdout else None


@contextlib.contextmanager
def vllm_serve(folder: Path, model: Path, plan: RunPlan, *more: str) -> Iterator[str]:
    """Start `vllm serve` with the options of an engine in a run's process and with `more`, and yield its URL. End its
    process group at the end of the block.

    Raises:
        ExecutionError: If it did not start.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    flags = [word for name, value in plan.engine_options.items() for word in _flag(name, value)]
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [VLLM, "serve", str(model), "--host", "127.0.0.1", "--port", str(port), *flags, *_AS_IN_A_RUN, *more],
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
                raise ExecutionError("vllm serve did not start", f"see {log}")
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
