"""The events of servers: the parsing of a response, with one function for each format.

Sources: vLLM 0.32.0, vllm/entrypoints/openai/completion and vllm/entrypoints/scale_out/token_in_token_out;
TensorRT-LLM, tensorrt_llm/serve/openai_protocol.py; SGLang, python/sglang/srt/managers (tokenizer_manager.py,
io_struct.py); llama.cpp, tools/server/README.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import msgspec
import orjson

from sut.http.dialects import EventFormat

Int31 = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]  # a count or a token ID: LoadGen takes int32
Name = Annotated[str, msgspec.Meta(max_length=1000)]
_NOTHING = msgspec.Raw()  # default of a field that stays undecoded
_ERROR_LENGTH = 300
_EventT = TypeVar("_EventT", bound="_Event")


class BadResponse(Exception):
    """The problem of an invalid response; the client adds server and query."""


class UnrelatedEvent(BadResponse):
    """An event without a part of a response and without an error, such as a ping. A stream may contain such events."""


@dataclass(slots=True)
class Completion:
    """The content of a response so far; None for parts that the server has not reported."""

    ids: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)  # parts of the response's text, none of them empty
    reasoning: list[str] = field(default_factory=list)  # parts of the reasoning before that text
    finish_reason: str | None = None
    prompt_ids: bytes | None = None  # JSON text, if the server repeats the prompt's IDs
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    counts_all: bool = False  # True if completion_tokens counts all parts so far
    cached_tokens: int | None = None
    request_id: str | None = None


@dataclass
class EventForm:
    """The format of the events of a server, as seen so far; None if unknown."""

    repeats: bool | None = None  # True if an event repeats all earlier IDs, False if it contains only new IDs


# Reads one event, or the whole body of an unstreamed response, into a completion. Raises BadResponse if the server
# reports an error, UnrelatedEvent if there is neither a part of a response nor an error, and msgspec.DecodeError if the
# JSON is not that of the dialect.
EventReader = Callable[[bytes, Completion, EventForm], None]
READERS: dict[EventFormat, EventReader] = {}  # filled by `_reads`


def error_words(text: bytes) -> str:
    """Return a server's error as one line, shortened."""
    return " ".join(text.decode("utf-8", "replace").split())[:_ERROR_LENGTH]


def error_event(text: bytes) -> BadResponse:
    """Return the problem of an event that reports an error."""
    return BadResponse(f"the server reports an error: {error_words(text)}")


class _Event(msgspec.Struct):
    error: Any = None


class _Kind(msgspec.Struct):
    """The fields by which some servers mark an error."""

    object: Any = None
    type: Any = None


_decode_kind = msgspec.json.Decoder(_Kind).decode


def _without_response(payload: bytes) -> BadResponse:
    """Return the problem of an event that has no part of a response."""
    kind = _decode_kind(payload)
    if "error" in (kind.object, kind.type):
        return error_event(payload)
    return UnrelatedEvent(f"the response has no part that is known: {error_words(payload)}")


def _reads(
    format_name: EventFormat, event_type: type[_EventT], has_response: Callable[[_EventT], bool]
) -> Callable[[Callable[[_EventT, Completion, EventForm], None]], EventReader]:
    """Return a decorator that makes the reader of a format from a function that takes the part of a response.

    Args:
        has_response: Whether an event has a part of a response.
    """
    decode = msgspec.json.Decoder(event_type).decode

    def decorate(take: Callable[[_EventT, Completion, EventForm], None]) -> EventReader:
        def read(payload: bytes, response: Completion, form: EventForm) -> None:
            event = decode(payload)
            if event.error:
                raise error_event(orjson.dumps(event.error))
            if not has_response(event):
                raise _without_response(payload)
            take(event, response, form)

        READERS[format_name] = read
        return read

    return decorate


class _Choice(msgspec.Struct):
    token_ids: list[Int31] | None = None
    finish_reason: Name | None = None
    prompt_token_ids: msgspec.Raw = _NOTHING


class _Details(msgspec.Struct):
    cached_tokens: Int31 | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Int31 | None = None
    completion_tokens: Int31 | None = None
    prompt_tokens_details: _Details | None = None


class _OpenAiEvent(_Event):
    usage: _Usage | None = None
    id: Name | None = None


class _CompletionEvent(_OpenAiEvent):
    choices: list[_Choice] | None = None
    prompt_token_ids: msgspec.Raw = _NOTHING
    request_id: Name | None = None


@_reads("completion", _CompletionEvent, lambda event: event.choices is not None)
def _take_completion(event: _CompletionEvent, response: Completion, _: EventForm) -> None:
    """Read a completion of OpenAI's API, with token IDs added."""
    if event.usage is not None:
        _read_usage(event.usage, response)
    response.request_id = event.request_id or event.id
    if event.prompt_token_ids is not _NOTHING:
        _keep_prompt(event.prompt_token_ids, response)
    if event.choices:
        choice = event.choices[0]
        if choice.prompt_token_ids is not _NOTHING:
            _keep_prompt(choice.prompt_token_ids, response)
        if choice.finish_reason is not None:
            response.finish_reason = choice.finish_reason
        if choice.token_ids:
            response.ids += choice.token_ids


def _read_usage(usage: _Usage, response: Completion) -> None:
    response.prompt_tokens, response.completion_tokens = usage.prompt_tokens, usage.completion_tokens
    response.counts_all = bool(usage.completion_tokens)
    if usage.prompt_tokens_details is not None:
        response.cached_tokens = usage.prompt_tokens_details.cached_tokens


def _keep_prompt(raw: msgspec.Raw, response: Completion) -> None:
    repeated = bytes(raw)
    if repeated and repeated != b"null":
        response.prompt_ids = repeated


class _FinishReason(msgspec.Struct):
    type: Name
    message: str | None = None


class _MetaInfo(msgspec.Struct):
    prompt_tokens: Int31
    completion_tokens: Int31
    finish_reason: _FinishReason | None = None
    cached_tokens: Int31 | None = None
    id: Name | None = None


class _SglangEvent(_Event):
    output_ids: list[Int31] | None = None
    meta_info: _MetaInfo | None = None


@_reads("sglang", _SglangEvent, lambda event: event.meta_info is not None)
def _take_sglang(event: _SglangEvent, response: Completion, form: EventForm) -> None:
    """Read an event of SGLang: all IDs so far, or only new IDs (with --incremental-streaming-output)."""
    meta = event.meta_info
    assert meta is not None
    if event.output_ids is None:
        raise BadResponse("the response has no output_ids: the server sends text only")
    before, ids = len(response.ids), event.output_ids
    grows, repeats = meta.completion_tokens == before + len(ids), meta.completion_tokens == len(ids)
    if before and form.repeats is None and grows != repeats:
        form.repeats = repeats
    if grows and not (before and form.repeats):
        response.ids += ids
    elif repeats and form.repeats and ids[:before] == response.ids:
        response.ids = ids
    else:
        raise BadResponse(
            f"{len(ids)} output_ids arrived after {before} IDs, but completion_tokens is {meta.completion_tokens}: "
            "these are neither only the new IDs nor all IDs so far"
        )
    response.prompt_tokens, response.completion_tokens = meta.prompt_tokens, meta.completion_tokens
    response.cached_tokens, response.request_id = meta.cached_tokens, meta.id
    if meta.finish_reason is not None:
        if meta.finish_reason.type == "abort":
            raise BadResponse(
                f"the server aborted the request: {error_words((meta.finish_reason.message or '').encode())}"
            )
        response.finish_reason = meta.finish_reason.type


class _Timings(msgspec.Struct):
    cache_n: Int31 | None = None


class _LlamaEvent(_Event):
    tokens: list[Int31] | None = None
    stop: bool = False
    stop_type: Name | None = None
    tokens_predicted: Int31 | None = None
    tokens_evaluated: Int31 | None = None
    timings: _Timings | None = None
    truncated: bool = False


# Reasons of servers → reasons of OpenAI's API.
_REASONS_OF_LLAMA = {"limit": "length", "eos": "stop", "word": "stop"}
_REASONS_OF_TEXT = {
    "eos": "stop", "eos_token": "stop", "stop_sequence": "stop", "end_turn": "stop", "max_tokens": "length",
}  # fmt: skip


@_reads("llama", _LlamaEvent, lambda event: event.tokens is not None)
def _take_llama(event: _LlamaEvent, response: Completion, _: EventForm) -> None:
    """Read an event of llama.cpp. A stream omits IDs whose text ends within a character; the final count shows this."""
    response.ids += event.tokens or ()
    if event.tokens_predicted is not None and event.tokens_predicted != len(response.ids):
        raise BadResponse(
            f"{len(response.ids)} token IDs arrived so far, but the server reports {event.tokens_predicted}"
        )
    if event.stop:
        if event.truncated:
            raise BadResponse("the server truncated the context; raise the context size of the server")
        response.finish_reason = _REASONS_OF_LLAMA.get(event.stop_type or "", event.stop_type)
        response.prompt_tokens, response.completion_tokens = event.tokens_evaluated, event.tokens_predicted
        response.cached_tokens = event.timings.cache_n if event.timings else None


class _Message(msgspec.Struct):
    content: str | None = None
    # vLLM writes `reasoning`, earlier versions and other servers `reasoning_content`.
    reasoning: str | None = None
    reasoning_content: str | None = None


class _TextChoice(msgspec.Struct):
    text: str | None = None
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: Name | None = None


class _TextEvent(_OpenAiEvent):
    choices: list[_TextChoice] | None = None


@_reads("text", _TextEvent, lambda event: event.choices is not None or event.usage is not None)
def _take_text(event: _TextEvent, response: Completion, _: EventForm) -> None:
    """Read a completion or a chat completion of OpenAI's API. A chunk with a role only, or empty text, adds nothing."""
    response.request_id = event.id
    for choice in (event.choices or ())[:1]:
        message = choice.delta or choice.message or _Message(choice.text)
        if reasoning := message.reasoning or message.reasoning_content:
            response.reasoning.append(reasoning)
        if message.content:
            response.text.append(message.content)
        if reasoning or message.content:
            response.counts_all = False
        if choice.finish_reason:  # some servers send "" before the end
            response.finish_reason = _REASONS_OF_TEXT.get(choice.finish_reason, choice.finish_reason)
    if event.usage is not None:
        _read_usage(event.usage, response)
