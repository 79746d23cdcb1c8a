"""SGLang's own `/generate`. Its stream repeats all ids so far with each event, unless the server was told otherwise.

Read in: SGLang, docs/basic_usage/sampling_params, python/sglang/srt/managers (tokenizer_manager.py, io_struct.py).
"""

from typing import Any, ClassVar

import msgspec

from runs.benchmark import SamplingPolicy
from sut.endpoint.dialects.dialect import NOTHING, BadResponse, Completion, Dialect, TokenId, error_words


class _FinishReason(msgspec.Struct):
    type: str
    message: str | None = None


class _MetaInfo(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    finish_reason: _FinishReason | None = None
    cached_tokens: int | None = None
    id: str | None = None


class _Event(msgspec.Struct):
    output_ids: list[TokenId] | None = None
    meta_info: _MetaInfo | None = None
    error: msgspec.Raw = NOTHING


_decode = msgspec.json.Decoder(_Event).decode


class SglangGenerate(Dialect):
    name = "sglang"
    path = "/generate"
    prompt_field = "input_ids"
    id_field = "rid"
    two_chunks = True
    renamed: ClassVar = {"seed": "sampling_seed", "min_tokens": "min_new_tokens", "max_tokens": "max_new_tokens"}
    _repeats: bool | None = None  # whether its events hold all ids so far; not known before the second of an answer

    def fields(self, sampling: SamplingPolicy, stop_ids: tuple[int, ...]) -> dict[str, Any]:
        return {"sampling_params": self.parameters(sampling, stop_ids), "stream": self.streaming}

    def read(self, payload: bytes, answer: Completion) -> int:
        event = _decode(payload)
        if event.meta_info is None:
            raise BadResponse(f"the server reports an error: {error_words(bytes(event.error) or payload)}")
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
