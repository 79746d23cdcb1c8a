"""The requests for completions that each kind of server accepts: a row of `DIALECTS` for each kind.

Two rows are for servers that send text instead of token IDs; sut/http/text.py counts its tokens. sut/http/events.py
reads the responses. This module imports little, because the command line needs the names of the dialects.

Sources: vLLM 0.32.0, vllm/entrypoints/openai/completion and vllm/entrypoints/scale_out/token_in_token_out;
TensorRT-LLM, tensorrt_llm/serve/openai_protocol.py; SGLang, docs/basic_usage/sampling_params; llama.cpp,
tools/server/README.md.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

import orjson

from runs.benchmark import SamplingPolicy

EventFormat = Literal["completion", "sglang", "llama", "text"]  # see `READERS` in sut/http/events.py
CHAT_FIELD = "messages"


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


@dataclass(frozen=True)
class Dialect:
    """One server's API."""

    name: str
    owner: str  # `owned_by` in the server's list of models; "" if any server may have this API
    path: str
    prompt_field: str
    format: EventFormat
    _: KW_ONLY
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


# Parameters outside OpenAI's API. Greedy decoding needs none of them.
_TOKEN_PARAMETERS = ("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "stop_token_ids")
_ONLY_OPENAI = dict.fromkeys(_TOKEN_PARAMETERS, "")
# Name, owner, path, field of the prompt and format of the events; then the properties in which a server differs.
_ROWS = (
    Dialect(  # It also generates text, which the client ignores.
        "vllm", "vllm", "/v1/completions", "prompt", "completion",
        id_field="request_id", own_fields={"add_special_tokens": False, "return_token_ids": True}, openai_fields=True,
        counts_each_chunk=True, two_chunks=True,
    ),
    Dialect(  # The token-in-token-out route, with `--enable-scale-out` or `--tokens-only`, generates no text.
        "vllm-tokens", "vllm", "/inference/v1/generate", "token_ids", "completion",
        id_field="request_id", own_parameters={"detokenize": False}, nested=True, own_fields={"return_token_ids": True},
        openai_fields=True, two_chunks=True,
    ),
    Dialect(
        "sglang", "sglang", "/generate", "input_ids", "sglang",
        renamed={"seed": "sampling_seed", "min_tokens": "min_new_tokens", "max_tokens": "max_new_tokens"},
        id_field="rid", nested=True, two_chunks=True,
    ),
    Dialect(  # `trtllm-serve` refuses unknown fields.
        "tensorrt-llm", "tensorrt_llm", "/v1/completions", "prompt", "completion",
        renamed=dict.fromkeys(("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"), ""),
        own_fields={"add_special_tokens": False, "detokenize": False}, openai_fields=True,
        min_tokens_holds_stop_ids=False,
    ),
    Dialect(
        "llama.cpp", "llamacpp", "/completion", "prompt", "llama",
        renamed={
            "repetition_penalty": "repeat_penalty", "max_tokens": "n_predict", "min_tokens": "", "stop_token_ids": "",
        },
        own_fields={"cache_prompt": False, "return_tokens": True}, min_tokens_holds_stop_ids=False, renew_unused=True,
        closes_after_a_stream=True,
    ),
    Dialect(
        "openai", "", "/v1/completions", "prompt", "text",
        renamed=_ONLY_OPENAI, sends_text=True, openai_fields=True,
    ),
    Dialect(
        "openai-chat", "", "/v1/chat/completions", CHAT_FIELD, "text",
        renamed=_ONLY_OPENAI, sends_text=True, openai_fields=True,
    ),
)  # fmt: skip
DIALECTS = {dialect.name: dialect for dialect in _ROWS}
# Fields that `--api-omit` and `--api-rename` may name.
MAY_RENAME = ("max_tokens", "min_tokens", "temperature", "top_p", "seed")
MAY_OMIT = ("temperature", "top_p", "seed", "min_tokens", "ignore_eos", "stream_options")
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
