"""Servers whose events look like OpenAI's completions with token ids added: vLLM's two routes and TensorRT-LLM's.

Read in: vLLM 0.32.0, vllm/entrypoints/openai/completion and vllm/entrypoints/scale_out/token_in_token_out;
TensorRT-LLM, tensorrt_llm/serve/openai_protocol.py.
"""

from typing import Any, ClassVar

import msgspec

from runs.benchmark import SamplingPolicy
from sut.endpoint.dialects.dialect import NOTHING, BadResponse, Completion, Dialect, TokenId, error_words


class _Choice(msgspec.Struct):
    token_ids: list[TokenId] | None = None
    finish_reason: str | None = None
    prompt_token_ids: msgspec.Raw = NOTHING


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    prompt_token_ids: msgspec.Raw = NOTHING
    id: str | None = None
    request_id: str | None = None
    error: msgspec.Raw = NOTHING
    message: str | None = None  # of an error without an object around it


_decode = msgspec.json.Decoder(_Event).decode
_NULL = b"null"


class _Completions(Dialect):
    """What the three have in common. `own`: what else each is told of a prompt of ids and an answer of ids."""

    path = "/v1/completions"
    prompt_field = "prompt"
    own: ClassVar[dict[str, bool]]

    def fields(self, sampling: SamplingPolicy, stop_ids: tuple[int, ...]) -> dict[str, Any]:
        stream = {"stream": True, "stream_options": {"include_usage": True}} if self.streaming else {"stream": False}
        return {"model": self.model, **self._asked(self.parameters(sampling, stop_ids)), **self.own, **stream}

    def _asked(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return parameters

    def read(self, payload: bytes, answer: Completion) -> int:
        event = _decode(payload)
        if event.choices is None:
            said = bytes(event.error) or (event.message or "").encode() or payload
            raise BadResponse(f"the server reports an error: {error_words(said)}")
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
    if said and said != _NULL:
        answer.prompt_ids = said


class VllmCompletions(_Completions):
    """vLLM's `/v1/completions` with `return_token_ids`. It makes text too, which is thrown away."""

    name = "vllm"
    id_field = "request_id"
    two_chunks = True
    own: ClassVar = {"add_special_tokens": False, "return_token_ids": True}


class VllmTokens(_Completions):
    """vLLM's token-in-token-out route, there with `--enable-scale-out` or `--tokens-only`: no text is made."""

    name = "vllm-tokens"
    path = "/inference/v1/generate"
    prompt_field = "token_ids"
    id_field = "request_id"
    two_chunks = True
    own: ClassVar = {"return_token_ids": True}

    def _asked(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return {"sampling_params": {**parameters, "detokenize": False}}


class TensorRtLlm(_Completions):
    """`trtllm-serve`: `/v1/completions` with `detokenize` off. It refuses fields that it does not know."""

    name = "tensorrt-llm"
    min_tokens_holds_stop_ids = False
    renamed = dict.fromkeys(("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"), "")
    own: ClassVar = {"add_special_tokens": False, "detokenize": False}
