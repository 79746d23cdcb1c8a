"""Commands of `--serve`: servers that a command starts for all its runs."""

import contextlib
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from runs.errors import SetupError
from sut.http.address import Access, addresses
from sut.http.started_server import StartedServer

PORT = "{port}"
FIRST_PORT, PORTS = 20_000, 12_000  # below the ports that Linux gives to clients
SERVER_LOG = "server.log"


def command_on(serve: str, port: int) -> str:
    """Return a command whose server listens on a port."""
    return serve.replace(PORT, str(port)) if PORT in serve else f"{serve} --port {port}"


def served_values(serve: str) -> dict[str, Any]:
    """Return fields of a run for the server of a command, which will listen on a free port."""
    port = _free_port(serve)
    values: dict[str, Any] = {"api_server": f"http://127.0.0.1:{port}", "serve": [command_on(serve, port)]}
    with contextlib.suppress(ValueError):  # an open quotation mark is reported with the other mistakes
        words = shlex.split(serve)
        place = words.index("serve") + 1 if "serve" in words else len(words)
        if place < len(words) and not words[place].startswith("-"):
            values["model_path"] = words[place]  # `vllm serve MODEL`
    return values


def _free_port(serve: str) -> int:
    """Return a free port: the same for each start of a command if possible, so that a continued bench is unchanged."""
    for port in (FIRST_PORT + crc32(serve.encode()) % PORTS, 0):
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            return int(listener.getsockname()[1])
    raise SetupError("--serve: no port is free", "end programs that listen on ports of this machine")


@contextlib.contextmanager
def server_of_runs(runs: dict[str, Any], log: Path, timeout_s: float) -> Iterator[dict[str, Any]]:
    """Start the server of --serve for a block; yield the fields of runs that use it.

    Args:
        runs: Fields of a run with one command, and the address of its server.
        log: File for the output of the server.
        timeout_s: Maximum time until the server responds.

    Raises:
        SetupError: If the server does not start.
    """
    values = {name: value for name, value in runs.items() if name != "serve"}
    log.parent.mkdir(parents=True, exist_ok=True)
    address = addresses(values["api_server"])[0]
    with StartedServer(runs["serve"][0], address, Access.of(values), log).running(timeout_s):
        yield values
