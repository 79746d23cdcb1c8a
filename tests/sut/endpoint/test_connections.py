"""What changes no id of an answer changes nothing, and connections come and go."""

import asyncio

import pytest

from runs.errors import ExecutionError
from sut.endpoint.engine import EndpointEngine
from tests.support import server_dialects as speak
from tests.support.http_server import PAUSE_S, HttpServer, Raw, Reply, Step
from tests.sut.endpoint.faults import Change, HonestUntilTimed, cut, in_events
from tests.sut.endpoint.legs import ANSWER_TIMEOUT_S, PROMPTS, answers, engine_for


def _http_1_0(steps: list[Step]) -> Reply:
    events = b"".join(step for step in steps if isinstance(step, bytes))
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(events)
    return Reply([Raw(head + bytes(steps[0])), PAUSE_S, Raw(events[len(bytes(steps[0])) :])], head=False)  # type: ignore[arg-type]  # an event


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
def test_what_changes_no_id_changes_nothing(name: str) -> None:
    async def leg() -> None:
        async with HttpServer("/v1/completions", speak.vllm, "vllm") as honest:
            engine = engine_for(honest.url)
            await engine.start()
            wanted = await answers(engine, PROMPTS)
            await engine.stop()
        async with HttpServer("/v1/completions", HonestUntilTimed(HARMLESS[name]), "vllm") as server:
            engine = engine_for(server.url)
            await engine.start()
            assert await answers(engine, PROMPTS) == wanted
            await engine.stop()

    asyncio.run(leg())


def _alive(engine: EndpointEngine) -> bool:
    try:
        engine.check_alive()
    except ExecutionError:
        return False
    return True


def test_a_server_that_goes_away_while_nothing_is_asked_is_missed() -> None:
    async def leg() -> None:
        async with HttpServer("/v1/completions", speak.vllm, "vllm") as server:
            engine = engine_for(server.url)
            await engine.start()
            engine.check_alive()
        server.abort_all()
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while _alive(engine):
                await asyncio.sleep(0.05)
        with pytest.raises(ExecutionError, match=server.url):
            engine.check_alive()
        await engine.stop()

    asyncio.run(leg())


def test_an_idle_connection_is_renewed_before_the_server_closes_it() -> None:
    async def leg() -> None:
        async with HttpServer("/v1/completions", speak.vllm, "vllm") as server:
            engine = engine_for(server.url, connections=1)
            await engine.start()
            await asyncio.sleep(3.0)
            told = await answers(engine, PROMPTS)
            assert all(events[-1][0] == "done" for events in told)
            assert (await engine.observed()).engines[0]["client"]["connections_renewed"] >= 1
            await engine.stop()

    asyncio.run(leg())
