"""Servers of a stage: `vllm serve` on the GPU; in a rehearsal, the scripted server of tools.peers."""

import contextlib
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.errors import ExecutionError
from runs.processes.interrupts import pause
from tools.gpu.commands import POLL_S, STOP_S, process_group
from tools.gpu.inputs import LONGEST, Setting, large_model
from tools.gpu.stage import GpuStage, OutOfTimeError
from tools.peers.support.truth_server import build_server, truth_server

MODEL = "llama"  # name of the model at each server
# unpack.py installs no entry points, so that the program `vllm` is missing; this module is `vllm serve`.
_VLLM_SERVE = (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
_WITHOUT_CACHE = ("--no-enable-prefix-caching", "--enable-prompt-tokens-details", "--disable-uvicorn-access-log")
REHEARSED_TTFT_MS, REHEARSED_TPOT_MS = 10.0, (1.0, 2.0)  # of the first and of a further server


@dataclass(frozen=True)
class ServerOfStage:
    """A started server."""

    url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def responds(self) -> bool:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=2)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/v1/models")
            return connection.getresponse().status == 200
        return False


@contextlib.contextmanager
def servers(stage: GpuStage, settings: list[Setting], **arguments: Any) -> Iterator[list[str]]:
    """Start a server for each setting, together, and yield their URLs. They end with the block.

    Args:
        arguments: further engine arguments of all servers.

    Raises:
        ExecutionError: If a server ended.
        OutOfTimeError: If the time of the stage ended before all servers responded.
    """
    with contextlib.ExitStack() as at_the_end:
        if stage.options.dummy:
            program = build_server(stage.work / "server")
            yield [
                at_the_end.enter_context(truth_server(program, stage.folder / f"{place}.log", REHEARSED_TTFT_MS, tpot))
                for place, (_, tpot) in enumerate(zip(settings, REHEARSED_TPOT_MS, strict=False))
            ]
            return
        started = [at_the_end.enter_context(_vllm_server(stage, setting, arguments)) for setting in settings]
        seconds = _wait(stage, started)
        stage.say(f"   {len(started)} × vllm serve responded after {seconds:.0f} s")
        yield [server.url for server in started]


@contextlib.contextmanager
def _vllm_server(stage: GpuStage, setting: Setting, arguments: dict[str, Any]) -> Iterator[ServerOfStage]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    model = str(large_model(stage)["model_path"])
    flags = [word for name, value in {**setting.arguments, **arguments}.items() for word in _flag(name, value)]
    fixed = ["--served-model-name", MODEL, "--max-model-len", str(LONGEST), "--host", "127.0.0.1", "--port", str(port)]
    command = [*_VLLM_SERVE, "--model", model, *fixed, *_WITHOUT_CACHE, *flags]
    log = stage.folder / f"server-{setting.name}.log"
    with process_group(command, log, stdin=subprocess.DEVNULL) as process:
        yield ServerOfStage(f"http://127.0.0.1:{port}", process, log)


def _flag(name: str, value: Any) -> list[str]:
    return [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]


def _wait(stage: GpuStage, started: list[ServerOfStage]) -> float:
    """Wait until all servers respond; return the seconds."""
    began_s = time.monotonic()
    while not all(server.responds() for server in started):
        for server in started:
            if server.process.poll() is not None:
                lines = server.log.read_text(errors="replace").strip().splitlines()
                raise ExecutionError(f"vllm serve ended with {server.process.returncode}: {' / '.join(lines[-3:])}")
        if stage.left_s < STOP_S:
            raise OutOfTimeError("vllm serve did not respond")
        pause(POLL_S)
    return time.monotonic() - began_s
