"""A proxy between a client and its server: it forwards requests, and manipulates the responses as a test requests."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

from tests.support.servers.http_server import HttpServer, ServerReply, Step, json_reply

Events = AsyncGenerator[bytes, None]  # server-sent events as they arrive; a body that is not a stream is one event
Trick = Callable[[dict[str, Any], Events], AsyncIterator[Step]]  # function of a request's body and its response


async def honest(body: dict[str, Any], events: Events) -> AsyncIterator[Step]:
    async for event in events:
        yield event


class Proxy(HttpServer):
    """Use it as an `HttpServer`.

    Args:
        upstream: URL of the server.
        trick: Manipulation of the responses.
        honest_for: Number of responses that are forwarded unchanged.
    """

    def __init__(
        self,
        upstream: str,
        *,
        trick: Trick = honest,
        honest_for: int = 0,
    ) -> None:
        super().__init__("", lambda _: json_reply({}), "")
        self._upstream = upstream
        self._trick = trick
        self._honest_for = honest_for
        self._passed = 0  # prompts

    async def _reply(self, method: str, path: str, head: bytes, content: bytes) -> ServerReply:
        body = json.loads(content or b"{}")
        if not {"prompt", "token_ids"} & body.keys():
            status, content_type, pieces = await _ask(self._upstream, head + content)
            return ServerReply(pieces, status, content_type)
        self._passed += 1
        trick = self._trick if self._passed > self._honest_for else honest
        content_type = "text/event-stream" if body["stream"] else "application/json"
        return ServerReply(trick(body, _events(self._upstream, head + content)), content_type=content_type)


async def _ask(upstream: str, request: bytes) -> tuple[int, str, Events]:
    where = urlsplit(upstream)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(request)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}

    async def pieces() -> Events:
        with contextlib.closing(writer):
            if "content-length" in headers:
                yield await reader.readexactly(int(headers["content-length"]))
                return
            while size := int(await reader.readline(), 16):
                yield await reader.readexactly(size)
                await reader.readline()
            await reader.readline()

    return int(lines[0].split(" ")[1]), headers.get("content-type", ""), pieces()


async def _events(upstream: str, request: bytes) -> Events:
    """Yield the events of a response. The first event requests it from the server."""
    status, _, pieces = await _ask(upstream, request)
    assert status == 200
    rest = b""
    async for piece in pieces:
        *complete, rest = (rest + piece).split(b"\n\n")
        for event in complete:
            yield event + b"\n\n"
    if rest:
        yield rest


def content_of(event: bytes) -> dict[str, Any]:
    """Return the content of an event or of a complete body."""
    content: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    return content


def with_content(event: bytes, content: dict[str, Any]) -> bytes:
    """Return the event or the body with other content."""
    made = json.dumps(content).encode()
    return b"data: " + made + b"\n\n" if event.startswith(b"data: ") else made
