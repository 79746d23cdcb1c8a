"""The speed of this machine's client, measured against a server of vLLM's dialect that computes nothing.

`python -m tools.peers.support.client_speed` is that server: it prints its URL and serves until its input is closed. The
IDs of a response come in two events: the first ID, then the others.
"""

import asyncio
import contextlib
import gc
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httptools
import orjson

from runs.benchmark import SamplingPolicy
from runs.benchmarks import default_benchmark
from runs.errors import HarnessError, SetupError
from runs.harness import HARNESS_ROOT
from runs.processes.interrupts import ended_within, ensured
from runs.processes.workers import ignore_signals
from sut.engine import Request
from sut.event_loop import freeze_garbage_collection, new_event_loop
from sut.http.http_engine import EndpointEngine

END_TIMEOUT_S = 5.0
CONNECTIONS = 2_000
MAX_OPEN = 1_800  # open responses; a response takes 0.5 s, so the server supports 3,600/s
RESPONSES = 8_000
PROMPT_TOKENS = 870  # mean of CNN-DailyMail
SEED = 1
RESPONSE_IDS = list(
    range(100, 228)
)  # 128 IDs, the length of the benchmark's longest response, which every vocabulary has
PAUSE_S = 0.5  # time between the two events, so that they are two reads even on a busy machine


@dataclass(frozen=True)
class ClientSpeed:
    """The speed of a client with streamed responses of 128 IDs and prompts of `PROMPT_TOKENS`."""

    responses_per_s: float
    responses_per_core_s: float  # responses per second of the client's processor time


def measure_client() -> ClientSpeed:
    """Send requests as fast as possible, on the event loop of a client process.

    Raises:
        SetupError: If a response was lost, or the server did not start.
    """
    sampling = default_benchmark("Server").sampling["performance"]
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_measure(sampling))


async def _measure(sampling: SamplingPolicy) -> ClientSpeed:
    with instant_server() as url:
        engine = EndpointEngine(url, sampling, streaming=True, connections=CONNECTIONS, times_count=False)
        await engine.start()
        freeze_garbage_collection()  # like a client's process
        wall_s, cpu_s = time.monotonic(), time.process_time()
        await _Listener(RESPONSES).ask(engine)
        wall_s, cpu_s = time.monotonic() - wall_s, time.process_time() - cpu_s
        await engine.stop()
        gc.enable()
    return ClientSpeed(RESPONSES / wall_s, RESPONSES / cpu_s)


class _Listener:
    """A sink that requests a number of responses as fast as possible."""

    def __init__(self, responses: int) -> None:
        self._responses = self._left = responses
        self._over = asyncio.Event()
        self._failure: BaseException | None = None

    async def ask(self, engine: EndpointEngine) -> None:
        prompt = random.Random(SEED).choices(range(1_000, 100_000), k=PROMPT_TOKENS)
        for seq in range(self._responses):
            while seq - (self._responses - self._left) >= MAX_OPEN and not self._over.is_set():
                await asyncio.sleep(0)
            engine.submit(Request(self, prompt, 0, seq, seq, time.time_ns()))
        await self._over.wait()
        if (failure := self._failure) is not None:
            reason = failure.message if isinstance(failure, HarnessError) else failure
            raise SetupError(f"the client's speed: {reason}", "measure on a less busy machine")

    def first_token(self, request: Request, token_id: int) -> None: ...

    def complete(self, request: Request, token_ids: Sequence[int], finish_reason: str, cached_tokens: int) -> None:
        self._left -= 1
        if not self._left:
            self._over.set()

    def failed(self, request: Request, error: BaseException) -> None:
        self._failure = error
        self._over.set()


@contextlib.contextmanager
def instant_server() -> Iterator[str]:
    """Start the server in a separate process, and yield its URL."""
    command = [sys.executable, "-m", "tools.peers.support.client_speed"]
    server = subprocess.Popen(command, cwd=HARNESS_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    stdin = server.stdin

    def end() -> None:
        stdin.close()
        if not ended_within(server, END_TIMEOUT_S):
            server.kill()

    with ensured(end):
        yield server.stdout.readline().strip()


class _InstantServer(asyncio.Protocol):
    """A connection of the server: `/v1/models` and streams of `/v1/completions`; other paths give 404."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._path = b""
        self._parts: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path, self._parts = url, []

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_complete(self) -> None:
        if self._path == b"/v1/completions":
            self._stream(orjson.loads(b"".join(self._parts)))
            return
        is_models = self._path == b"/v1/models"
        body = b'{"data": [{"id": "instant", "owned_by": "vllm"}]}' if is_models else b'{"error": "not here"}'
        head = b"HTTP/1.1 %d -\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % (200 if is_models else 404, len(body)) + body)

    def _stream(self, request: dict[str, Any]) -> None:
        prompt = request["prompt"]
        ids = [token for token in RESPONSE_IDS if token not in request["stop_token_ids"]][: request["max_tokens"]]
        name, cached = request["request_id"], {"cached_tokens": 0}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "prompt_tokens_details": cached}
        first = {"index": 0, "text": "", "finish_reason": None, "token_ids": ids[:1], "prompt_token_ids": prompt}
        fields = {"index": 0, "text": "", "finish_reason": "length", "token_ids": ids[1:]}
        head = b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self._transport.write(head + _event({"id": name, "choices": [first]}))
        last = _event({"id": name, "choices": [fields]}) + _event({"id": name, "choices": [], "usage": usage})
        end = last + _chunk(b"data: [DONE]\n\n") + _chunk(b"")
        asyncio.get_running_loop().call_later(PAUSE_S, self._finish, end)

    def _finish(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


def _event(content: dict[str, Any]) -> bytes:
    return _chunk(b"data: " + orjson.dumps(content) + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _serve() -> None:
    """Listen on a free port, print the URL, and serve until the standard input is closed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_InstantServer, "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    ignore_signals()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve())
