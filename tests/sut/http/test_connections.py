"""Harmless changes of a stream, manipulations by a proxy, and connections that open and close."""

import asyncio
import contextlib

import pytest

from sut.http.address import ServerAddress
from sut.http.connection import FIRST_DELAY_S, ConnectionPool
from tests.support.servers import server_dialects
from tests.support.servers.http_server import PAUSE_S, HttpServer, Raw, ServerReply, Step, response_ids
from tests.support.servers.manipulations import ROWS
from tests.sut.http.endpoint_runs import PROMPTS, failure_seen, probe_server, responses, started_engine
from tests.sut.http.faults import Change, cut, engine_of_faulty_server, in_events


def _http_1_0(steps: list[Step]) -> ServerReply:
    events = b"".join(step for step in steps if isinstance(step, bytes))
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(events)
    return ServerReply([Raw(head + bytes(steps[0])), PAUSE_S, Raw(events[len(bytes(steps[0])) :])], head=False)  # type: ignore[arg-type]  # an event


HARMLESS: dict[str, Change] = {
    "heartbeats": lambda steps: [b": ping\n\n", steps[0], b": ping\n\n", *steps[1:], b": ping\n\n"],
    "several lines of data in an event": lambda steps: [
        step.replace(b', "', b',\ndata: "') if isinstance(step, bytes) else step for step in steps
    ],
    "trailers": lambda steps: in_events(steps, ending=b"0\r\nx-checksum: 1\r\ncontent-encoding: gzip\r\n\r\n"),
    "a connection for each answer": lambda steps: in_events(steps, headers=("connection: close",), closes=True),
    "HTTP/1.0": _http_1_0,
    "half a character at a time": lambda steps: [steps[0], PAUSE_S, *cut(steps[2:], 1)],
    "odd chunks": lambda steps: [*cut(steps[:1], 7), PAUSE_S, *cut(steps[2:], 13)],
    "slow first byte": lambda steps: [0.3, *steps],
    "comments and other fields": lambda steps: [b": ping\n\nevent: x\nid: 3\n\n", *steps],
    "lines that end in CR LF": lambda steps: [
        step.replace(b"\n", b"\r\n") if isinstance(step, bytes) else step for step in steps
    ],
    "broken characters in the text": lambda steps: [
        steps[0],
        PAUSE_S,
        steps[2].replace(b"\\u00e9", b"\xc3") if isinstance(steps[2], bytes) else b"",
        *steps[3:],
    ],
}


@pytest.mark.parametrize("name", HARMLESS)
async def test_harmless_changes_of_a_stream_keep_the_responses(name: str) -> None:
    async with (
        HttpServer("/v1/completions", server_dialects.vllm, "vllm") as honest,
        started_engine(honest.url) as engine,
    ):
        wanted = await responses(engine, PROMPTS)
    async with engine_of_faulty_server(HARMLESS[name]) as engine:
        assert await responses(engine, PROMPTS) == wanted


async def test_a_server_that_disappears_while_idle_is_detected() -> None:
    async with contextlib.AsyncExitStack() as client:
        async with HttpServer("/v1/completions", server_dialects.vllm, "vllm") as server:
            engine = await client.enter_async_context(started_engine(server.url))
            engine.check_alive()
        server.abort_all()
        assert server.url in await failure_seen(engine)


async def test_an_idle_connection_is_renewed_before_the_server_closes_it() -> None:
    async with (
        HttpServer("/v1/completions", server_dialects.vllm, "vllm") as server,
        started_engine(server.url, connections=1) as engine,
    ):
        await asyncio.sleep(3.0)
        reported = await responses(engine, PROMPTS)
        assert all(events[-1][0] == "done" for events in reported)
        assert (await engine.observed()).engines[0]["client"]["connections_renewed"] >= 1


async def test_a_server_that_closes_connections_is_contacted_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delays: list[float] = []
    connect = ConnectionPool._connect

    async def note(pool: ConnectionPool, delay_s: float = 0.0) -> None:
        delays.append(delay_s)
        await connect(pool, delay_s)

    monkeypatch.setattr(ConnectionPool, "_connect", note)
    failures: list[BaseException] = []
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        address = ServerAddress.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        pool = ConnectionPool(address, None, 1, failures.append)
        await pool.open()
        while len(delays) < 5:
            await asyncio.sleep(0.01)
        pool.close()
    assert delays == [0.0, *(FIRST_DELAY_S * 2**number for number in range(4))]
    assert failures == []


@pytest.mark.parametrize("name", ROWS)
async def test_each_proxy_manipulation_fails_or_is_recorded(name: str) -> None:
    def metrics() -> ServerReply:
        """Return a counter of the tokens that the server generates."""
        made = sum(
            len(response_ids(body["prompt"], body["max_tokens"], body["min_tokens"], body["stop_token_ids"]))
            for body in server.requests
        )
        return ServerReply([f"# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total {made}\n".encode()])

    async with HttpServer("/v1/completions", server_dialects.vllm, "vllm", {"/metrics": metrics}) as server:
        await probe_server(server.url, ROWS[name])
