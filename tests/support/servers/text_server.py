"""Responses of servers of OpenAI's form: text in, text out; and faults of some servers.

A character is a token, as in the tokenizers of the tests. vLLM 0.32.0 (vllm/entrypoints/openai), llama.cpp
(tools/server/README.md).
"""

from collections.abc import Callable
from typing import Any

from tests.support.servers.http_server import PAUSE_S, RESET, HttpServer, ServerReply, Step, event, json_reply
from tests.support.servers.server_dialects import DONE, stream

PATHS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}
Body = dict[str, Any]


def prompt_of(body: Body) -> str:
    if "messages" not in body:
        return str(body["prompt"])
    (message,) = body["messages"]
    assert message["role"] == "user"
    return str(message["content"])


def response_text(prompt: str, most: int) -> str:
    """Return a text that depends only on the prompt, as in greedy decoding."""
    return "".join(chr(ord("a") + (len(prompt) + place) % 26) for place in range(most))


def usage_of(body: Body, tokens: int) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": len(prompt_of(body)), "completion_tokens": tokens}}


def chunk(body: Body, text: str | None, reason: str | None = None, **more: Any) -> bytes:
    """Return a chunk of a stream with a piece of text."""
    choice = {"delta": {"content": text, **more}} if "messages" in body else {"text": text or "", **more}
    ends = reason if "messages" in body else reason or ""  # some servers send no null
    return event({"id": "cmpl-1", "choices": [{"index": 0, **choice, "finish_reason": ends}], "usage": None})


def response_in_pieces(
    body: Body, text: str, tokens: int | None = None, reason: str = "length", first: int = 1
) -> ServerReply:
    """Return a response of this text: the first characters, a pause, and the others one by one.

    Args:
        tokens: Reported tokens; by default the characters.
        first: Number of characters in the first chunk.
    """
    used = usage_of(body, len(text) if tokens is None else tokens)
    if not body["stream"]:
        choice = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
        return json_reply({"id": "cmpl-1", "choices": [{"index": 0, **choice, "finish_reason": reason}], **used})
    includes_usage = body.get("stream_options", {}).get("include_usage")
    return stream(
        *([chunk(body, "", role="assistant"), PAUSE_S] if "messages" in body else []),  # the role alone
        *([chunk(body, text[:first]), PAUSE_S] if text else []),
        *(chunk(body, value) for value in text[first:]),
        chunk(body, None, reason),
        *([event({"choices": [], **used})] if includes_usage else []),
        DONE,
    )


def reply_text(body: Body) -> ServerReply:
    """Reply as requested."""
    return response_in_pieces(body, response_text(prompt_of(body), body["max_tokens"]))


def drops_ignore_eos(body: Body) -> ServerReply:
    return response_in_pieces(body, response_text(prompt_of(body), 3), reason="stop")


def counts_wrongly(body: Body) -> ServerReply:
    text = response_text(prompt_of(body), body["max_tokens"])
    return response_in_pieces(body, text, tokens=2 * len(text))


def without_usage(body: Body) -> ServerReply:
    return reply_text({**body, "stream_options": {}})


def with_empty_usage(body: Body) -> ServerReply:
    *steps, _, done = reply_text(body).steps
    return stream(*steps, event({"choices": [], "usage": {}}), done)


def reasons_first(body: Body) -> ServerReply:
    text = response_text(prompt_of(body), body["max_tokens"])
    return stream(
        chunk(body, "", role="assistant"),
        chunk(body, None, reasoning_content=text[:2]),
        PAUSE_S,
        chunk(body, text[2:]),
        chunk(body, None, "length"),
        event({"choices": [], **usage_of(body, len(text))}),
        DONE,
    )


def several_at_first(body: Body) -> ServerReply:
    return response_in_pieces(body, response_text(prompt_of(body), body["max_tokens"]), first=4)


def is_silent(body: Body) -> ServerReply:
    return response_in_pieces(body, "", reason="stop")


def does_not_stream(body: Body) -> ServerReply:
    return reply_text({**body, "stream": False})


def refuses_unknown(body: Body) -> ServerReply:
    if unknown := {"ignore_eos", "min_tokens"} & body.keys():
        return json_reply({"detail": f"Unexpected fields in the request: {sorted(unknown)}"}, 422)
    return reply_text(body)


def dies(body: Body) -> ServerReply:
    steps: list[Step] = [*list(reply_text(body).steps)[:4], 0.01, RESET]
    return ServerReply(steps, content_type="text/event-stream")


def ends_early(body: Body) -> ServerReply:
    return ServerReply(list(reply_text(body).steps)[:4], content_type="text/event-stream")


def changed_stream(change: Callable[[list[Step]], list[Step]]) -> Callable[[Body], ServerReply]:
    """Return a server that changes the steps of each honest stream."""
    return lambda body: stream(*change(list(reply_text(body).steps)))


def _joined(steps: list[Step], change: Callable[[bytes], bytes]) -> list[Step]:
    return [change(step) if isinstance(step, bytes) else step for step in steps]


cuts_without_reason = changed_stream(lambda steps: [*steps[:4], DONE])
sends_only_done = changed_stream(lambda steps: [DONE])
repeats_the_reason = changed_stream(
    lambda steps: _joined(
        steps, lambda step: step.replace(b'"finish_reason": null', b'"finish_reason": "stop"')
        .replace(b'"finish_reason": ""', b'"finish_reason": "stop"')
        .replace(b'"finish_reason": "length"', b'"finish_reason": "stop"'),
    )
)  # fmt: skip
never_gives_a_reason = changed_stream(
    lambda steps: _joined(steps, lambda step: step.replace(b'"finish_reason": "length"', b'"finish_reason": null'))
)
begins_with_a_mark = changed_stream(lambda steps: [b"\xef", b"\xbb\xbf", *steps])
ends_lines_with_cr = changed_stream(lambda steps: _joined(steps, lambda step: step.replace(b"\n", b"\r")))
leaves_out_spaces = changed_stream(lambda steps: _joined(steps, lambda step: step.replace(b"data: ", b"data:")))
sends_pings = changed_stream(
    lambda steps: [
        b'event: ping\ndata: {"type": "ping"}\n\n', b'data: {"type": "ping"}\n\n', b"event: ping\ndata: now\n\n",
        b"data:\n\n", *steps,
    ]
)  # fmt: skip
leaves_out_the_last_line = changed_stream(lambda steps: [*steps[:-1], b"data: [DONE]\n"])


def text_server(name: str, make_reply: Callable[[Body], ServerReply] = reply_text, **more: Any) -> HttpServer:
    """Return a server of OpenAI's form that does not identify itself."""
    return HttpServer(PATHS[name], make_reply, more.pop("owner", "somebody"), **more)
