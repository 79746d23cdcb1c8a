"""Runs over HTTP, started by main.py: the manifest, and the effects of server failures."""

import contextlib
import json
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from runs.errors import ExitCode
from runs.loadgen.detail_log import read_detail
from runs.record.manifest import read_manifest
from runs.record.requests_log import read_request_table
from tests.conftest import RunMain, StartedMain, StartMain, run_here
from tests.support.processes.patience import until
from tests.support.runs.http_campaign import make_model
from tests.support.runs.run_commands import check_failed
from tests.support.servers import server_dialects
from tests.support.servers.computing_server import Computing
from tests.support.servers.http_server import PAUSE_S, HttpServer, ServerReply, json_reply, serving
from tests.support.servers.text_server import reply_text

KEY = "sk-a-key-of-the-tests"
HEADER, FIELD = "a-header-of-the-tests", "a-field-of-the-tests"
SECRETS = (KEY, HEADER, FIELD)
CONF = """
*.Server.target_qps = 20
*.Server.min_duration = 3000
*.Server.min_query_count = 1
*.Offline.target_qps = 50
*.Offline.min_duration = 100
*.Offline.min_query_count = 64
"""
SPACED_S = 1.0  # between the first IDs and the others: two reads, on a busy host too
MANY = ("--target-qps", 200)  # queries in a run that does not complete


@pytest.fixture
def arguments(tmp_path: Path) -> Callable[..., list[object]]:
    """Return the command line of a run against a server."""
    model = make_model(tmp_path / "model")
    conf = tmp_path / "user.conf"
    conf.write_text(CONF)

    def make(url: str, scenario: str, *more: object) -> list[object]:
        engine = ("--api-server", url, "--api-connections", 32)  # the SUT is an engine endpoint
        places = ("--model-path", model, "--user-conf", conf, "--output-log-dir", tmp_path / "run")
        return ["run", "--scenario", scenario, *engine, *places, *more]

    return make


def _processes(started: StartedMain) -> set[tuple[str, bool]]:
    """Yield the command line, and whether the environment has the key, of each process of a run."""
    seen = set()
    parent = psutil.Process(started.process.pid)
    while started.process.poll() is None:
        with contextlib.suppress(psutil.Error):
            for process in (parent, *parent.children(recursive=True)):
                seen.add((" ".join(process.cmdline()), KEY in process.environ().values()))
        time.sleep(0.05)
    return seen


def test_a_complete_run_stores_no_secrets(
    arguments: Callable[..., list[object]], start_main: StartMain, tmp_path: Path
) -> None:
    with serving(HttpServer("/v1/completions", Computing(0.0, SPACED_S), "vllm", key=KEY)) as server:
        more = ["--api-key-env", "SERVER_KEY", "--api-declaration", "declared.yaml"]
        more += ["--header", f"X-Key={HEADER}", "--extra-body", json.dumps({"priority": {"name": FIELD}})]
        declaration = Path("configs/endpoint-declaration.yaml").read_text()
        (tmp_path / "working-directory" / "declared.yaml").write_text(declaration)
        started = start_main(*arguments(server.url, "Server", *more), environment={"SERVER_KEY": KEY})
        seen = _processes(started)
        finished = started.wait()
    assert finished.code in (ExitCode.OK, ExitCode.NEGATIVE), finished.stderr
    assert any("sut.replicas.replica" in line for line, _ in seen)
    assert not any(secret in line for line, _ in seen for secret in SECRETS if "main.py" not in line)
    assert all(f"x-key: {HEADER}\r\n".encode() in head for head in server.heads)
    assert all(request["priority"] == {"name": FIELD} for request in server.requests)
    # Git reports the commit to main.py
    need_it = ("main.py", "scenarios.launch.start", "sut.replicas.replica", "git --no-optional-locks ")
    assert not [line for line, has_key in seen if has_key and not any(name in line for name in need_it)]
    manifest = read_manifest(tmp_path / "run" / "manifest.json")
    (observed,) = manifest.observed.clients
    requests = read_request_table(tmp_path / "run" / "requests.jsonl")
    assert observed.answers == observed.issue_to_wire.count == len(requests)
    assert observed.read_to_loadgen.count == 2 * len(requests)  # the first token and the rest
    assert manifest.observed.read_to_loadgen.count == observed.read_to_loadgen.count
    assert observed.answers_with_cached_count == len(requests)
    assert set(requests.output_tokens.tolist()) == {128}
    assert manifest.engine.configuration["declared"]["kv_cache_dtype"] == "auto"
    assert manifest.engine.configuration["probes"]["greedy_twice_equal"] is True
    assert not any("declare" in reason for reason in manifest.unofficial_reasons)
    assert not any("embedded model" in note for note in manifest.notes)  # the name of the server is shown
    assert any("X-Key" in reason for reason in manifest.unofficial_reasons)
    assert any("priority" in reason for reason in manifest.unofficial_reasons)
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        assert not [secret for secret in SECRETS if secret.encode() in path.read_bytes()], path
    assert not [secret for secret in SECRETS if secret in finished.stdout + finished.stderr]


def test_a_run_on_a_server_that_reuses_prompts_is_not_eligible(
    arguments: Callable[..., list[object]], run_main: RunMain, tmp_path: Path
) -> None:
    def reuses(body: dict[str, Any]) -> ServerReply:
        reply = json.loads(b"".join(step for step in server_dialects.vllm(body).steps if isinstance(step, bytes)))
        reply["usage"]["prompt_tokens_details"]["cached_tokens"] = 16
        return json_reply(reply)

    with serving(HttpServer("/v1/completions", reuses, "vllm")) as server:
        run_main(*arguments(server.url, "Offline"))
    manifest = read_manifest(tmp_path / "run" / "manifest.json")
    assert not manifest.official
    assert any("prompt tokens from a cache" in reason for reason in manifest.unofficial_reasons)
    assert manifest.observed.cached_prompt_tokens == 16 * 64
    assert manifest.observed.read_to_loadgen.count == 64  # Offline: only complete responses


def test_control_characters_from_a_server_are_escaped(
    arguments: Callable[..., list[object]], run_main: RunMain, tmp_path: Path
) -> None:
    name = "model\x1b]0;owned\x07\x9b2J"
    with serving(HttpServer("/v1/completions", server_dialects.vllm, "vllm", model=name)) as server:
        finished = [run_main(*arguments(server.url, "Offline"))]
    assert finished[0].code in (ExitCode.OK, ExitCode.NEGATIVE), finished[0].stderr
    assert r"serves model model\x1b]0;owned\x07\x9b2J, and" in finished[0].stdout
    run = tmp_path / "run"
    finished += [run_here(command, run) for command in ("verify", "report", "status", "results")]
    texts = [text for value in finished for text in (value.stdout, value.stderr)]
    texts += [path.read_text() for path in (run / "report.html", run / "verify_performance.txt")]
    assert not [text for text in texts if any(sign in text for sign in "\x1b\x07\x9b")]


def test_a_server_error_during_a_run_ends_it(
    arguments: Callable[..., list[object]], run_main: RunMain, tmp_path: Path
) -> None:
    honest = Computing(0.0, SPACED_S)

    def breaks_at_the_thirtieth(body: dict[str, Any]) -> ServerReply:
        return json_reply({"error": "overloaded"}, 503) if len(server.requests) == 30 else honest(body)

    with serving(HttpServer("/v1/completions", breaks_at_the_thirtieth, "vllm")) as server:
        finished = run_main(*arguments(server.url, "Server", *MANY))
        assert server.url in finished.stderr
    check_failed(finished, tmp_path / "run", ExitCode.FAILED, 'status 503: {"error": "overloaded"}')


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--api-dialect", "morse"), "--api-dialect morse: unknown"),
        (("--api-key-env", "NO_SUCH_KEY"), "NO_SUCH_KEY"),
        (("--api-declaration", "missing.yaml"), "--api-declaration missing.yaml"),
        (("--serve", "'open"), "--serve"),
        (("--serve", "one", "--serve", "two"), "2 command(s), "),
        (("--serve", f"serve --key {KEY}", "--api-key-env", "SERVER_KEY"), "--serve: the command contains a key"),
        (("--dtype", "half"), "takes no --dtype"),
        (("--api-server", "http://127.0.0.1:1,http://127.0.0.1:2", "--replicas", "3"), "multiple of 2"),
        (("--cluster", "auto"), "engine endpoint has its own servers"),
    ],
)
def test_invalid_options_are_refused_before_a_server_is_contacted(
    more: tuple[str, ...],
    words: str,
    arguments: Callable[..., list[object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SERVER_KEY", KEY)
    finished = run_here(*arguments("http://127.0.0.1:1", "Offline", *more))
    assert finished.code == ExitCode.BAD_INPUT, finished.stderr
    assert words in finished.stderr
    assert KEY not in finished.stdout + finished.stderr
    assert not (tmp_path / "run").exists()


def test_an_unreachable_server_is_refused_by_each_command(
    arguments: Callable[..., list[object]], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    run = arguments(url, "Offline")
    commands = (run, [*run, "--dry-run"], ["bench", url], ["bench", url, "--dry-run"], ["doctor", "--api-server", url])
    for command in commands:
        finished = run_here(*command)
        assert finished.code == ExitCode.REFUSED, command
        assert f"server {url} accepts no connection: Connection refused" in finished.stdout + finished.stderr
        assert "start the server, or correct the address" in finished.stdout + finished.stderr
    assert not (tmp_path / "run").exists()


def test_two_servers_share_a_run_in_the_network_division(
    arguments: Callable[..., list[object]], run_main: RunMain, tmp_path: Path
) -> None:
    first, second = (HttpServer("/v1/completions", Computing(0.0, SPACED_S), "vllm") for _ in range(2))
    with serving(first), serving(second):
        finished = run_main(*arguments(f"{first.url},{second.url}", "Server", "--network-sut", "--replicas", 4))
    assert finished.code in (ExitCode.OK, ExitCode.NEGATIVE), finished.stderr
    detail = read_detail(tmp_path / "run" / "mlperf_log_detail.txt")
    nodes = ", ".join(f"model of vllm at {server.url.removeprefix('http://')}" for server in (first, second))
    assert detail.get("sut_name") == f"Network SUT ({nodes})"
    assert detail.is_network
    assert detail.integer("get_sut_name_duration_ns") > 100_000  # both directions
    manifest = read_manifest(tmp_path / "run" / "manifest.json")
    assert any("Network division" in reason for reason in manifest.unofficial_reasons)
    clients = manifest.observed.clients
    assert [client.server for client in clients] == [first.url, second.url] * 2
    assert all(client.on_this_machine and client.answers > 0 for client in clients)
    assert sum(client.answers for client in clients) == len(read_request_table(tmp_path / "run" / "requests.jsonl"))
    assert manifest.engine.configuration["connections"] == 16


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """Return the certificate of a private authority, and a server certificate for 127.0.0.1 that it signed."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = "-CA ca.pem -CAkey ca.key -addext subjectAltName=IP:127.0.0.1 -subj /CN=server"
    for name, more in (("ca", "-subj /CN=authority"), ("server", authority)):
        command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {name}.key -out {name}.pem {more}"
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return folder / "ca.pem", context


def test_a_run_over_https_with_a_private_authority(
    certificates: tuple[Path, ssl.SSLContext], arguments: Callable[..., list[object]], run_main: RunMain, tmp_path: Path
) -> None:
    ca, context = certificates
    with serving(HttpServer("/v1/completions", Computing(0.0, 0.0), "vllm", tls=context)) as server:
        refused = run_main(*arguments(server.url, "Offline"))
        assert refused.code == ExitCode.REFUSED, refused.stderr
        assert "certificate is not valid" in refused.stderr
        assert "--api-ca" in refused.stderr
        assert not (tmp_path / "run").exists()
        finished = run_main(*arguments(server.url, "Offline", "--api-ca", ca))
    assert finished.code in (ExitCode.OK, ExitCode.NEGATIVE), finished.stderr
    (client,) = read_manifest(tmp_path / "run" / "manifest.json").observed.clients
    assert client.server.startswith("https://")
    assert client.answers == client.answers_with_their_id == len(read_request_table(tmp_path / "run/requests.jsonl"))


def _started_servers(*programs: str) -> tuple[str, list[str]]:
    """Return addresses of servers, and the options that start them with these arguments."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in programs]
        ports = [probe.getsockname()[1] for probe in probes]
    urls = ",".join(f"http://127.0.0.1:{port}" for port in ports)
    commands = [
        f"python -m tests.support.servers.computing_server {port} {more}"
        for port, more in zip(ports, programs, strict=True)
    ]
    return urls, [word for command in commands for word in ("--serve", command)]


def _wait_for_their_end(urls: str) -> None:
    for url in urls.split(","):
        address = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
        until(lambda value=address: socket.socket().connect_ex(value) != 0, "the server's end")


def test_started_servers_end_with_the_run(
    arguments: Callable[..., list[object]], run_main: RunMain, tmp_path: Path
) -> None:
    urls, serve = _started_servers("", "--after 2")
    finished = run_main(*arguments(urls, "Offline", *serve))
    assert finished.code in (ExitCode.OK, ExitCode.NEGATIVE), finished.stderr
    manifest = read_manifest(tmp_path / "run" / "manifest.json")
    assert all(client.answers > 0 for client in manifest.observed.clients)
    for number in range(2):
        assert "listens on" in (tmp_path / "run" / f"server-{number}.log").read_text()
    _wait_for_their_end(urls)


@pytest.mark.parametrize(
    ("second", "code"), [("--no-such-option", ExitCode.REFUSED), ("--requests 20", ExitCode.FAILED)]
)
def test_a_failed_server_ends_the_run_and_the_other_servers(
    second: str, code: ExitCode, arguments: Callable[..., list[object]], run_main: RunMain, tmp_path: Path
) -> None:
    urls, serve = _started_servers("", second)
    finished = run_main(*arguments(urls, "Server", *serve, *MANY))
    words = "the server ended with status 2: " if code == ExitCode.REFUSED else urls.split(",")[1]
    check_failed(finished, tmp_path / "run", code, words)
    assert "server-1.log" in finished.stderr or code == ExitCode.FAILED
    _wait_for_their_end(urls)


def test_a_run_on_a_text_server_counts_and_times_tokens(
    arguments: Callable[..., list[object]], run_main: RunMain, tmp_path: Path
) -> None:
    def reply_slowly(body: dict[str, Any]) -> ServerReply:
        reply = reply_text(body)
        return ServerReply(
            [SPACED_S if step == PAUSE_S else step for step in reply.steps], content_type=reply.content_type
        )

    exact = ("--sampling-arg", "min_tokens=16", "--max-new-tokens", 16)
    route = "/v1/chat/completions"
    with serving(HttpServer(("/v1/completions", route), reply_slowly, "somebody")) as server:
        finished = run_main(*arguments(f"{server.url}{route}", "Server", *exact))
    assert {line for line in server.lines if line.startswith("POST")} == {f"POST {route}"}
    assert finished.code in (ExitCode.OK, ExitCode.NEGATIVE), finished.stderr
    run = tmp_path / "run"
    manifest, requests = read_manifest(run / "manifest.json"), read_request_table(run / "requests.jsonl")
    assert not manifest.official
    assert any("sends text (dialect openai-chat)" in text for text in manifest.unofficial_reasons)
    assert set(requests.output_tokens.tolist()) == {16}
    assert set(requests.finish_reason) == {"length"}
    assert requests.token_gaps is not None
    assert {len(gaps) for gaps in requests.token_gaps.each()} == {15}
    spans_us = (requests.complete_ns - requests.first_token_ns) / 1e3
    assert all(
        sum(gaps.tolist()) <= span + 1e5 for gaps, span in zip(requests.token_gaps.each(), spans_us, strict=True)
    )
    assert (requests.first_token_ns - requests.issue_ns).min() >= SPACED_S * 1e9  # the role arrived at once
    (client,) = manifest.observed.clients
    assert client.text is not None
    assert client.text.tokens_by_usage == client.text.tokens_by_tokenizer == client.tokens == 16 * len(requests)
    verified = run_here("verify", run)
    assert verified.code in (ExitCode.OK, ExitCode.NEGATIVE), verified.stderr
