"""How each kind of server is asked for a completion of token ids, and how it answers: write a request's body, and read
the response into a `Completion`.

Read in: vLLM 0.32.0, vllm/entrypoints/openai/completion and vllm/entrypoints/scale_out/token_in_token_out;
TensorRT-LLM, tensorrt_llm/serve/openai_protocol.py; SGLang, docs/basic_usage/sampling_params and
python/sglang/srt/managers (tokenizer_manager.py, io_struct.py); llama.cpp, tools/server/README.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import msgspec
import orjson

from runs.benchmark import SamplingPolicy

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]  # LoadGen is given int32
_NOTHING = msgspec.Raw()  # default of a part that is kept undecoded
_WORDS_OF_AN_ERROR = 300


class BadResponse(Exception):
    """A response that is wrong. The text says what is wrong; the client adds server and query."""


@dataclass(slots=True)
class Completion:
    """What came of one response so far; None where the server did not say."""

    ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    prompt_ids: bytes | None = None  # as JSON, where the server repeats them
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    request_id: str | None = None


class BodyTemplate:
    """A request's body without its id and the prompt's ids; the rest is the same for all."""

    def __init__(self, fields: dict[str, Any], prompt_field: str, id_field: str | None) -> None:
        self._head = orjson.dumps(fields)[:-1] + b"," + orjson.dumps(prompt_field) + b":"
        self._id_name = b"," + orjson.dumps(id_field) + b":" if id_field else b""

    def body(self, prompt_ids: list[int], request_id: str) -> bytes:
        own_id = self._id_name + orjson.dumps(request_id) if self._id_name else b""
        return self._head + orjson.dumps(prompt_ids) + own_id + b"}"


@dataclass(eq=False)
class Dialect(ABC):
    """One server's API."""

    model: str  # the model's name at the server
    sampling: SamplingPolicy  # sent in full
    _: KW_ONLY
    streaming: bool  # whether ids come as they are made, or all at the end

    name: ClassVar[str]
    owner: ClassVar[str]  # `owned_by` in the server's list of models
    path: ClassVar[str]
    prompt_field: ClassVar[str]
    id_field: ClassVar[str | None] = None  # of the request's id, with which the answer's id then ends
    renamed: ClassVar[Mapping[str, str]] = {}  # what the server calls sampling parameters; "": it has none
    own_parameters: ClassVar[Mapping[str, Any]] = {}  # sent with the sampling parameters
    nested: ClassVar[bool] = True  # sampling parameters have a field of their own
    own_fields: ClassVar[Mapping[str, Any]] = {}  # sent beside them
    two_chunks: ClassVar[bool] = False  # has a stream interval, so an answer comes in two chunks
    min_tokens_holds_stop_ids: ClassVar[bool] = True  # min_tokens also holds back stop ids, not only the model's EOS
    renew_unused: ClassVar[bool] = False  # the server closes unused connections
    closes_after_a_stream: ClassVar[bool] = False  # the server does, although its head says keep-alive

    def template(self, sampling: SamplingPolicy | None = None, stop_ids: tuple[int, ...] = ()) -> BodyTemplate:
        """The body for the sampling of the leg, or for another one that a probe asks for."""
        sampling = sampling or self.sampling
        # All sampling parameters: for those not sent, a server may use generation_config.json.
        asked = {**asdict(sampling), "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0}
        asked |= {"frequency_penalty": 0.0, "stop_token_ids": list(stop_ids)}
        named = {self.renamed.get(name, name): value for name, value in asked.items()}
        named.pop("", None)
        named |= self.own_parameters
        if self.two_chunks and self.streaming:
            named["stream_interval"] = sampling.max_tokens + 1
        parameters = {"sampling_params": named} if self.nested else named
        fields = {**parameters, **self.own_fields, "stream": self.streaming, **self.more_fields()}
        return BodyTemplate(fields, self.prompt_field, self.id_field)

    def more_fields(self) -> dict[str, Any]:
        """Fields that are not the same for all legs."""
        return {}

    def not_asked(self) -> list[str]:
        """Parameters of the sampling that the server lacks."""
        if self.renamed.get("min_tokens") != "":
            return []
        return [f"{self.name} has no min_tokens; every answer is checked to have {self.sampling.min_tokens} or more"]

    @abstractmethod
    def read(self, payload: bytes, answer: Completion) -> int:
        """Read one event, or the whole body where nothing is streamed, into `answer`.

        Returns:
            How many ids came with it.

        Raises:
            BadResponse: the server reports an error.
            msgspec.DecodeError: it is not the JSON that the dialect speaks.
        """


def error_words(said: bytes) -> str:
    """A server's error on one line, shortened."""
    return " ".join(said.decode("utf-8", "replace").split())[:_WORDS_OF_AN_ERROR]


def _reported(said: bytes) -> BadResponse:
    return BadResponse(f"the server reports an error: {error_words(said)}")


class _Choice(msgspec.Struct):
    token_ids: list[TokenId] | None = None
    finish_reason: str | None = None
    prompt_token_ids: msgspec.Raw = _NOTHING


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _CompletionEvent(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    prompt_token_ids: msgspec.Raw = _NOTHING
    id: str | None = None
    request_id: str | None = None
    error: msgspec.Raw = _NOTHING
    message: str | None = None  # of an error without an object around it


_decode_completion = msgspec.json.Decoder(_CompletionEvent).decode


class _Completions(Dialect):
    """Servers whose events look like OpenAI's completions with token ids added."""

    path = "/v1/completions"
    prompt_field = "prompt"
    nested = False

    def more_fields(self) -> dict[str, Any]:
        return {"model": self.model} | ({"stream_options": {"include_usage": True}} if self.streaming else {})

    def read(self, payload: bytes, answer: Completion) -> int:
        event = _decode_completion(payload)
        if event.choices is None:
            raise _reported(bytes(event.error) or (event.message or "").encode() or payload)
        if event.usage is not None:
            answer.prompt_tokens = event.usage.prompt_tokens
            answer.completion_tokens = event.usage.completion_tokens
            if event.usage.prompt_tokens_details is not None:
                answer.cached_tokens = event.usage.prompt_tokens_details.cached_tokens
        answer.request_id = event.request_id or event.id
        _keep_prompt(event.prompt_token_ids, answer)
        if not event.choices:
            return 0
        choice = event.choices[0]
        _keep_prompt(choice.prompt_token_ids, answer)
        if choice.finish_reason is not None:
            answer.finish_reason = choice.finish_reason
        if not choice.token_ids:
            return 0
        answer.ids += choice.token_ids
        return len(choice.token_ids)


def _keep_prompt(raw: msgspec.Raw, answer: Completion) -> None:
    said = bytes(raw)
    if said and said != b"null":
        answer.prompt_ids = said


class VllmCompletions(_Completions):
    """vLLM's `/v1/completions` with `return_token_ids`. It makes text too, which is thrown away."""

    name = "vllm"
    owner = "vllm"
    id_field = "request_id"
    two_chunks = True
    own_fields: ClassVar = {"add_special_tokens": False, "return_token_ids": True}


class VllmTokens(_Completions):
    """vLLM's token-in-token-out route, there with `--enable-scale-out` or `--tokens-only`: no text is made."""

    name = "vllm-tokens"
    owner = "vllm"
    path = "/inference/v1/generate"
    prompt_field = "token_ids"
    id_field = "request_id"
    two_chunks = True
    nested = True
    own_parameters: ClassVar = {"detokenize": False}
    own_fields: ClassVar = {"return_token_ids": True}


class TensorRtLlm(_Completions):
    """`trtllm-serve`: `/v1/completions` with `detokenize` off. It refuses fields that it does not know."""

    name = "tensorrt-llm"
    owner = "tensorrt_llm"
    min_tokens_holds_stop_ids = False
    renamed = dict.fromkeys(("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"), "")
    own_fields: ClassVar = {"add_special_tokens": False, "detokenize": False}


class _FinishReason(msgspec.Struct):
    type: str
    message: str | None = None


class _MetaInfo(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    finish_reason: _FinishReason | None = None
    cached_tokens: int | None = None
    id: str | None = None


class _SglangEvent(msgspec.Struct):
    output_ids: list[TokenId] | None = None
    meta_info: _MetaInfo | None = None
    error: msgspec.Raw = _NOTHING


_decode_sglang = msgspec.json.Decoder(_SglangEvent).decode


class SglangGenerate(Dialect):
    """SGLang's own `/generate`. Its stream repeats all ids so far with each event, unless the server was told
    otherwise."""

    name = "sglang"
    owner = "sglang"
    path = "/generate"
    prompt_field = "input_ids"
    id_field = "rid"
    two_chunks = True
    renamed: ClassVar = {"seed": "sampling_seed", "min_tokens": "min_new_tokens", "max_tokens": "max_new_tokens"}
    _repeats: bool | None = None  # whether its events hold all ids so far; not known before the second of an answer

    def read(self, payload: bytes, answer: Completion) -> int:
        event = _decode_sglang(payload)
        if event.meta_info is None:
            raise _reported(bytes(event.error) or payload)
        if event.output_ids is None:
            raise BadResponse("the answer has no output_ids: the server gives text only")
        before, ids, told = len(answer.ids), event.output_ids, event.meta_info
        grows, repeats = told.completion_tokens == before + len(ids), told.completion_tokens == len(ids)
        if before and self._repeats is None and grows != repeats:
            self._repeats = repeats  # a server does the one or the other
        if grows and not (before and self._repeats):
            answer.ids += ids
        elif repeats and self._repeats and ids[:before] == answer.ids:
            answer.ids = ids
        else:
            raise BadResponse(
                f"{len(ids)} output_ids came after {before}, and completion_tokens is {told.completion_tokens}: "
                "neither new ids nor all so far"
            )
        answer.prompt_tokens, answer.completion_tokens = told.prompt_tokens, told.completion_tokens
        answer.cached_tokens, answer.request_id = told.cached_tokens, told.id
        if told.finish_reason is not None:
            if told.finish_reason.type == "abort":
                said = error_words((told.finish_reason.message or "").encode())
                raise BadResponse(f"the server aborted the request: {said}")
            answer.finish_reason = told.finish_reason.type
        return len(answer.ids) - before


class _Timings(msgspec.Struct):
    cache_n: int | None = None


class _LlamaEvent(msgspec.Struct):
    tokens: list[TokenId] | None = None
    stop: bool = False
    stop_type: str | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    timings: _Timings | None = None
    truncated: bool = False
    error: msgspec.Raw = _NOTHING


_decode_llama = msgspec.json.Decoder(_LlamaEvent).decode
_FINISH_REASONS = {"limit": "length", "eos": "stop", "word": "stop"}


class LlamaCppCompletion(Dialect):
    """llama.cpp's own `/completion`. It has no `min_tokens`, and leaves ids out of a stream whose text ends in half a
    character; the count that it gives at the end shows both."""

    name = "llama.cpp"
    owner = "llamacpp"
    path = "/completion"
    prompt_field = "prompt"
    renamed: ClassVar = {
        "repetition_penalty": "repeat_penalty", "max_tokens": "n_predict", "min_tokens": "", "stop_token_ids": "",
    }  # fmt: skip
    nested = False
    own_fields: ClassVar = {"cache_prompt": False, "return_tokens": True}
    min_tokens_holds_stop_ids = False
    renew_unused = True
    closes_after_a_stream = True

    def read(self, payload: bytes, answer: Completion) -> int:
        event = _decode_llama(payload)
        if event.tokens is None:
            raise _reported(bytes(event.error) or payload)
        answer.ids += event.tokens
        if event.tokens_predicted is not None and event.tokens_predicted != len(answer.ids):
            raise BadResponse(f"{len(answer.ids)} ids came so far, and the server counts {event.tokens_predicted}")
        if event.stop:
            if event.truncated:
                raise BadResponse("the server cut the context: raise its context size")
            answer.finish_reason = _FINISH_REASONS.get(event.stop_type or "", event.stop_type)
            answer.prompt_tokens, answer.completion_tokens = event.tokens_evaluated, event.tokens_predicted
            answer.cached_tokens = event.timings.cache_n if event.timings else None
        return len(event.tokens)


DIALECTS: dict[str, type[Dialect]] = {
    dialect.name: dialect for dialect in (VllmCompletions, VllmTokens, SglangGenerate, TensorRtLlm, LlamaCppCompletion)
}
