"""A server of OpenAI's form whose responses take a known time, with one planted fault."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.servers.http_server import HANG, HttpServer, ServerReply, Step, event, json_reply
from tests.support.servers.server_dialects import DONE, EVENT_STREAM
from tests.support.servers.text_server import PATHS, chunk, prompt_of, response_text, usage_of

Body = dict[str, Any]


@dataclass
class Scripted:
    """The responses of a server. Each fault begins with the request `after`, counted from 1 with the probes.

    Args:
        ttft_s: Time to the first token of request `n`.
        tpot_s: Time for each later token.
        slots: Requests that wait for their first token at the same time.
        fault: "" or one of `FAULTS`.
    """

    ttft_s: Callable[[int], float] = lambda _: 0.05
    tpot_s: float = 0.005
    slots: int = 1000
    fault: str = ""
    after: int = 0
    server: HttpServer | None = None
    requests: int = 0
    _slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.slots)

    def __call__(self, body: Body) -> ServerReply:
        self.requests += 1
        number = self.requests
        fault = self.fault if number > self.after else ""
        if fault == "dies":
            assert self.server is not None
            self.server._server.close()  # later connections are refused
            self.server.abort_all()
        if fault == "sends 500" and number % 50 == 0:
            return json_reply({"error": "out of memory"}, 500)
        if fault == "never responds":
            return ServerReply([HANG])
        return ServerReply(
            self._stream(body, number, at_once=fault == "sends all at the end"), content_type=EVENT_STREAM
        )

    async def _stream(self, body: Body, number: int, *, at_once: bool) -> AsyncIterator[Step]:
        text = response_text(prompt_of(body), body["max_tokens"])
        async with self._slots:
            await asyncio.sleep(self.ttft_s(number))
        tokens = [chunk(body, letter) for letter in text]
        end = [chunk(body, None, "length"), event({"choices": [], **usage_of(body, len(text))}), DONE]
        if at_once:
            await asyncio.sleep(self.tpot_s * (len(text) - 1))
            yield b"".join((*tokens, *end))
            return
        for token in tokens:
            yield token
            await asyncio.sleep(self.tpot_s)
        for step in end:
            yield step


def scripted_server(**script: Any) -> HttpServer:
    """Return a server with a script."""
    make_reply = Scripted(**script)
    server = HttpServer(PATHS["openai"], make_reply, "somebody")
    make_reply.server = server
    return server
