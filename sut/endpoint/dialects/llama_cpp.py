"""llama.cpp's own `/completion`. It has no `min_tokens`, and leaves ids out of a stream whose text ends in half a
character; the count that it gives at the end shows both.

Read in: llama.cpp, tools/server/README.md.
"""

from typing import Any, ClassVar

import msgspec

from runs.benchmark import SamplingPolicy
from sut.endpoint.dialects.dialect import NOTHING, BadResponse, Completion, Dialect, TokenId, error_words


class _Timings(msgspec.Struct):
    cache_n: int | None = None


class _Event(msgspec.Struct):
    tokens: list[TokenId] | None = None
    stop: bool = False
    stop_type: str | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    timings: _Timings | None = None
    truncated: bool = False
    error: msgspec.Raw = NOTHING


_decode = msgspec.json.Decoder(_Event).decode
_FINISH_REASONS = {"limit": "length", "eos": "stop", "word": "stop"}


class LlamaCppCompletion(Dialect):
    name = "llama.cpp"
    path = "/completion"
    prompt_field = "prompt"
    renew_unused = True
    closes_after_a_stream = True
    renamed: ClassVar = {
        "repetition_penalty": "repeat_penalty", "max_tokens": "n_predict", "min_tokens": "", "stop_token_ids": "",
    }  # fmt: skip
    min_tokens_holds_stop_ids = False

    def fields(self, sampling: SamplingPolicy, stop_ids: tuple[int, ...]) -> dict[str, Any]:
        return {
            **self.parameters(sampling, stop_ids),
            "cache_prompt": False,
            "return_tokens": True,
            "stream": self.streaming,
        }

    def read(self, payload: bytes, answer: Completion) -> int:
        event = _decode(payload)
        if event.tokens is None:
            raise BadResponse(f"the server reports an error: {error_words(bytes(event.error) or payload)}")
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
