"""Responses of each kind of server by its documents, with which the dialects of the client are tested.

vLLM 0.32.0 (vllm/entrypoints), SGLang (docs/basic_usage/sampling_params), TensorRT-LLM
(tensorrt_llm/serve/openai_protocol.py), llama.cpp (tools/server/README.md).
"""

import json
from typing import Any

from tests.support.servers.http_server import PAUSE_S, ServerReply, Step, event, json_reply, response_ids

EVENT_STREAM = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"
TENSORRT_FIELDS = {
    "model", "prompt", "temperature", "top_p", "top_k", "seed", "min_tokens", "max_tokens", "stop_token_ids",
    "add_special_tokens", "detokenize", "stream", "stream_options",
}  # fmt: skip


def stream(*steps: Step) -> ServerReply:
    return ServerReply(steps, content_type=EVENT_STREAM)


def vllm(body: dict[str, Any]) -> ServerReply:
    """Reply as `/v1/completions` with `return_token_ids`."""
    prompt = body["prompt"]
    ids = response_ids(prompt, body["max_tokens"], body["min_tokens"], body["stop_token_ids"])
    return _openai(body, prompt, ids)


def vllm_tokens(body: dict[str, Any]) -> ServerReply:
    """Reply as `/inference/v1/generate`."""
    prompt, sampling = body["token_ids"], body["sampling_params"]
    ids = response_ids(prompt, sampling["max_tokens"], sampling["min_tokens"], sampling["stop_token_ids"])
    return _openai(body, prompt, ids, prompt_in_choice=False)


def tensorrt_llm(body: dict[str, Any]) -> ServerReply:
    """Reply as `trtllm-serve`: it refuses unknown fields, and repeats no prompt."""
    if unknown := body.keys() - TENSORRT_FIELDS:
        return json_reply({"object": "error", "message": f"Extra inputs: {sorted(unknown)}", "code": 400}, 400)
    assert body["detokenize"] is False
    return _openai(body, body["prompt"], response_ids(body["prompt"], body["max_tokens"]), repeats_prompt=False)


def _openai(
    body: dict[str, Any],
    prompt: list[int],
    ids: list[int],
    *,
    repeats_prompt: bool = True,
    prompt_in_choice: bool = True,
) -> ServerReply:
    reason = "length" if len(ids) == (body.get("max_tokens") or body["sampling_params"]["max_tokens"]) else "stop"
    usage = {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(ids),
        "total_tokens": len(prompt) + len(ids),
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    repeated = {"prompt_token_ids": prompt} if repeats_prompt else {}
    named = {"request_id" if "sampling_params" in body else "id": f"cmpl-{body.get('request_id', 1)}"}
    in_choice, outside = (repeated, {}) if prompt_in_choice else ({}, repeated)
    if not body["stream"]:
        choice = {"index": 0, "text": "né", "token_ids": ids, "finish_reason": reason, "stop_reason": None, **in_choice}
        return json_reply({**named, "choices": [choice], "usage": usage, **outside})
    assert body["stream_options"]["include_usage"]
    first = {"index": 0, "text": "é", "token_ids": ids[:1], "finish_reason": None, **in_choice}
    rest = {"index": 0, "text": "é", "token_ids": ids[1:], "finish_reason": reason}
    return stream(
        event({**named, "choices": [first], **outside}),
        PAUSE_S,
        event({**named, "choices": [rest]}),
        event({**named, "choices": [], "usage": usage}),
        DONE,
    )


def sglang(body: dict[str, Any], *, incremental: bool = False) -> ServerReply:
    """Reply as `/generate`: all IDs so far in each event, or the new ones with `--incremental-streaming-output`."""
    prompt, sampling = body["input_ids"], body["sampling_params"]
    ids = response_ids(prompt, sampling["max_new_tokens"], sampling["min_new_tokens"], sampling["stop_token_ids"])
    ended = len(ids) < sampling["max_new_tokens"]
    reason = {"type": "stop", "matched": ids[-1]} if ended else {"type": "length", "length": len(ids)}

    def with_usage(count: int, finish: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "id": body["rid"],
            "finish_reason": finish,
            "prompt_tokens": len(prompt),
            "completion_tokens": count,
            "cached_tokens": 0,
        }

    if not body["stream"]:
        return json_reply({"text": "né", "output_ids": ids, "meta_info": with_usage(len(ids), reason)})
    rest = ids[1:] if incremental else ids
    return stream(
        event({"text": None, "output_ids": ids[:1], "meta_info": with_usage(1, None)}),
        PAUSE_S,
        event({"text": "né", "output_ids": rest, "meta_info": with_usage(len(ids), reason)}),
        DONE,
    )


def sglang_incremental(body: dict[str, Any]) -> ServerReply:
    return sglang(body, incremental=True)


def llama_cpp(body: dict[str, Any]) -> ServerReply:
    """Reply as `/completion`: one event per token, the counts in the last one, no `[DONE]`."""
    assert body["return_tokens"] is True
    assert body["cache_prompt"] is False
    prompt = body["prompt"]
    ids = response_ids(prompt, body["n_predict"])
    last = {
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": "limit",
        "tokens_predicted": len(ids),
        "tokens_evaluated": len(prompt),
        "truncated": False,
        "timings": {"cache_n": 0, "prompt_n": len(prompt)},
    }
    if not body["stream"]:
        return json_reply({**last, "content": "né", "tokens": ids})

    def part(number: int) -> Step:
        return event({"content": "é", "tokens": [ids[number]], "stop": False, "tokens_predicted": number + 1})

    return stream(part(0), PAUSE_S, *map(part, range(1, len(ids))), event(last))


def text_only(body: dict[str, Any]) -> ServerReply:
    """Reply as a server without IDs, which drops unknown fields."""
    usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": 2}
    choice = {"index": 0, "text": "hello", "finish_reason": "length"}
    if not body["stream"]:
        return json_reply({"choices": [choice], "usage": usage})
    return stream(event({"choices": [choice]}), event({"choices": [], "usage": usage}), DONE)


def payloads(reply: ServerReply) -> list[Step]:
    """Return the steps of a reply, for a change by a test."""
    return list(reply.steps)


def with_changed_content(step: Step, change: Any) -> bytes:
    """Return an event with its content changed in place."""
    assert isinstance(step, bytes)
    content = json.loads(step.removeprefix(b"data: "))
    change(content)
    return event(content)
