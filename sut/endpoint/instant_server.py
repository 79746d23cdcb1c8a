"""A server of vLLM's dialect that computes nothing and answers at once: the client's speed is measured against it.

`python -m sut.endpoint.instant_server EVENTS` prints its URL and serves until its input is closed; EVENTS is the number
of events in which the ids of a streamed answer come.
"""

import asyncio
import sys
from itertools import pairwise
from typing import Any

import httptools
import orjson

from sut.event_loop import new_event_loop

ANSWER_IDS = list(range(100, 228))  # 128 ids, as the benchmark's longest answer; in every vocabulary
PAUSE_S = 0.5  # from the first id to the last, so that two events are two reads on a busy machine too


class InstantServer(asyncio.Protocol):
    """One connection: `/v1/models` and `/v1/completions`; everything else is 404.

    Args:
        events: with the ids of a streamed answer; the first has one id.
    """

    def __init__(self, events: int = 2) -> None:
        self._events = events
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._path = b""
        self._parts: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._parts = []

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_complete(self) -> None:
        if self._path == b"/v1/models":
            self._json({"data": [{"id": "instant", "owned_by": "vllm"}]})
        elif self._path != b"/v1/completions":
            self._json({"error": "not here"}, 404)
        elif self._parts:
            self._complete(orjson.loads(b"".join(self._parts)))
        else:
            self._json({"error": "POST only"}, 405)

    def _json(self, content: dict[str, Any], status: int = 200) -> None:
        body = orjson.dumps(content)
        head = b"HTTP/1.1 %d -\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
        self._transport.write(head + body)

    def _complete(self, asked: dict[str, Any]) -> None:
        prompt, stream, stops = asked["prompt"], asked["stream"], asked["stop_token_ids"]
        ids = [token for token in ANSWER_IDS if token not in stops][: asked["max_tokens"]]
        named = {"id": asked["request_id"]}
        cached = {"cached_tokens": 0}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "prompt_tokens_details": cached}
        whole = {"index": 0, "text": "", "finish_reason": "length", "token_ids": ids, "prompt_token_ids": prompt}
        if not stream:
            self._json({**named, "choices": [whole], "usage": usage})
            return
        later = max(1, min(self._events, len(ids)) - 1)
        bounds = [0, *(1 + (len(ids) - 1) * place // later for place in range(later + 1))]
        choices: list[dict[str, Any]] = [
            {"index": 0, "text": "", "finish_reason": None, "token_ids": ids[start:end]}
            for start, end in pairwise(bounds)
        ]
        choices[0]["prompt_token_ids"] = prompt
        choices[-1]["finish_reason"] = "length"
        events = [_event({**named, "choices": [choice]}) for choice in choices]
        head = b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        events[0] = head + events[0]
        events[-1] += _event({**named, "choices": [], "usage": usage}) + _chunk(b"data: [DONE]\n\n") + _chunk(b"")
        self._send(events[::-1], PAUSE_S / later)

    def _send(self, left: list[bytes], gap_s: float) -> None:
        self._transport.write(left.pop())
        if left and not self._transport.is_closing():
            asyncio.get_running_loop().call_later(gap_s, self._send, left, gap_s)


def _event(content: dict[str, Any]) -> bytes:
    return _chunk(b"data: " + orjson.dumps(content) + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(events: int) -> None:
    """Listen on a free port, print the URL, and serve until the standard input is closed."""
    server = await asyncio.get_running_loop().create_server(lambda: InstantServer(events), "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
