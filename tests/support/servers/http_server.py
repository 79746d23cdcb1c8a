"""A small HTTP server of the tests. It responds as documented, and has faults on purpose.

A response is a list of steps: bytes are sent as one HTTP chunk, numbers are pauses in seconds, `RESET` cuts the
connection, `HANG` sends nothing more, `Raw` is sent unchanged.
"""

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

PAUSE_S = 0.1  # between the first IDs and the others, so that there are two reads


@dataclass(frozen=True)
class Raw:
    """Bytes without an HTTP chunk around them."""

    data: bytes


RESET = "reset"
HANG = "hang"
Step = bytes | float | str | Raw


@dataclass
class ServerReply:
    """A response of the server.

    With `head` False, it consists of the steps alone, and the connection is closed after them.
    """

    steps: Iterable[Step] | AsyncIterator[Step]
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[str, ...] = ()
    head: bool = True
    ending: bytes = b"0\r\n\r\n"
    closes: bool = False  # close the connection without a header for it


MakeReply = Callable[[dict[str, Any]], ServerReply]


def response_ids(body_prompt: list[int], most: int, least: int = 0, stop_ids: Iterable[int] = ()) -> list[int]:
    """Return the IDs of a response: a range that depends only on the prompt, as in greedy decoding."""
    stops, made = set(stop_ids), []
    text = [token for token in body_prompt if token > 1] or body_prompt  # without special IDs
    for place in range(most):
        token = text[place % len(text)]
        if token in stops and place < least:
            token += 1
        made.append(token)
        if token in stops:
            break
    return made


def event(content: Any) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def json_reply(content: Any, status: int = 200) -> ServerReply:
    return ServerReply([json.dumps(content).encode()], status)


@dataclass
class HttpServer:
    """A server of one dialect on a free port of this host. Use it with `async with`.

    Args:
        path: Path of completions; a tuple for two routes.
        make_reply: Function of the request's body that returns the reply.
        owner: Owner in the list of models.
        pages: GET path → content, or a function that returns a reply.
    """

    path: str | tuple[str, ...]
    make_reply: MakeReply
    owner: str | None
    pages: dict[str, Any] = field(default_factory=dict)
    model: str = "model"
    models_path: str = "/v1/models"
    key: str | None = None
    port: int = 0  # 0: any port
    tls: ssl.SSLContext | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)  # heads of the requests for completions
    lines: list[str] = field(default_factory=list)  # method and target of each request
    url: str = ""
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def __aenter__(self) -> "HttpServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.url = f"http{'s' if self.tls else ''}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def end(self) -> None:
        """Cut each connection, and forget the waiting requests."""
        self._server.close()
        self.abort_all()
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def abort_all(self) -> None:
        """Cut each connection, as a killed server does."""
        for writer in self.writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if b"content-length" in line]
                self.lines.append(f"{method} {path}")
                length = int(lengths[0]) if lengths else 0
                content = await reader.readexactly(length)
                if not await self._send(writer, await self._reply(method, path.split("?")[0], head, content)):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _reply(self, method: str, path: str, head: bytes, content: bytes) -> ServerReply:
        if self.key is not None and f"authorization: Bearer {self.key}\r\n".encode() not in head:
            return json_reply({"error": "unauthorized"}, 401)
        if path == self.models_path:
            card = {"id": self.model, "object": "model", "owned_by": self.owner}
            return json_reply({"object": "list", "data": [card]})
        if path in self.pages:
            page = self.pages[path]
            return page() if callable(page) else json_reply(page)
        if path not in (self.path if isinstance(self.path, tuple) else (self.path,)):
            return json_reply({"detail": "Not Found"}, 404)
        if method != "POST":
            return json_reply({"detail": "Method Not Allowed"}, 405)
        try:
            body = json.loads(content)
        except ValueError:
            return json_reply({"error": "not JSON"}, 400)
        if not body:
            return json_reply({"error": "every field is missing"}, 400)
        self.requests.append(body)
        self.heads.append(head)
        return self.make_reply(body)

    async def _send(self, writer: asyncio.StreamWriter, reply: ServerReply) -> bool:
        """Send a reply. Return whether the connection can be used again."""
        lines = [
            f"HTTP/1.1 {reply.status} Reason",
            f"content-type: {reply.content_type}",
            "transfer-encoding: chunked",
            *reply.headers,
        ]
        head = "\r\n".join(lines).encode() + b"\r\n\r\n" if reply.head else b""
        async for step in _each(reply.steps):
            if step == RESET:
                writer.transport.abort()
                return False
            writer.write(head)
            head = b""
            if step == HANG:
                await asyncio.sleep(60.0)
                return False
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, Raw):
                writer.write(step.data)
            elif isinstance(step, bytes):
                writer.write(b"%x\r\n%b\r\n" % (len(step), step))
            await writer.drain()
        writer.write(head)
        if reply.head:
            writer.write(reply.ending)
        await writer.drain()
        return reply.head and not reply.closes


async def _each(steps: Iterable[Step] | AsyncIterator[Step]) -> AsyncIterator[Step]:
    if isinstance(steps, AsyncIterator):
        async for step in steps:
            yield step
    else:
        for step in steps:
            yield step


@contextlib.contextmanager
def serving(server: HttpServer) -> Iterator[HttpServer]:
    """Run the server on its own thread, for a client in another process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
