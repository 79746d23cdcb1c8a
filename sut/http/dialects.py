"""The requests for completions that each kind of server accepts, and the parsing of its responses.

`DIALECTS` has a row for each kind of server, with one of four functions that read events. Two rows are for servers that
send text instead of token IDs; sut/http/text.py counts its tokens.

Sources: vLLM 0.32.0, vllm/entrypoints/openai/completion and vllm/entrypoints/scale_out/token_in_token_out;
TensorRT-LLM, tensorrt_llm/serve/openai_protocol.py; SGLang, docs/basic_usage/sampling_params and
python/sglang/srt/managers (tokenizer_manager.py, io_struct.py); llama.cpp, tools/server/README.md.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
import orjson

from runs.benchmark import SamplingPolicy

Int31 = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]  # a count or a token ID: LoadGen takes int32
Name = Annotated[str, msgspec.Meta(max_length=1000)]
_NOTHING = msgspec.Raw()  # default of a field that stays undecoded
_ERROR_LENGTH = 300


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


class BodyTemplate:
    """The part of a request's body that all requests share: all except its ID and the prompt.

    Args:
        prompt_of: returns the value of `prompt_field` for a prompt's IDs; None = the IDs.
    """

    def __init__(
        self,
        fields: dict[str, Any],
        prompt_field: str,
        id_field: str | None,
        prompt_of: Callable[[list[int]], Any] | None = None,
    ) -> None:
        self.fields = fields
        self._prompt_of = prompt_of
        self._head = orjson.dumps(fields)[:-1] + b"," + orjson.dumps(prompt_field) + b":"
        self._id_name = b"," + orjson.dumps(id_field) + b":" if id_field else b""

    def body(self, prompt_ids: list[int], request_id: str) -> bytes:
        own_id = self._id_name + orjson.dumps(request_id) if self._id_name else b""
        prompt = prompt_ids if self._prompt_of is None else self._prompt_of(prompt_ids)
        return self._head + orjson.dumps(prompt) + own_id + b"}"


@dataclass
class EventForm:
    """The format of the events of a server, as seen so far; None if unknown."""

    repeats: bool | None = None  # True if an event repeats all earlier IDs, False if it contains only new IDs


# Reads one event, or the whole body of an unstreamed response, into a completion. Raises BadResponse if the server
# reports an error, UnrelatedEvent if there is neither a part of a response nor an error, and msgspec.DecodeError if the
# JSON is not that of the dialect.
EventReader = Callable[[bytes, Completion, EventForm], None]


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One server's API."""

    name: str
    owner: str  # `owned_by` in the server's list of models; "" if any server may have this API
    path: str
    prompt_field: str
    read: EventReader
    id_field: str | None = None  # field of the request's ID; the response's ID ends with that ID
    # Sampling parameter → its name on the server; "" if the server does not support it.
    renamed: Mapping[str, str] = field(default_factory=dict)
    own_parameters: Mapping[str, Any] = field(default_factory=dict)  # sent with the sampling parameters
    nested: bool = False  # True if the sampling parameters are nested in a field
    own_fields: Mapping[str, Any] = field(default_factory=dict)  # fields outside the sampling parameters
    sends_text: bool = False  # True if prompts and responses are text
    openai_fields: bool = False  # True if `model` and `stream_options` are sent
    counts_each_chunk: bool = False  # True if the server can report the number of tokens so far in each chunk
    two_chunks: bool = False  # True if the server streams at intervals, so that a response arrives in two chunks
    min_tokens_holds_stop_ids: bool = True  # min_tokens also holds back stop IDs, not only the model's EOS
    renew_unused: bool = False  # True if the server closes unused connections
    closes_after_a_stream: bool = False  # True if the server closes the connection despite the header keep-alive

    def template(
        self,
        model: str,
        sampling: SamplingPolicy,
        *,
        streaming: bool,
        stop_ids: tuple[int, ...] = (),
        omitted: Collection[str] = (),
        text_of: Callable[[list[int]], str] | None = None,
    ) -> BodyTemplate:
        """Return the part of the body that all requests share.

        Args:
            omitted: fields that are not sent.
            text_of: returns the text of a prompt's IDs; needed if the dialect sends text.
        """
        # All sampling parameters are sent, because a server may read a missing parameter from generation_config.json.
        requested = {**sampling.model_dump(), "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0}
        requested |= {"frequency_penalty": 0.0, "stop_token_ids": list(stop_ids)}
        named = {self.renamed.get(name, name): value for name, value in requested.items()}
        named.pop("", None)
        named |= self.own_parameters
        if self.sends_text:
            # vLLM's min_tokens holds back the end of the response; other servers have ignore_eos instead. Neither is in
            # OpenAI's API, so servers that refuse them get them only if they have an effect.
            if sampling.min_tokens <= 1:
                named.pop(self.renamed.get("min_tokens", "min_tokens"), None)
            if sampling.min_tokens == sampling.max_tokens:
                named["ignore_eos"] = True
        if self.two_chunks and streaming:
            named["stream_interval"] = sampling.max_tokens + 1
        fields = {**({"sampling_params": named} if self.nested else named), **self.own_fields, "stream": streaming}
        if self.openai_fields:
            fields |= {"model": model} | ({"stream_options": self._stream_options()} if streaming else {})
        fields = {name: value for name, value in fields.items() if name not in omitted}
        if text_of is None:
            return BodyTemplate(fields, self.prompt_field, self.id_field)
        is_chat = self.prompt_field == CHAT_FIELD
        return BodyTemplate(
            fields,
            self.prompt_field,
            self.id_field,
            lambda ids: [{"role": "user", "content": text_of(ids)}] if is_chat else text_of(ids),
        )

    def _stream_options(self) -> dict[str, bool]:
        # Token IDs are counted as they arrive. Only text needs the server's count in each chunk.
        counts = {"continuous_usage_stats": True} if self.sends_text and self.counts_each_chunk else {}
        return {"include_usage": True, **counts}

    def not_asked(self, sampling: SamplingPolicy, omitted: Collection[str] = ()) -> list[str]:
        """Return notes on the sampling parameters that are not sent."""
        if self.sends_text:
            left = [name for name, sent in self.renamed.items() if not sent] + [*omitted]
            return [f"{self.name} does not send {', '.join(left)}: the server's defaults apply"]
        if self.renamed.get("min_tokens") != "":
            return []
        return [f"{self.name} has no min_tokens; each response must have at least {sampling.min_tokens} tokens"]


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


_decode_completion = msgspec.json.Decoder(_CompletionEvent).decode


def _read_completion(payload: bytes, response: Completion, _: EventForm) -> None:
    """Read a completion of OpenAI's API, with token IDs added."""
    event = _decode_completion(payload)
    if event.error:
        raise error_event(orjson.dumps(event.error))
    if event.choices is None:
        raise _without_response(payload)
    _read_usage(event.usage, response)
    response.request_id = event.request_id or event.id
    _keep_prompt(event.prompt_token_ids, response)
    if event.choices:
        choice = event.choices[0]
        _keep_prompt(choice.prompt_token_ids, response)
        if choice.finish_reason is not None:
            response.finish_reason = choice.finish_reason
        response.ids += choice.token_ids or ()


def _read_usage(usage: _Usage | None, response: Completion) -> None:
    if usage is not None:
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


_decode_sglang = msgspec.json.Decoder(_SglangEvent).decode


def _read_sglang(payload: bytes, response: Completion, form: EventForm) -> None:
    """Read an event of SGLang: all IDs so far, or only new IDs (with --incremental-streaming-output)."""
    event = _decode_sglang(payload)
    if event.error:
        raise error_event(orjson.dumps(event.error))
    if event.meta_info is None:
        raise _without_response(payload)
    if event.output_ids is None:
        raise BadResponse("the response has no output_ids: the server sends text only")
    before, ids, meta = len(response.ids), event.output_ids, event.meta_info
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


_decode_llama = msgspec.json.Decoder(_LlamaEvent).decode
_FINISH_REASONS = {"limit": "length", "eos": "stop", "word": "stop"}


def _read_llama(payload: bytes, response: Completion, _: EventForm) -> None:
    """Read an event of llama.cpp. A stream omits IDs whose text ends within a character; the final count shows this."""
    event = _decode_llama(payload)
    if event.error:
        raise error_event(orjson.dumps(event.error))
    if event.tokens is None:
        raise _without_response(payload)
    response.ids += event.tokens
    if event.tokens_predicted is not None and event.tokens_predicted != len(response.ids):
        raise BadResponse(
            f"{len(response.ids)} token IDs arrived so far, but the server reports {event.tokens_predicted}"
        )
    if event.stop:
        if event.truncated:
            raise BadResponse("the server truncated the context; raise the context size of the server")
        response.finish_reason = _FINISH_REASONS.get(event.stop_type or "", event.stop_type)
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


_decode_text = msgspec.json.Decoder(_TextEvent).decode
_ENDS = {"eos": "stop", "eos_token": "stop", "stop_sequence": "stop", "end_turn": "stop", "max_tokens": "length"}


def _read_text(payload: bytes, response: Completion, _: EventForm) -> None:
    """Read a completion or a chat completion of OpenAI's API. A chunk with a role only, or empty text, adds nothing."""
    event = _decode_text(payload)
    if event.error:
        raise error_event(orjson.dumps(event.error))
    if event.choices is None and event.usage is None:
        raise _without_response(payload)
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
            response.finish_reason = _ENDS.get(choice.finish_reason, choice.finish_reason)
    _read_usage(event.usage, response)


# vLLM's `/v1/completions` also generates text, which the client ignores.
VLLM = Dialect(
    name="vllm",
    owner="vllm",
    path="/v1/completions",
    prompt_field="prompt",
    read=_read_completion,
    id_field="request_id",
    own_fields={"add_special_tokens": False, "return_token_ids": True},
    openai_fields=True,
    counts_each_chunk=True,
    two_chunks=True,
)
# vLLM's token-in-token-out route, available with `--enable-scale-out` or `--tokens-only`, generates no text.
VLLM_TOKENS = Dialect(
    name="vllm-tokens",
    owner="vllm",
    path="/inference/v1/generate",
    prompt_field="token_ids",
    read=_read_completion,
    id_field="request_id",
    own_parameters={"detokenize": False},
    nested=True,
    own_fields={"return_token_ids": True},
    openai_fields=True,
    two_chunks=True,
)
SGLANG = Dialect(
    name="sglang",
    owner="sglang",
    path="/generate",
    prompt_field="input_ids",
    read=_read_sglang,
    id_field="rid",
    renamed={"seed": "sampling_seed", "min_tokens": "min_new_tokens", "max_tokens": "max_new_tokens"},
    nested=True,
    two_chunks=True,
)
# `trtllm-serve` refuses unknown fields.
TENSORRT_LLM = Dialect(
    name="tensorrt-llm",
    owner="tensorrt_llm",
    path="/v1/completions",
    prompt_field="prompt",
    read=_read_completion,
    renamed=dict.fromkeys(("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"), ""),
    own_fields={"add_special_tokens": False, "detokenize": False},
    openai_fields=True,
    min_tokens_holds_stop_ids=False,
)
LLAMA_CPP = Dialect(
    name="llama.cpp",
    owner="llamacpp",
    path="/completion",
    prompt_field="prompt",
    read=_read_llama,
    renamed={
        "repetition_penalty": "repeat_penalty", "max_tokens": "n_predict", "min_tokens": "", "stop_token_ids": "",
    },
    own_fields={"cache_prompt": False, "return_tokens": True},
    min_tokens_holds_stop_ids=False,
    renew_unused=True,
    closes_after_a_stream=True,
)  # fmt: skip
# Parameters outside OpenAI's API. Greedy decoding needs none of them.
_TOKEN_PARAMETERS = ("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "stop_token_ids")
CHAT_FIELD = "messages"
OPENAI = Dialect(
    name="openai",
    owner="",
    path="/v1/completions",
    prompt_field="prompt",
    read=_read_text,
    renamed=dict.fromkeys(_TOKEN_PARAMETERS, ""),
    sends_text=True,
    openai_fields=True,
)
OPENAI_CHAT = replace(OPENAI, name="openai-chat", path="/v1/chat/completions", prompt_field=CHAT_FIELD)
# Fields that `--api-omit` and `--api-rename` may name.
MAY_RENAME = ("max_tokens", "min_tokens", "temperature", "top_p", "seed")
MAY_OMIT = ("temperature", "top_p", "seed", "min_tokens", "ignore_eos", "stream_options")
DIALECTS = {
    dialect.name: dialect for dialect in (VLLM, VLLM_TOKENS, SGLANG, TENSORRT_LLM, LLAMA_CPP, OPENAI, OPENAI_CHAT)
}
ROUTES = tuple(dict.fromkeys(dialect.path for dialect in DIALECTS.values()))
_ALIASES = {"max_completion_tokens": "max_tokens", "max_output_tokens": "max_tokens"} | {
    sent: name for dialect in DIALECTS.values() for name, sent in dialect.renamed.items() if sent
}
SENT_FIELDS = frozenset(
    {
        *SamplingPolicy.model_fields, *_TOKEN_PARAMETERS, "ignore_eos", "model", "sampling_params", "stream",
        "stream_interval", "stream_options",
    }
).union(
    *((dialect.prompt_field, dialect.id_field or "", *dialect.own_fields) for dialect in DIALECTS.values()),
    *(dialect.own_parameters for dialect in DIALECTS.values()),
)  # fmt: skip
# Other fields that change the prompts, or how many tokens a response has.
_OTHER_FIELDS = frozenset(
    {
        "beam_width", "best_of", "echo", "input", "length_penalty", "n", "prompt_embeds", "prompt_token_ids", "stop",
        "stop_sequences", "suffix", "text", "truncate_prompt_tokens", "use_beam_search",
    }
)  # fmt: skip


def fix_of_field(name: str) -> str:
    """Return what to type instead of a field of `--extra-body` that changes what is measured; "" for other fields."""
    parameter = _ALIASES.get(name, name)
    if parameter in SamplingPolicy.model_fields:
        return f"give --sampling-arg {parameter}=VALUE"
    if name == "model":
        return "give --api-model-name NAME"
    return f"remove {name} from --extra-body" if name in SENT_FIELDS | _OTHER_FIELDS else ""
