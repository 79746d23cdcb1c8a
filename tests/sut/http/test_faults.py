"""Faults of a response by a server or a proxy: each one is detected and reported, and none is repaired."""

import asyncio
import re
import time

import pytest

from sut.http import exchange
from sut.http.http_engine import EndpointEngine
from tests.support.servers import server_dialects
from tests.support.servers.http_server import HANG, PAUSE_S, RESET, HttpServer, Raw, ServerReply, Step, serving
from tests.sut.http.endpoint_runs import PROMPTS, SERVERS, failure_of, failure_seen, responses, started_engine
from tests.sut.http.faults import (
    FAULTS,
    IN_ALL_DIALECTS,
    Change,
    HonestUntilTimed,
    cut,
    engine_of_faulty_server,
    in_events,
)


@pytest.mark.parametrize("name", FAULTS)
async def test_each_fault_fails_its_request_without_a_retry(name: str) -> None:
    change, words = FAULTS[name]
    async with (
        HttpServer("/v1/completions", HonestUntilTimed(change), "vllm") as server,
        started_engine(server.url, connections=1, vocab_size=1_000) as engine,
    ):
        before = len(server.requests)
        (reported,) = await responses(engine, PROMPTS[:1])
        message = failure_of(reported)
        assert server.url in message
        assert "query 0, sample 0" in message
        assert any(word in message for word in words.split("|")), message
        await asyncio.sleep(0.1)
        assert len(server.requests) == before + 1


@pytest.mark.parametrize("name", [name for name in SERVERS if name != "vllm"])
async def test_faults_fail_requests_in_each_dialect(name: str) -> None:
    server = SERVERS[name]()
    changing = HonestUntilTimed(list, make_reply=server.make_reply)
    server.make_reply = changing
    async with server, started_engine(server.url) as engine:
        for fault, (change, words) in IN_ALL_DIALECTS.items():
            changing.change = change
            message = failure_of((await responses(engine, PROMPTS[:1]))[0])
            assert any(word in message for word in words.split("|")), (fault, message)
        changing.change = lambda steps: [0.3, *steps[:1], PAUSE_S, *cut(steps[1:], 5)]
        assert (await responses(engine, PROMPTS[:1]))[0][-1][0] == "done"


@pytest.mark.parametrize("times_count", [True, False])
async def test_unstreamed_responses_end_a_run_with_latency_limits(times_count: bool) -> None:
    """A proxy that keeps a stream until its end would make TTFT the latency, and TPOT zero."""

    def change(steps: list[Step]) -> list[Step]:
        return [b"".join(step for step in steps if isinstance(step, bytes))]

    async with engine_of_faulty_server(change, connections=1, times_count=times_count) as engine:
        reported = await responses(engine, PROMPTS[:1] * (exchange.FEW_RESPONSES + 1))
        assert (await engine.observed()).engines[0]["client"]["answers_read_at_once"] == exchange.FEW_RESPONSES + 1
        assert all(events[-1][0] == "done" for events in reported[:-1])
        if times_count:
            assert "TPOT is 0" in failure_of(reported[-1])
        else:
            assert reported[-1][-1][0] == "done"


def test_a_late_client_is_not_reported_as_a_server_fault() -> None:
    async def block_the_loop() -> None:
        while True:
            time.sleep(4 * PAUSE_S)  # on the loop, so that both chunks of a response have arrived
            await asyncio.sleep(0)

    async def run(url: str) -> None:
        async with started_engine(url, connections=2 * exchange.FEW_RESPONSES) as engine:
            await blamed(engine)

    async def blamed(engine: EndpointEngine) -> None:
        late = asyncio.ensure_future(block_the_loop())
        failed: list[str] = []
        while not failed:
            reported = await responses(engine, PROMPTS[:1] * 2 * exchange.FEW_RESPONSES)
            failed = [failure_of(events) for events in reported if events[-1][0] == "failed"]
        late.cancel()
        (late_ms,) = re.findall(r"its event loop was (\d+) ms late", failed[0])
        assert int(late_ms) > PAUSE_S * 1e3
        assert "--replicas" in failed[0]

    with serving(HttpServer("/v1/completions", server_dialects.vllm, "vllm")) as server:
        asyncio.run(run(server.url))


@pytest.mark.parametrize("kept", [1, 3])  # steps of a response before the silence: the first ID; all IDs without end
async def test_a_response_that_stalls_fails(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "END_LIMIT_S", 2.0)
    change: Change = lambda steps: [*steps[:kept], HANG]  # noqa: E731
    async with engine_of_faulty_server(change, silence_s=2.0) as engine:
        (reported,) = await responses(engine, PROMPTS[:1])
        assert ("no end of the response" if kept == 3 else "then nothing") in failure_of(reported)


@pytest.mark.parametrize("with_head", [True, False])
async def test_a_missing_response_fails_although_others_arrive(with_head: bool) -> None:
    def change(_: list[Step]) -> ServerReply:
        return in_events([b": wait\n\n", HANG]) if with_head else ServerReply([Raw(b""), HANG], head=False)

    async with engine_of_faulty_server(change, PROMPTS[:1], silence_s=2.0) as engine:
        lost = asyncio.ensure_future(responses(engine, PROMPTS[:1]))
        while not lost.done():
            await responses(engine, PROMPTS[1:2])
        assert "later got a response" in failure_of((await lost)[0])


async def test_a_request_reports_only_one_end() -> None:
    """A reset after a reported fault adds nothing that LoadGen could receive twice."""
    change: Change = lambda steps: [steps[0], b"data: {]\n\n", RESET]  # noqa: E731
    async with engine_of_faulty_server(change, connections=1) as engine:
        (reported,) = await responses(engine, PROMPTS[:1])
        await asyncio.sleep(0.2)
        assert [kind for kind, _ in reported] == ["first", "failed"]


async def test_a_duplicate_response_ends_the_run() -> None:
    """A proxy responds once more. The next request must not receive that response."""
    again = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 14\r\n\r\ndata: [DONE]\n\n"
    change: Change = lambda steps: in_events(steps, ending=b"0\r\n\r\n" + again)  # noqa: E731
    async with engine_of_faulty_server(change, connections=1) as engine:
        await responses(engine, PROMPTS[:1])
        assert "a response without a request" in await failure_seen(engine)
