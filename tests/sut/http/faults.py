"""Faults of servers that tests/support/servers/manipulations.py does not have, and a server with these faults."""

import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from sut.http.http_engine import EndpointEngine
from tests.support.servers import server_dialects
from tests.support.servers.http_server import RESET, HttpServer, Raw, ServerReply, Step, event, json_reply
from tests.sut.http.endpoint_runs import PROMPTS, started_engine

Change = Callable[[list[Step]], list[Step] | ServerReply]


class HonestUntilTimed:
    """A server that is honest, by default as vLLM, until one of the timed prompts; these have a fault."""

    def __init__(
        self,
        change: Change,
        prompts: list[list[int]] = PROMPTS,
        make_reply: Callable[[dict[str, Any]], ServerReply] = server_dialects.vllm,
    ) -> None:
        self.change = change
        self._prompts = prompts
        self._make_reply = make_reply

    def __call__(self, body: dict[str, Any]) -> ServerReply:
        reply = self._make_reply(body)
        if next(body[name] for name in ("prompt", "token_ids", "input_ids") if name in body) not in self._prompts:
            return reply
        made = self.change(server_dialects.payloads(reply))
        return made if isinstance(made, ServerReply) else ServerReply(made, content_type=reply.content_type)


@contextlib.asynccontextmanager
async def engine_of_faulty_server(
    change: Change, prompts: list[list[int]] = PROMPTS, **options: Any
) -> AsyncIterator[EndpointEngine]:
    """Yield a client that is ready, of a server of vLLM's dialect with a fault."""
    async with (
        HttpServer("/v1/completions", HonestUntilTimed(change, prompts), "vllm") as server,
        started_engine(server.url, **options) as engine,
    ):
        yield engine


def _in_usage(name: str, value: Any) -> Change:
    def change(steps: list[Step]) -> list[Step]:
        steps[3] = server_dialects.with_changed_content(
            steps[3], lambda content: content["usage"].update({name: value})
        )
        return steps

    return change


def _reason(value: Any) -> Change:
    def change(steps: list[Step]) -> list[Step]:
        steps[2] = server_dialects.with_changed_content(
            steps[2], lambda content: content["choices"][0].update(finish_reason=value)
        )
        return steps

    return change


def _other_ids(ids: list[Any]) -> Change:
    def change(steps: list[Step]) -> list[Step]:
        steps[0] = server_dialects.with_changed_content(
            steps[0], lambda content: content["choices"][0].update(token_ids=ids)
        )
        return steps

    return change


def _compressed(steps: list[Step]) -> ServerReply:
    data = gzip.compress(b"".join(step for step in steps if isinstance(step, bytes)))
    return ServerReply([data], content_type=server_dialects.EVENT_STREAM, headers=("content-encoding: gzip",))


def _bare(*data: bytes) -> Change:
    return lambda _: ServerReply([Raw(entry) for entry in data], head=False)


def _until_it_closes(steps: list[Step]) -> ServerReply:
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    return ServerReply([Raw(head), *[Raw(step) for step in steps if isinstance(step, bytes)]], head=False)


REDIRECT = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"

FAULTS: dict[str, tuple[Change, str]] = {
    "204": (_bare(b"HTTP/1.1 204 No Content\r\n\r\n"), "status 204: empty body"),
    "a redirect": (_bare(REDIRECT), "status 307: the server redirects to "),
    "an id beyond the vocabulary": (
        _other_ids([1_000]),
        "the response has token ID 1000, but the vocabulary of the model has 1000",
    ),
    "an id below zero": (_other_ids([-1]), "not of dialect vllm"),
    "a line without an end": (lambda steps: [steps[0], b"data: " + b"x" * (5 << 20)], "larger than 4 MiB"),
    "the end in half a character": (lambda steps: [*steps[:2], b'data: {"text": "\xc3'], "ends within an event"),
    "HTTP/1.0 until the connection is closed": (_until_it_closes, "the server closed the connection"),
    "nothing at all": (_bare(), "the server closed the connection"),
    "429": (lambda _: json_reply({"error": "too many requests"}, 429), 'status 429: {"error": "too many requests"}'),
    "503 empty body": (lambda _: ServerReply([], 503), "status 503: empty body"),
    "503 cut off": (lambda _: ServerReply([b"first line\nsecond", RESET], 503), "status 503: first line"),
    "500 as a page": (lambda _: ServerReply([b"<html>\nmore"], 500, "text/html"), "status 500: <html>"),
    "200, but no stream": (lambda _: json_reply({"choices": []}), "is application/json, not text/event-stream"),
    "reset in the middle": (lambda steps: [steps[0], 0.01, RESET], "closed|reset"),
    "end in the middle": (lambda steps: [steps[0]], "ends after 1 IDs without a finish reason"),
    "end within an event": (lambda steps: [*steps[:2], b"data: {"], "ends within an event"),
    "error in the stream": (
        lambda steps: [steps[0], event({"error": {"message": "out of memory", "code": 500}})],
        "out of memory",
    ),
    "no JSON": (lambda steps: [steps[0], b"data: {]\n\n"], "not of dialect vllm"),
    "ids that are none": (_other_ids(["x"]), "not of dialect vllm"),
    "an id that no int32 holds": (_other_ids([1 << 31]), "not of dialect vllm"),
    "more counted": (_in_usage("completion_tokens", 9), "the response has 8 token IDs, but the server reports 9"),
    "a count below zero": (_in_usage("prompt_tokens_details", {"cached_tokens": -1}), "not of dialect vllm"),
    "a count beyond all measure": (
        _in_usage("prompt_tokens_details", {"cached_tokens": 1 << 70}),
        "not of dialect vllm",
    ),
    "the end twice": (lambda steps: [*steps[:3], *steps[2:]], "IDs arrived after the finish reason"),
    "behind the end": (lambda steps: [*steps, steps[0]], "arrived after the end"),
    "no finish reason": (_reason(None), "without a finish reason"),
    "given up": (_reason("abort"), "finish reason 'abort'"),
    "a finish reason beyond all measure": (_reason("x" * 100_000), "not of dialect vllm"),
    "compressed": (_compressed, "gzip"),
    "a header without an end": (_bare(b"HTTP/1.1 200 OK\r\nx: ", *[b"x" * 8192] * 64), "head is larger than 64 KiB"),
    "a trailer without an end": (
        lambda steps: in_events(steps, ending=b"0\r\nx: " + b"x" * (1 << 20)),
        "head is larger than 64 KiB",
    ),
    "words that steer a terminal": (
        lambda _: ServerReply([b'{"error": "\x1b]0;owned\x07\xc2\x9b2J"}'], 400),
        r'status 400: {"error": "\x1b]0;owned\x07\x9b2J"}',
    ),
    "no HTTP": (lambda steps: [steps[0], Raw(b"zz\r\nno chunk\r\n")], "not an HTTP response"),
    "a stream without an end": (
        lambda steps: [steps[0]] * 1000,
        "the response has 9 token IDs; at most 8 were requested",
    ),
}


def _counting(more: int | None) -> Change:
    """Change the token count in the last event that has it; None removes it."""

    def recount(content: Any) -> bool:
        has_changed = False
        for name, value in list(content.items()) if isinstance(content, dict) else []:
            if name in ("completion_tokens", "tokens_predicted"):
                content.pop(name) if more is None else content.update({name: value + more})
                return True
            has_changed = has_changed or recount(value)
        return has_changed

    def change(steps: list[Step]) -> list[Step]:
        for place in reversed(range(len(steps))):
            if isinstance(step := steps[place], bytes) and step != server_dialects.DONE:
                content = json.loads(step.removeprefix(b"data: "))
                if recount(content):
                    return [*steps[:place], event(content), *steps[place + 1 :]]
        raise AssertionError("nothing counts")

    return change


IN_ALL_DIALECTS: dict[str, tuple[Change, str]] = {
    **{name: FAULTS[name] for name in ("429", "503 empty body", "reset in the middle", "end in the middle")},
    **{name: FAULTS[name] for name in ("compressed", "nothing at all", "no HTTP", "end within an event")},
    "error in the stream": FAULTS["error in the stream"],
    "no JSON": (FAULTS["no JSON"][0], "not of dialect"),
    "more counted": (_counting(1), "the server reports|neither only the new IDs nor all IDs so far"),
    "not counted": (_counting(None), "reports no token counts|not of dialect"),
    "an endless stream": (
        lambda steps: [steps[0]] * 1000,
        "at most|the server reports|neither only|without a",
    ),
}


def cut(data: list[Step], sizes: int) -> list[Step]:
    """Split the bytes into chunks of another size, at any border."""
    content = b"".join(step for step in data if isinstance(step, bytes))
    return [content[place : place + sizes] for place in range(0, len(content), sizes)]


def in_events(steps: list[Step], **reply: Any) -> ServerReply:
    return ServerReply(steps, content_type=server_dialects.EVENT_STREAM, **reply)
