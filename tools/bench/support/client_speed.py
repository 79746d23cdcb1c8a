"""What this machine's client can carry, measured against a server of vLLM's dialect that computes nothing.

`python -m tools.bench.support.client_speed EVENTS` is that server: it prints its URL and serves until its input is
closed;
EVENTS is the number of events in which the ids of an answer come.
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
from itertools import pairwise
from typing import Any

import httptools
import orjson

from runs.benchmark import SamplingPolicy
from runs.benchmarks import default_benchmark
from runs.environment import HARNESS_ROOT
from runs.errors import HarnessError, SetupError
from runs.interrupts import ended_within, ensured
from runs.workers import ignore_signals
from sut.endpoint.dialects import VLLM, Dialect
from sut.endpoint.engine import EndpointEngine
from sut.engine import Request
from sut.event_loop import freeze_garbage_collection, new_event_loop

END_TIMEOUT_S = 5.0
CONNECTIONS = 2_000
OPEN_AT_MOST = 1_800  # an answer takes half a second there, so that 3,600/s could be carried
MOST_ANSWERS, MOST_EVENTS = 8_000, 200_000  # the smaller of the two
TWO_EVENTS = 2
PROMPT_TOKENS = 870  # CNN-DailyMail's mean
SEED = 1
ANSWER_IDS = list(range(100, 228))  # 128 ids, as the benchmark's longest answer; in every vocabulary
PAUSE_S = 0.5  # from the first id to the last, so that two events are two reads on a busy machine too


@dataclass(frozen=True)
class ClientSpeed:
    """Streaming, 128 ids, prompts of `PROMPT_TOKENS`, as many open as are carried."""

    events: int  # an answer
    answers_per_s: float
    answers_per_core_s: float  # the same by the processor time of the client


def measure_client(dialect: Dialect = VLLM) -> ClientSpeed:
    """Ask the server as fast as it goes, on the loop that a client process has. An answer comes in as many events as a
    server of this dialect sends.

    Raises:
        SetupError: an answer was lost, or the server did not start.
    """
    sampling = default_benchmark("Server").sampling["performance"]
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_measure(sampling, TWO_EVENTS if dialect.two_chunks else sampling.max_tokens))


async def _measure(sampling: SamplingPolicy, events: int) -> ClientSpeed:
    with instant_server(events) as url:
        engine = EndpointEngine(url, sampling, streaming=True, connections=CONNECTIONS, times_count=False)
        await engine.start()
        freeze_garbage_collection()  # as a client's process does
        count = min(MOST_ANSWERS, MOST_EVENTS // events)
        wall_s, cpu_s = time.monotonic(), time.process_time()
        await _Listener(count).ask(engine)
        wall_s, cpu_s = time.monotonic() - wall_s, time.process_time() - cpu_s
        await engine.stop()
        gc.enable()
    return ClientSpeed(events, count / wall_s, count / cpu_s)


class _Listener:
    """Asks for so many answers as fast as they come."""

    def __init__(self, answers: int) -> None:
        self._answers = self._left = answers
        self._over = asyncio.Event()
        self._failure: BaseException | None = None

    async def ask(self, engine: EndpointEngine) -> None:
        prompt = random.Random(SEED).choices(range(1_000, 100_000), k=PROMPT_TOKENS)
        for seq in range(self._answers):
            while seq - (self._answers - self._left) >= OPEN_AT_MOST and not self._over.is_set():
                await asyncio.sleep(0)
            engine.submit(Request(self, prompt, 0, seq, seq, time.time_ns()))
        await self._over.wait()
        if (failure := self._failure) is not None:
            reason = failure.message if isinstance(failure, HarnessError) else failure
            raise SetupError(f"the client's speed: {reason}", "measure when the machine has less else to do")

    def first_token(self, request: Request, token_id: int) -> None: ...

    def complete(self, request: Request, token_ids: Sequence[int], finish_reason: str, cached_tokens: int) -> None:
        self._left -= 1
        if not self._left:
            self._over.set()

    def failed(self, request: Request, error: BaseException) -> None:
        self._failure = error
        self._over.set()


@contextlib.contextmanager
def instant_server(events: int = TWO_EVENTS) -> Iterator[str]:
    """The server in a process of its own; gives its URL."""
    command = [sys.executable, "-m", "tools.bench.support.client_speed", str(events)]
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
    """One connection: `/v1/models` and streams of `/v1/completions`; everything else is 404."""

    def __init__(self, events: int) -> None:
        self._events = events
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
        found = self._path == b"/v1/models"
        body = b'{"data": [{"id": "instant", "owned_by": "vllm"}]}' if found else b'{"error": "not here"}'
        head = b"HTTP/1.1 %d -\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % (200 if found else 404, len(body)) + body)

    def _stream(self, asked: dict[str, Any]) -> None:
        prompt = asked["prompt"]
        ids = [token for token in ANSWER_IDS if token not in asked["stop_token_ids"]][: asked["max_tokens"]]
        later = max(1, min(self._events, len(ids)) - 1)
        bounds = [0, *(1 + (len(ids) - 1) * place // later for place in range(later + 1))]
        choices: list[dict[str, Any]] = [
            {"index": 0, "text": "", "finish_reason": None, "token_ids": ids[start:end]}
            for start, end in pairwise(bounds)
        ]
        choices[0]["prompt_token_ids"] = prompt
        choices[-1]["finish_reason"] = "length"
        cached = {"cached_tokens": 0}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "prompt_tokens_details": cached}
        contents: list[dict[str, Any]] = [
            *({"choices": [choice]} for choice in choices),
            {"choices": [], "usage": usage},
        ]
        named = ({"id": asked["request_id"], **content} for content in contents)
        chunks = [_chunk(b"data: " + orjson.dumps(content) + b"\n\n") for content in named]
        head = b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        end = chunks.pop() + _chunk(b"data: [DONE]\n\n") + _chunk(b"")
        chunks[0], chunks[-1] = head + chunks[0], chunks[-1] + end
        self._send(chunks[::-1], PAUSE_S / later)

    def _send(self, left: list[bytes], gap_s: float) -> None:
        self._transport.write(left.pop())
        if left and not self._transport.is_closing():
            asyncio.get_running_loop().call_later(gap_s, self._send, left, gap_s)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _serve(events: int) -> None:
    """Listen on a free port, print the URL, and serve until the standard input is closed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _InstantServer(events), "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    ignore_signals()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(int(sys.argv[1])))
