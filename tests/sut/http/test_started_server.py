"""Servers that a command starts and stops: their ends, whatever the command does."""

import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

from runs.errors import ExecutionError, SetupError
from sut.http.address import Access, ServerAddress
from sut.http.started_server import StartedServer

SERVER = """
import http.server, signal, sys, json
if "ignores-sigterm" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": "m"}]}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def server(tmp_path: Path, port: int, command: str) -> StartedServer:
    address = ServerAddress.parse(f"http://127.0.0.1:{port}")
    return StartedServer(command, address, Access(), tmp_path / "server.log")


def script(tmp_path: Path, port: int, *options: str) -> str:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return " ".join([sys.executable, str(path), str(port), *options])


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("options", [(), ("ignores-sigterm",)])
def test_a_server_ends_with_the_block(tmp_path: Path, port: int, options: tuple[str, ...],
                                      monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr("sut.http.started_server.STOP_TIMEOUT_S", 0.5)
    with server(tmp_path, port, script(tmp_path, port, *options)).running(30) as started:
        assert is_open(port)
        assert started.start_s > 0
    assert not is_open(port)


def test_a_server_ends_with_a_failed_block(tmp_path: Path, port: int) -> None:
    with pytest.raises(ValueError, match="planted"), server(tmp_path, port, script(tmp_path, port)).running(30):
        raise ValueError("planted")
    assert not is_open(port)


def test_a_command_that_fails_is_named_with_its_output(tmp_path: Path, port: int) -> None:
    command = f"{sys.executable} -c \"print('no such model'); raise SystemExit(3)\""
    with pytest.raises(SetupError) as caught, server(tmp_path, port, command).running(30):
        pass
    assert "status 3" in caught.value.message
    assert "no such model" in caught.value.message


def test_a_missing_program_is_refused(tmp_path: Path, port: int) -> None:
    with pytest.raises(SetupError, match="No such file"), server(tmp_path, port, "no-such-program").running(5):
        pass


def test_a_command_that_never_responds_is_ended(tmp_path: Path, port: int) -> None:
    with pytest.raises(SetupError, match="no response"), server(tmp_path, port, "sleep 1000").running(1):
        pass
    group = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", "1000"]]
    assert [process.pid for process in group if process.ppid() == os.getpid()] == []


def test_a_used_address_is_refused(tmp_path: Path, port: int) -> None:
    command = script(tmp_path, port)
    with (
        server(tmp_path, port, command).running(30),
        pytest.raises(SetupError, match="another server"),
        server(tmp_path, port, command).running(30),
    ):
        pass


@pytest.mark.parametrize("error", [None, ExecutionError("connection refused")])
def test_a_server_that_dies_later_explains_a_failed_block(
    tmp_path: Path, port: int, error: ExecutionError | None
) -> None:
    def block() -> None:
        with server(tmp_path, port, script(tmp_path, port)).running(30) as started:
            assert started._process is not None
            started._process.kill()
            started._process.wait()
            if error is not None:
                raise error

    with pytest.raises(ExecutionError, match=r"status -9: .*GET"):
        block()


def test_a_command_whose_output_exceeds_the_disk_is_named_with_the_written_part(tmp_path: Path, port: int) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; sys.stdout.write('loading\\n' * 1000); sys.stdout.flush()")
    command = f"sh -c 'ulimit -f 1; exec {sys.executable} {program}'"  # a file of at most 512 or 1,024 bytes
    with (
        pytest.raises(SetupError, match=r"ended with status .*loading / loading"),
        server(tmp_path, port, command).running(30),
    ):
        pass
