"""The scripted server and its log, and the comparison of clients with that log."""

import dataclasses
import http.client
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from runs.errors import SetupError
from tools.peers import truth
from tools.peers.report import PeerPart
from tools.peers.sizes import SMALLEST
from tools.peers.support import load_clients, truth_server
from tools.peers.support.load_clients import HARNESS, ClientLoad, LoadClient, Speed
from tools.peers.support.truth_server import LoggedCompletion, build_server, find_compiler, read_log
from tools.peers.truth import ClientMeasurement

TTFT_MS, TPOT_MS = 20.0, 4.0
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler on PATH")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_server(tmp_path_factory.mktemp("server"))


def post(connection: http.client.HTTPConnection, path: str, **body: Any) -> http.client.HTTPResponse:
    connection.request("POST", path, json.dumps(body))
    return connection.getresponse()


def events(response: http.client.HTTPResponse) -> list[Any]:
    """Return the events of a stream, without its end."""
    *payloads, done, rest = response.read().decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(payload.removeprefix("data: ")) for payload in payloads]


def serve(server: Path, log: Path, talk: Callable[[http.client.HTTPConnection], None]) -> list[LoggedCompletion]:
    """Start the server, exchange requests over one connection, and return its log."""
    with truth_server.truth_server(server, log, TTFT_MS, TPOT_MS) as url:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        talk(connection)
        connection.close()
    return read_log(log)


@needs_compiler
def test_logged_times_are_within_the_times_of_the_client(server: Path, tmp_path: Path) -> None:
    times: list[tuple[int, int, int]] = []

    def talk(connection: http.client.HTTPConnection) -> None:
        for tokens in (1, 2, 30):
            sent_ns = time.monotonic_ns()
            response = post(connection, "/v1/completions", prompt="a", max_tokens=tokens, stream=True)
            response.readline()
            first_ns = time.monotonic_ns()
            response.read()
            times.append((sent_ns, first_ns, time.monotonic_ns()))

    log = serve(server, tmp_path / "log.jsonl", talk)
    assert [completion.tokens for completion in log] == [1, 2, 30]
    for (sent_ns, first_ns, end_ns), completion in zip(times, log, strict=True):
        assert sent_ns < completion.read < completion.first < first_ns
        assert completion.first <= completion.last < end_ns
        due_ns = completion.read + 1e6 * (TTFT_MS + TPOT_MS * (completion.tokens - 1))
        assert completion.first >= completion.read + 1e6 * TTFT_MS
        assert due_ns <= completion.last <= due_ns + completion.late


@needs_compiler
def test_streams_have_one_event_per_token(server: Path, tmp_path: Path) -> None:
    def talk(connection: http.client.HTTPConnection) -> None:
        body = {"prompt": 'say "max_tokens": 9', "max_tokens": 3, "stream": True}
        plain = events(post(connection, "/v1/completions", **body))
        assert [event["choices"][0]["finish_reason"] for event in plain] == [None, None, "length"]
        assert not any("usage" in event for event in plain)
        options = {"include_usage": True, "continuous_usage_stats": True}
        *counted, last = events(post(connection, "/v1/completions", **body, stream_options=options))
        assert [event["usage"]["completion_tokens"] for event in counted] == [1, 2, 3]
        assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 3)
        chat = {"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 2, "stream": True}
        role, *pieces = events(post(connection, "/v1/chat/completions", **chat))
        assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert [event["choices"][0]["delta"]["content"] for event in pieces] == [" the", " the"]

    assert [completion.tokens for completion in serve(server, tmp_path / "log.jsonl", talk)] == [3, 3, 2]


@needs_compiler
def test_unstreamed_responses_and_other_routes_are_complete(server: Path, tmp_path: Path) -> None:
    def talk(connection: http.client.HTTPConnection) -> None:
        reply = json.load(post(connection, "/v1/completions", prompt="a", max_tokens=3))
        assert (reply["choices"][0]["text"], reply["usage"]["completion_tokens"]) == (" the the the", 3)
        for path, status in (("/v1/models", 200), ("/health", 200), ("/metrics", 404)):
            connection.request("GET", path)
            response = connection.getresponse()
            assert (response.status, response.read()[:1]) == (status, b"{")
        connection.request("POST", "/v1/completions", "{")
        response = connection.getresponse()
        assert (response.status, response.read()[:1]) == (400, b"{")

    assert [completion.tokens for completion in serve(server, tmp_path / "log.jsonl", talk)] == [3]


def test_a_missing_compiler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(SetupError, match="no C compiler"):
        build_server(tmp_path)
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(SetupError, match="CC=no-such-compiler"):
        build_server(tmp_path)
    monkeypatch.setenv("CC", shutil.which("false", path="/bin:/usr/bin") or "")
    with pytest.raises(SetupError, match="failed"):
        build_server(tmp_path)


def test_the_speed_follows_from_the_logged_times() -> None:
    ms = 1_000_000
    log = [
        LoggedCompletion(read=0, first=10 * ms, last=30 * ms, late=1 * ms, tokens=5),  # TTFT 10 ms, TPOT 5 ms
        LoggedCompletion(read=100 * ms, first=120 * ms, last=150 * ms, late=3 * ms, tokens=4),  # 20 ms, 10 ms
        LoggedCompletion(read=200 * ms, first=230 * ms, last=230 * ms, late=2 * ms, tokens=1),  # 30 ms
        LoggedCompletion(read=400 * ms, first=420 * ms, last=500 * ms, late=0, tokens=11),  # 20 ms, 8 ms
    ]
    speed, sent_per_s, late_p99_ms = truth.logged_speed(log)
    assert speed.requests == 4
    assert (speed.ttft_p50_ms, speed.tpot_p50_ms, speed.tokens_per_s) == (20.0, 8.0, 42.0)
    assert speed.ttft_p99_ms == pytest.approx(29.7)
    assert sent_per_s == pytest.approx(7.5)
    assert late_p99_ms == pytest.approx(2.97)


LOGGED = Speed(100, 5.0, 6.0, 5.0, 1000.0)


def measurement(rate: float = 50.0, cpu_s: float = 1.0, tokens: int = 1000, **reported: float) -> ClientMeasurement:
    return ClientMeasurement(
        "client",
        rate,
        dataclasses.replace(LOGGED, **reported),
        LOGGED,
        rate,
        0.1,
        cpu_s,
        tokens,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("reported", "is_true"),
    [
        ({}, True),
        ({"ttft_p50_ms": 9.9}, True),
        ({"ttft_p50_ms": 10.1}, False),
        ({"ttft_p99_ms": 500.0}, True),
        ({"tpot_p50_ms": 4.8}, True),
        ({"tpot_p50_ms": 4.7}, False),
        ({"tpot_p50_ms": 5.3}, False),
        ({"tokens_per_s": 1040.0}, True),
        ({"tokens_per_s": 940.0}, False),
    ],
)
def test_errors_above_the_limits_are_false(reported: dict[str, float], is_true: bool) -> None:
    assert measurement(**reported).is_true == is_true
    assert measurement(**reported).row()[-1] == ("yes" if is_true else "no")


def test_half_of_the_requested_rate_is_enough() -> None:
    assert dataclasses.replace(measurement(), sent_per_s=25.0).sends_enough
    assert not dataclasses.replace(measurement(), sent_per_s=24.0).sends_enough


def test_a_row_has_each_number_beside_the_logged_one() -> None:
    row = dict(zip(enumerate(truth.HEADINGS), measurement(ttft_p50_ms=6.0, tokens_per_s=990.0).row(), strict=True))
    assert [row[place] for place in row if place[1] == "log"] == [5.0, 6.0, 5.0, 1000.0]
    assert [value for (_, name), value in row.items() if name in ("TTFT p50", "tokens/s")] == [6.0, 990.0]


def test_the_highest_accurate_rate_precedes_the_first_error() -> None:
    runs = [measurement(50.0), measurement(100.0), measurement(200.0, tpot_p50_ms=4.0), measurement(500.0)]
    assert truth.highest_true(runs) == 100.0
    assert truth.highest_true(runs[2:]) == 0.0
    assert truth.highest_true([]) == 0.0


def test_cpu_time_per_token_excludes_the_start() -> None:
    runs = [measurement(cpu_s=10.0 + tokens / 50_000, tokens=tokens) for tokens in (400_000, 10_000, 50_000)]
    assert truth.cpu_ms_per_1000_tokens(runs) == pytest.approx(20.0)
    part = PeerPart("t", "an example")
    truth.add_results(part, {"client": runs, "other": []})
    assert {figure.name: figure.median for figure in part.figures} == {
        "client: errors within the limits up to": 50.0,
        "client: processor time per 1,000 tokens": pytest.approx(20.0),
        "other: errors within the limits up to": 0.0,
    }
    assert len(part.grids[0].rows) == 3


RESULTS: dict[str, tuple[str, Any]] = {
    "vllm bench serve": (
        "result.json",
        {"completed": 9, "median_ttft_ms": 6, "p99_ttft_ms": 7, "median_tpot_ms": 5, "output_throughput": 800},
    ),
    "aiperf": (
        "profile_export_aiperf.json",
        {
            "request_count": {"avg": 9.0},
            "time_to_first_token": {"p50": 6, "p99": 7},
            "inter_token_latency": {"p50": 5},
            "output_token_throughput": {"avg": 800},
        },
    ),
    "guidellm": (
        "result.json",
        {
            "benchmarks": [
                {
                    "metrics": {
                        "request_totals": {"successful": 9},
                        "time_to_first_token_ms": {"successful": {"percentiles": {"p50": 6, "p99": 7}}},
                        "inter_token_latency_ms": {"successful": {"percentiles": {"p50": 5}}},
                        "output_tokens_per_second": {"successful": {"mean": 800}},
                    }
                }
            ]
        },
    ),
}


@pytest.mark.parametrize("client", load_clients.CLIENTS[1:], ids=lambda client: client.name)
def test_results_of_other_clients_are_read(client: LoadClient, tmp_path: Path) -> None:
    name, content = RESULTS[client.name]
    (tmp_path / name).write_bytes(orjson.dumps(content))
    assert client.read(tmp_path) == Speed(9, 6, 7, 5, 800)
    load = ClientLoad("http://127.0.0.1:1", "truth", 50.0, 9, 128, tmp_path / "prompts.jsonl", tmp_path / "model")
    arguments = " ".join(client.arguments(load, tmp_path))
    assert all(text in arguments for text in (load.url, load.model, "50.0", "9", "128", str(load.prompts)))


@needs_compiler
@pytest.mark.long  # two runs of LoadGen, and imports torch
def test_the_harness_is_measured_and_missing_clients_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = LoadClient("no client", "no-such-program", HARNESS.arguments, HARNESS.read, variable="NO_CLIENT")
    failing = LoadClient("failing client", "sh", lambda *_: ["-c", "echo Error: no; exit 3"], HARNESS.read)
    monkeypatch.setattr(truth, "CLIENTS", (HARNESS, failing, missing))
    part = truth.run(tmp_path / "t", SMALLEST)
    first, second = part.grids[0].rows
    assert (first[:2], second[:2]) == ((HARNESS.name, 20.0), (HARNESS.name, 40.0))
    assert {figure.name for figure in part.figures} >= {f"{HARNESS.name}: processor time per 1,000 tokens"}
    assert any("no client: not installed; NO_CLIENT" in note for note in part.notes)
    assert any("failing client at 20 requests/s: exit code 3, Error: no (" in note for note in part.notes)
