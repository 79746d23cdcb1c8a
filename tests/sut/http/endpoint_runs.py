"""A client of a server of the tests, which responds as documented, with some prompts."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from runs.benchmark import SamplingPolicy
from runs.errors import ExecutionError
from sut.engine import EngineReport, Request
from sut.http.http_engine import EndpointEngine
from tests.support.engines.fakes import FakeSink
from tests.support.processes.patience import patiently
from tests.support.servers import server_dialects
from tests.support.servers.http_server import HttpServer
from tests.support.servers.manipulations import Row
from tests.support.servers.proxy import Proxy

SAMPLING = SamplingPolicy(temperature=0.0, top_p=1.0, top_k=1, seed=42, min_tokens=1, max_tokens=8)
PROMPTS = [[11, 12, 13], [21], [31, 32], [41, 42, 43, 44]]
SERVERS: dict[str, Callable[[], HttpServer]] = {
    "vllm": lambda: HttpServer("/v1/completions", server_dialects.vllm, "vllm"),
    "vllm-tokens": lambda: HttpServer("/inference/v1/generate", server_dialects.vllm_tokens, "vllm"),
    "sglang": lambda: HttpServer("/generate", server_dialects.sglang, "sglang"),
    "sglang incremental": lambda: HttpServer("/generate", server_dialects.sglang_incremental, "sglang"),
    "tensorrt-llm": lambda: HttpServer("/v1/completions", server_dialects.tensorrt_llm, "tensorrt_llm"),
    "llama.cpp": lambda: HttpServer(
        "/completion", server_dialects.llama_cpp, "llamacpp", {"/props": {"total_slots": 3}}
    ),
}

Events = list[tuple[str, Any]]


class WaitingListener(FakeSink):
    """A listener that knows when its request is over."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        super().__init__(self.over.set)


def engine_for(
    url: str, *, sampling: SamplingPolicy = SAMPLING, streaming: bool = True, connections: int = 2, **options: Any
) -> EndpointEngine:
    return EndpointEngine(url, sampling, streaming=streaming, connections=connections, **options)


@contextlib.asynccontextmanager
async def started_engine(url: str, **options: Any) -> AsyncIterator[EndpointEngine]:
    """Yield a client that is ready."""
    engine = engine_for(url, **options)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.stop()


async def failure_seen(engine: EndpointEngine) -> str:
    """Look at the engine until it is no longer alive. Return its message."""

    async def watch() -> str:
        while True:
            try:
                engine.check_alive()
            except ExecutionError as error:
                return error.message
            await asyncio.sleep(0.01)

    return await patiently(watch(), "the failure")


async def _ended(engine: EndpointEngine, listeners: list[WaitingListener]) -> None:
    client = engine._client
    while client is not None and any(
        exchange._request.sink in listeners and not exchange._is_over for exchange in client.pool.busy()
    ):
        await asyncio.sleep(0.005)


async def responses(engine: EndpointEngine, prompts: list[list[int]]) -> list[Events]:
    """Send all prompts at once as timed queries. Return after the ends of the responses were checked."""
    listeners = [WaitingListener() for _ in prompts]
    for seq, (prompt, listener) in enumerate(zip(prompts, listeners, strict=True)):
        engine.submit(Request(listener, prompt, 0, seq, seq, time.time_ns()))
    await patiently(asyncio.gather(*(listener.over.wait() for listener in listeners)), "the responses")
    await patiently(_ended(engine, listeners), "the ends of the responses")
    return [listener.events for listener in listeners]


async def ask_all(url: str, **options: Any) -> tuple[EngineReport, list[Events]]:
    """Start an engine, send the prompts, stop it."""
    engine = engine_for(url, **options)
    try:
        report = await engine.start()
        return report, await responses(engine, PROMPTS)
    finally:
        await engine.stop()


def failure_of(events: Events) -> str:
    """Return the message of the failure that ended a request."""
    kind, error = events[-1]
    assert kind == "failed", events
    assert isinstance(error, ExecutionError)
    return error.message


async def probe_server(url: str, row: Row, **options: Any) -> None:
    """Send the prompts twice through a proxy that manipulates the responses. Check that they end as in the table."""
    async with (
        Proxy(url, trick=row.make(), honest_for=3) as proxy,  # the probes
        started_engine(proxy.url, connections=len(PROMPTS), **options) as engine,
    ):
        reported = await responses(engine, PROMPTS)
        if all(events[-1][0] == "done" for events in reported):
            reported += await responses(engine, PROMPTS)
        failed = [failure_of(events) for events in reported if events[-1][0] == "failed"]
        if row.ends:
            assert failed
            assert any(words in failed[0] for words in row.ends.split("|")), failed
            return
        assert not failed
        seen = await engine.observed()
        assert seen.engines[0]["client"]["answers"] == len(reported)
        assert all(seen.engines[0]["client"][name] == len(reported) for name in row.counted), seen.engines
        assert [row.noted in note for note in seen.notes if "but the client received" in note] == [True] * bool(
            row.noted
        )
