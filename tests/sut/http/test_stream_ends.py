"""The end of a stream: its last token completes the query, and the rest is checked."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runs.errors import ExecutionError
from runs.record.observed import ServerClient
from sut.engine import Request
from sut.http.exchange import EventStream
from sut.http.http_engine import EndpointEngine
from sut.http.tokenizer import BYTES
from tests.support.processes.patience import patiently
from tests.support.runs.http_campaign import make_model
from tests.support.servers import text_server as text
from tests.support.servers.http_server import PAUSE_S, RESET, ServerReply, Step, event
from tests.support.servers.server_dialects import DONE
from tests.support.servers.text_server import PATHS, Body, chunk, text_server
from tests.sut.http.endpoint_runs import (
    PROMPTS,
    SAMPLING,
    SERVERS,
    WaitingListener,
    failure_of,
    responses,
    started_engine,
)
from tests.sut.http.test_text import EXACT, TimedListener, ask_text_server, engine_of_text_server


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_model(tmp_path_factory.mktemp("model") / "model"))


class DelayedEnd:
    """A server that sends the end of a timed response only after the query is complete.

    A client that waits for the end would wait forever.
    """

    def __init__(self, make_reply: Any, kept: int, honest: int, rest: list[Step] | None = None) -> None:
        self.gate = asyncio.Event()
        self._make_reply, self._kept, self._honest, self._rest = make_reply, kept, honest, rest
        self._requests = 0

    def __call__(self, body: Body) -> ServerReply:
        reply: ServerReply = self._make_reply(body)
        self._requests += 1
        if self._requests <= self._honest:
            return reply
        return ServerReply(self._steps(list(reply.steps)), content_type=reply.content_type)  # type: ignore[arg-type]

    async def _steps(self, steps: list[Step]) -> AsyncIterator[Step]:
        kept = len(steps) - self._kept
        for step in steps[:kept]:
            yield step
        await self.gate.wait()
        for step in steps[kept:] if self._rest is None else self._rest:
            yield step


async def complete_before_the_end(engine: EndpointEngine, held_reply: DelayedEnd) -> TimedListener:
    """Send a query, and let the server end the response after the query is complete."""
    listener = TimedListener()
    engine.submit(Request(listener, PROMPTS[0], 0, 0, 0, 1))
    await patiently(listener.over.wait(), "the completion before the end of the response")
    assert [kind for kind, _ in listener.events] == ["first", "done"]
    held_reply.gate.set()
    return listener


@pytest.mark.parametrize("kept", [2, 3])  # steps of the end: usage and [DONE]; also the finish reason
@pytest.mark.parametrize("tokenized", [True, False])
@pytest.mark.parametrize("dialect", PATHS)
async def test_the_last_text_completes_a_query_before_the_stream_ends(
    dialect: str, tokenized: bool, kept: int, model: str
) -> None:
    held_reply = DelayedEnd(text.reply_text, kept, honest=2)
    async with (
        text_server(dialect, held_reply) as server,
        started_engine(server.url, dialect=dialect, model_path=model if tokenized else BYTES, sampling=EXACT) as engine,
    ):
        listener = await complete_before_the_end(engine, held_reply)
        ids, reason, _ = listener.events[1][1]
        assert (len(ids), reason) == (8, "length")
        client = ServerClient.model_validate((await engine.observed()).engines[0]["client"])
        assert client.text is not None
        assert client.text.tokens_by_usage == client.text.tokens_for_loadgen == client.tokens == 8
        assert client.last_token_to_end is not None
        assert client.last_token_to_end.count == 1


@pytest.mark.parametrize(("name", "kept"), [("vllm", 2), ("vllm-tokens", 2), ("tensorrt-llm", 2), ("sglang", 1),
                                            ("sglang incremental", 1), ("llama.cpp", 1)])  # fmt: skip
async def test_the_last_token_completes_a_query_in_each_dialect(name: str, kept: int) -> None:
    server = SERVERS[name]()
    held_reply = DelayedEnd(server.make_reply, kept, honest=3)
    if name in ("llama.cpp", "tensorrt-llm"):  # without a probe of min_tokens
        held_reply._honest = 2
    server.make_reply = held_reply
    async with server, started_engine(server.url) as engine:
        listener = await complete_before_the_end(engine, held_reply)
        assert len(listener.events[1][1][0]) == SAMPLING.max_tokens
        await engine.observed()


@pytest.mark.parametrize("name", ["openai-chat", "tensorrt-llm", "llama.cpp", "vllm"])
async def test_token_gaps_are_recorded_only_for_streamed_responses(name: str) -> None:
    server = text_server("openai-chat") if name == "openai-chat" else SERVERS[name]()
    more: dict[str, Any] = {"sampling": EXACT, "model_path": BYTES} if name == "openai-chat" else {}
    async with server, started_engine(server.url, **more) as engine:
        request = Request(WaitingListener(), PROMPTS[0], 0, 0, 0, 1)
        engine.submit(request)
        assert isinstance(request.sink, WaitingListener)
        await patiently(request.sink.over.wait(), "the response")
    gaps = request.token_gaps_ns
    if name == "vllm":
        assert gaps is None
    else:
        assert gaps is not None
        assert len(gaps) == (7 if name in ("openai-chat", "llama.cpp") else 1)
        assert sum(gaps) >= 0.5 * PAUSE_S * 1e9  # the first read may be late


LATE: dict[str, tuple[list[Step], str]] = {
    "reset": ([0.01, RESET], "closed|reset"),
    "more text": ([chunk({"messages": []}, "x"), DONE], "chunks arrived after"),
    "an error": ([event({"error": {"message": "out of memory"}})], "out of memory"),
    "an error by its name": ([b"event: error\ndata: out of memory\n\n"], "out of memory"),
    "behind the end": ([DONE, DONE], "after the end of the stream"),
}


@pytest.mark.parametrize("name", LATE)
async def test_a_fault_after_the_last_token_ends_the_run(name: str, model: str) -> None:
    rest, words = LATE[name]
    held_reply = DelayedEnd(text.reply_text, 2, honest=2, rest=rest)
    async with (
        text_server("openai-chat", held_reply) as server,
        started_engine(server.url, dialect="openai-chat", model_path=model, sampling=EXACT) as engine,
    ):
        listener = await complete_before_the_end(engine, held_reply)
        with pytest.raises(ExecutionError) as failed:
            await patiently(engine.observed(), "the failure")
        assert any(word in failed.value.message for word in words.split("|")), failed.value.message
        assert [kind for kind, _ in listener.events] == ["first", "done", "failed"]
        assert failure_of(listener.events) == failed.value.message


async def test_a_wrong_count_after_the_last_token_ends_a_run_on_token_ids() -> None:
    server = SERVERS["tensorrt-llm"]()
    usage = {"prompt_tokens": len(PROMPTS[0]), "completion_tokens": 9}
    held_reply = DelayedEnd(server.make_reply, 2, honest=2, rest=[event({"choices": [], "usage": usage}), DONE])
    server.make_reply = held_reply
    async with server, started_engine(server.url) as engine:
        await complete_before_the_end(engine, held_reply)
        with pytest.raises(ExecutionError, match="8 token IDs, but the server reports 9"):
            await patiently(engine.observed(), "the failure")


HARMLESS = {
    "a byte-order mark": text.begins_with_a_mark,
    "lines that end in CR": text.ends_lines_with_cr,
    "no spaces": text.leaves_out_spaces,
    "pings": text.sends_pings,
    "no last line": text.leaves_out_the_last_line,
}


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("name", HARMLESS)
async def test_equivalent_streams_have_the_same_tokens(name: str, dialect: str, model: str) -> None:
    expected, _, _ = await ask_text_server(text.reply_text, model, dialect=dialect)
    reported, observed, client = await ask_text_server(HARMLESS[name], model, dialect=dialect)
    assert reported == expected
    assert client.chunks == 8 * len(PROMPTS)
    assert not [note for note in observed.notes if "responses have" in note or "chunks" in note]


@pytest.mark.parametrize("dialect", PATHS)
async def test_repeated_finish_reasons_are_noted(dialect: str, model: str) -> None:
    async with (
        text_server(dialect, text.repeats_the_reason) as server,
        started_engine(server.url, dialect=dialect, model_path=model, sampling=EXACT) as engine,
    ):
        reported = await responses(engine, PROMPTS)
        observed = await engine.observed()
    assert [len(events[1][1][0]) for events in reported] == [8] * len(PROMPTS)
    assert [note for note in observed.notes if "a finish reason before the last" in note]


async def test_an_early_finish_reason_ends_a_timed_run(model: str) -> None:
    async with engine_of_text_server(text.repeats_the_reason, model, connections=len(PROMPTS)) as engine:
        reported = await responses(engine, PROMPTS)
    assert "chunks arrived after the finish reason" in failure_of(reported[0])


async def test_missing_finish_reasons_are_noted(model: str) -> None:
    async with (
        text_server("openai", text.never_gives_a_reason) as server,
        started_engine(server.url, dialect="openai", model_path=model, sampling=EXACT) as engine,
    ):
        reported = await responses(engine, PROMPTS)
        observed = await engine.observed()
    assert [len(events[1][1][0]) for events in reported] == [8] * len(PROMPTS)
    assert [note for note in observed.notes if "no response has a finish reason" in note]
    client = ServerClient.model_validate(observed.engines[0]["client"])
    assert client.text is not None
    assert (client.text.with_finish_reason, client.text.without_finish_reason) == (0, len(PROMPTS))


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
def test_events_are_read_from_parts_of_any_size(line_end: bytes, size: int) -> None:
    lines = [
        b": hello",
        b"data:a",
        b"data:  b",
        b"",
        b"event: ping",
        b"data",
        b"",
        b"data:",
        b"",
        b"data: c",
        b"id: 1",
        b"",
    ]
    for mark in (b"", b"\xef\xbb\xbf"):
        content, events = mark + line_end.join(lines) + line_end, EventStream()
        parts = [content[place : place + size] for place in range(0, len(content), size)]
        assert [payload for part in parts for payload in events.feed(part)] == [b"a\nb", b"c"]
        assert events.is_between_events
    assert list(EventStream().feed(b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\ndata: y\n\n")) == [b"y"]  # one mark only
