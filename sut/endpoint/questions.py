"""Control questions to a server, before and after a leg: what it is, what it serves, what it counts."""

import asyncio
import dataclasses
from dataclasses import dataclass, field
from typing import Any

import orjson
from prometheus_client.parser import text_string_to_metric_families

from runs.errors import InputError, SetupError
from sut.endpoint.address import Access, ServerAddress
from sut.endpoint.connection import USER_AGENT
from sut.endpoint.connection_pool import no_connection
from sut.endpoint.dialects.dialect import Dialect, error_words
from sut.endpoint.dialects.llama_cpp import LlamaCppCompletion
from sut.endpoint.dialects.openai import TensorRtLlm, VllmCompletions, VllmTokens
from sut.endpoint.dialects.sglang import SglangGenerate

ANSWER_TIMEOUT_S = 10.0
MOST_ANSWER_BYTES = 4 << 20

DIALECTS: dict[str, type[Dialect]] = {
    dialect.name: dialect for dialect in (VllmCompletions, VllmTokens, SglangGenerate, TensorRtLlm, LlamaCppCompletion)
}
# `owned_by` in each server's list of models. [vLLM, SGLang, TensorRT-LLM: ModelCard.owned_by; llama.cpp: /v1/models]
_BY_OWNER: dict[str, type[Dialect]] = {
    "vllm": VllmCompletions,
    "sglang": SglangGenerate,
    "tensorrt_llm": TensorRtLlm,
    "llamacpp": LlamaCppCompletion,
}
# Counters of prompt tokens taken from a cache, and of tokens generated. [each server's /metrics]
CACHE_HITS = ("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total", "llamacpp:prompt_tokens_cached_total")
GENERATED = ("vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total")
_INCOMPLETE = (400, 422)  # an existing route's answer to a body without fields
_CACHE_CONFIGURATION = "vllm:cache_config_info"
_CACHE_SETTINGS = ("block_size", "cache_dtype", "enable_prefix_caching", "kv_offloading_size", "sliding_window")
_SHOWN_METRICS = (
    *CACHE_HITS,
    *GENERATED,
    "vllm:prefix_cache_queries_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_preemptions_total",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:cache_hit_rate",
    "llamacpp:requests_processing",
    "llamacpp:requests_deferred",
)


@dataclass(frozen=True)
class Reply:
    """A whole response."""

    status: int
    content: bytes

    def json(self) -> Any:
        """The content, or None where it is no JSON."""
        try:
            return orjson.loads(self.content)
        except orjson.JSONDecodeError:
            return None


async def ask(address: ServerAddress, access: Access, path: str, body: bytes = b"") -> Reply:
    """GET one path, or POST a body to it. No redirect is followed, and no proxy of the environment is used.

    Raises:
        SetupError: no connection, no whole response, one that is too long, or none in time.
    """
    import httpx  # takes a tenth of a second, and every command imports this module

    fix = "is it an HTTP server?"
    key = {"authorization": f"Bearer {access.key}"} if access.key is not None else {}
    headers = {"user-agent": USER_AGENT, "accept-encoding": "identity", "content-type": "application/json", **key}
    verify = access.tls_context(address) or False  # False: not https, so that there is nothing to verify
    content = b""
    try:
        async with (
            asyncio.timeout(ANSWER_TIMEOUT_S),
            httpx.AsyncClient(verify=verify, trust_env=False, timeout=None) as client,
            client.stream("POST" if body else "GET", address.url + path, content=body, headers=headers) as response,
        ):
            async for part in response.aiter_raw():
                content += part
                if len(content) > MOST_ANSWER_BYTES:
                    raise SetupError(
                        f"server {address.url}, {path}: a response of more than {MOST_ANSWER_BYTES >> 20} MiB", fix
                    )
    except TimeoutError as error:
        raise SetupError(
            f"server {address.url} did not answer {path} within {ANSWER_TIMEOUT_S:.0f} s",
            "start it, correct the address, or see the server's log",
        ) from error
    except httpx.ConnectError as error:
        raise no_connection(address, error) from error
    except httpx.TransportError as error:
        raise SetupError(f"server {address.url}, {path}: the response is no complete HTTP response", fix) from error
    return Reply(response.status_code, content)


@dataclass(frozen=True)
class ServerFacts:
    """What a server reports of itself; None and empty where it does not."""

    owner: str | None
    version: str | None
    model: str
    model_root: str | None
    max_model_len: int | None
    prefix_caching: bool | None
    slots: int | None  # llama.cpp: requests at a time
    metrics: dict[str, float] = field(default_factory=dict)
    cache_configuration: dict[str, str] = field(default_factory=dict)

    def lasting(self) -> dict[str, Any]:
        """All that does not change while the server runs; equal for equal servers."""
        facts = dataclasses.asdict(self)
        del facts["metrics"]
        return facts


async def learn(address: ServerAddress, access: Access, model_name: str | None) -> ServerFacts:
    """Ask a server for everything that it reports.

    Raises:
        SetupError, InputError: see `read_card`.
    """
    card = await read_card(address, access, model_name)
    version = (await ask(address, access, "/version")).json()
    properties = (await ask(address, access, "/props")).json() if card.get("owned_by") == "llamacpp" else None
    sglang = (await ask(address, access, "/get_server_info")).json() if card.get("owned_by") == "sglang" else None
    metrics, configuration = await read_metrics(address, access)
    caching: bool | None = None
    if "enable_prefix_caching" in configuration:
        caching = configuration["enable_prefix_caching"] == "True"
    elif isinstance(sglang, dict) and isinstance(sglang.get("disable_radix_cache"), bool):
        caching = not sglang["disable_radix_cache"]
    versions = [said.get("version") for said in (version, sglang) if isinstance(said, dict)]
    versions += [properties.get("build_info")] if isinstance(properties, dict) else []
    return ServerFacts(
        owner=card.get("owned_by"),
        version=next((said for said in versions if isinstance(said, str)), None),
        model=card["id"],
        model_root=card.get("root"),
        max_model_len=card.get("max_model_len") if isinstance(card.get("max_model_len"), int) else None,
        prefix_caching=caching,
        slots=properties.get("total_slots") if isinstance(properties, dict) else None,
        metrics=metrics,
        cache_configuration=configuration,
    )


async def read_card(address: ServerAddress, access: Access, model_name: str | None) -> dict[str, Any]:
    """The server's entry for the model of this name, or for its only one.

    Raises:
        SetupError: it does not answer, refuses, or lists no models.
        InputError: it serves another model, or several and none was named.
    """
    reply = await ask(address, access, "/v1/models")
    if reply.status != 200:
        said = access.hidden(error_words(reply.content.strip().split(b"\n")[0]))
        raise SetupError(
            f"server {address.url}, GET /v1/models: status {reply.status}: {said or 'empty body'}",
            "give a key with --api-key-env"
            if reply.status in (401, 403)
            else "give the server's own address, http://HOST:PORT, without the path of an interface",
        )
    return _model_card(reply.json(), address, model_name)


def _model_card(listed: Any, address: ServerAddress, model_name: str | None) -> dict[str, Any]:
    data = listed.get("data") if isinstance(listed, dict) else None
    cards: list[dict[str, Any]] = [
        card for card in data or [] if isinstance(card, dict) and isinstance(card.get("id"), str)
    ]
    if not cards:
        raise SetupError(f"server {address.url} lists no models at /v1/models", "give the server's own address")
    names = [card["id"] for card in cards]
    if model_name is None and len(cards) > 1:
        raise InputError(
            f"server {address.url} serves several models: {', '.join(names[:5])}", "name one with --api-model-name"
        )
    if model_name is not None and model_name not in names:
        raise InputError(
            f"--api-model-name {model_name}: server {address.url} serves {', '.join(names[:5])}", "name one of these"
        )
    return cards[0 if model_name is None else names.index(model_name)]


async def choose_dialect(
    address: ServerAddress, access: Access, facts: ServerFacts, asked: str | None
) -> type[Dialect]:
    """The dialect that was asked for, one of `DIALECTS`; else the server's own.

    Raises:
        SetupError: the server is of no known kind.
    """
    if asked is not None:
        return DIALECTS[asked]
    found = _BY_OWNER.get(facts.owner or "")
    if found is None:
        raise SetupError(
            f"server {address.url} identifies itself as {facts.owner!r}, which is no known kind of server",
            f"give --api-dialect: {', '.join(DIALECTS)}",
        )
    if found is VllmCompletions and (await ask(address, access, VllmTokens.path, b"{}")).status in _INCOMPLETE:
        return VllmTokens  # makes no text; there with --enable-scale-out and --tokens-only, else 403 or 404
    return found


async def read_metrics(address: ServerAddress, access: Access) -> tuple[dict[str, float], dict[str, str]]:
    """The series that are recorded (summed over their labels), and vLLM's cache configuration; empty without.

    Raises:
        SetupError: the server does not answer at all.
    """
    reply = await ask(address, access, "/metrics")
    found: dict[str, float] = {}
    configuration: dict[str, str] = {}
    if reply.status != 200:
        return found, configuration
    try:
        for family in text_string_to_metric_families(reply.content.decode("utf-8", "replace")):
            for sample in family.samples:
                if sample.name in _SHOWN_METRICS:
                    found[sample.name] = found.get(sample.name, 0.0) + sample.value
                elif sample.name == _CACHE_CONFIGURATION:
                    configuration = {name: sample.labels[name] for name in _CACHE_SETTINGS if name in sample.labels}
    except ValueError:  # TensorRT-LLM has JSON there
        return {}, {}
    return found, configuration


def first_of(metrics: dict[str, float], names: tuple[str, ...]) -> float | None:
    """The first of these series that the server has."""
    return next((metrics[name] for name in names if name in metrics), None)
