"""Programs that the bench starts: its own, which tell what they measured, and `vllm serve` beside the legs."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from runs.environment import HARNESS_ROOT, processor_s
from runs.errors import ExecutionError
from runs.record.manifest import LegPlan

_OWN = Path(sys.executable).with_name("vllm")
VLLM = str(_OWN) if _OWN.exists() else "vllm"  # the program of this environment
START_TIMEOUT_S = 300.0
# What the program has under another name, or not at all; the harness gives its own engine these for its own sake.
_NOT_OF_THE_PROGRAM = ("disable_log_stats", "enable_log_requests")
# What an engine in a leg's process does not do either: it makes no text of answers, and writes no line a request.
_AS_IN_A_LEG = ("--enable-scale-out", "--disable-uvicorn-access-log")


def measure(module: str, *arguments: object, log: Path) -> Any:
    """Run `python -m scripts.bench.MODULE ARGUMENTS…` and return the JSON of its last line.

    Args:
        module: name within this package.
        log: file for everything the program says besides.

    Raises:
        ExecutionError: the program failed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, "-m", f"scripts.bench.{module}", *map(str, arguments)],
            cwd=HARNESS_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
            check=False,
        )
        stream.write(done.stdout)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise ExecutionError(f"scripts.bench.{module} ended with code {done.returncode}", f"see {log}")
    return orjson.loads(lines[-1])


def tell(measured: Any) -> None:
    """What a program ends with: its measurement, on a line of its own."""
    print(orjson.dumps(measured).decode(), flush=True)


@dataclass(frozen=True)
class RunningServer:
    """A `vllm serve` that answers."""

    url: str
    front_end: psutil.Process

    def cpu_s(self) -> dict[str, float]:
        """Processor time so far, of its front end and of the engine's core."""
        core = self.front_end.children(recursive=True)
        parts = {"front end of vllm serve": [self.front_end], "its engine core": core}
        return {name: processor_s(processes) for name, processes in parts.items()}


@contextlib.contextmanager
def vllm_serve(folder: Path, model: Path, plan: LegPlan, *options: str) -> Iterator[RunningServer]:
    """Start `vllm serve` with the options of an engine in a leg's process; its process group ends on leaving.

    Raises:
        ExecutionError: it did not come up.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    flags = [word for name, value in plan.engine_options.items() for word in _flag(name, value)] + [*_AS_IN_A_LEG]
    command = [VLLM, "serve", str(model), "--host", "127.0.0.1", "--port", str(port), *flags, *options]
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
        yield RunningServer(f"http://127.0.0.1:{port}", psutil.Process(process.pid))
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
