"""A server that computes nothing and answers at once, in vLLM's words: what a client can do is measured against it.

`python -m sut.endpoint.instant_server` prints its URL and serves until its input is closed.
"""

import asyncio
import sys
from typing import Any

import httptools
import orjson

ANSWER_IDS = list(range(100, 228))  # 128 ids, as the benchmark's longest answer; in every vocabulary
PAUSE_S = 0.5  # between the first id and the others, so that they are two reads on a busy machine too


class InstantServer(asyncio.Protocol):
    """One connection: `/v1/models` and `/v1/completions`; everything else is 404.

    Args:
        pause_s: between the first chunk of a stream and the second.
    """

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        self._pause_s = pause_s
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
        first = {**whole, "finish_reason": None, "token_ids": ids[:1]}
        rest = {"index": 0, "text": "", "finish_reason": "length", "token_ids": ids[1:]}
        self._transport.write(
            b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            + _event({**named, "choices": [first]})
        )
        last = _event({**named, "choices": [rest]}) + _event({**named, "choices": [], "usage": usage})
        last += _chunk(b"data: [DONE]\n\n")
        asyncio.get_running_loop().call_later(self._pause_s, self._transport.write, last + _chunk(b""))


def _event(content: dict[str, Any]) -> bytes:
    return _chunk(b"data: " + orjson.dumps(content) + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(host: str = "127.0.0.1", pause_s: float = PAUSE_S) -> tuple[asyncio.Server, str]:
    """Listen on a free port; returns the server and its URL."""
    server = await asyncio.get_running_loop().create_server(lambda: InstantServer(pause_s), host, 0, backlog=2048)
    return server, f"http://{host}:{server.sockets[0].getsockname()[1]}"


async def _main() -> None:
    server, url = await serve()
    print(url, flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(_main())
