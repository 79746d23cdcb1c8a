"""Each dialect with a server that responds as documented: IDs in, IDs out, counted and checked."""

import asyncio
from typing import Any

import pytest

from runs.errors import SetupError
from sut.engine import Request
from sut.http.address import Access
from sut.http.http_engine import EndpointEngine
from tests.support.processes.patience import patiently
from tests.support.servers import server_dialects
from tests.support.servers.http_server import HttpServer, MakeReply, response_ids
from tests.sut.http.endpoint_runs import PROMPTS, SAMPLING, SERVERS, WaitingListener, ask_all, started_engine


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("name", SERVERS)
async def test_ids_are_sent_and_received_in_each_dialect(name: str, streaming: bool) -> None:
    async with SERVERS[name]() as server:
        report, reported = await ask_all(server.url, streaming=streaming)
        assert report.configuration["dialect"] == name.split()[0]
        for prompt, events in zip(PROMPTS, reported, strict=True):
            ids = response_ids(prompt, SAMPLING.max_tokens)
            first = [("first", ids[0])] if streaming else []
            assert events == [*first, ("done", (ids, "length", 0))]
        assert all(body["stream"] is streaming for body in server.requests)


async def test_all_sampling_parameters_are_sent() -> None:
    async with SERVERS["vllm"]() as server:
        await ask_all(server.url)
        fields = {"temperature": 0.0, "top_p": 1.0, "top_k": 1, "seed": 42, "min_tokens": 1, "max_tokens": 8}
        assert fields.items() <= server.requests[-1].items()
        assert server.requests[-1]["prompt"] == PROMPTS[-1]


async def test_connections_to_llama_cpp_are_limited_by_its_slots() -> None:
    async with SERVERS["llama.cpp"]() as server:
        report, _ = await ask_all(server.url, connections=50)
        assert report.configuration["connections"] == 3
        assert report.configuration["probes"]["min_tokens_honoured"] is None
        assert "min_tokens" in report.configuration["not_asked_for"][0]


class _NeverTheSame:
    def __init__(self) -> None:
        self.requests = 0

    def __call__(self, body: dict[str, Any]) -> Any:
        self.requests += 1
        reply = server_dialects.vllm({**body, "prompt": body["prompt"], "stop_token_ids": []})
        steps = server_dialects.payloads(reply)

        def change(content: dict[str, Any]) -> None:
            content["choices"][0]["token_ids"] = [self.requests]

        return server_dialects.stream(server_dialects.with_changed_content(steps[0], change), *steps[1:])


@pytest.mark.parametrize(
    ("make_reply", "words"),
    [
        (server_dialects.text_only, "no token IDs"),
        (
            lambda body: server_dialects.vllm({**body, "prompt": [1, *body["prompt"]]}),  # a BOS in front
            "300 prompt IDs were sent, but the server reports 301 prompt tokens",
        ),
        (
            lambda body: server_dialects.vllm({**body, "prompt": body["prompt"][::-1]}),
            "the prompt IDs in the response differ",
        ),
        (lambda body: server_dialects.vllm({**body, "min_tokens": 0}), "min_tokens"),
        (
            lambda body: server_dialects.vllm({**body, "max_tokens": body["max_tokens"] + 1}),
            "the response has 9 token IDs; at most 8 were requested",
        ),
        (_NeverTheSame(), "only the first 0 token IDs"),
    ],
)
async def test_unsupported_sampling_is_refused_before_the_start(make_reply: MakeReply, words: str) -> None:
    async with HttpServer("/v1/completions", make_reply, "vllm") as server:
        with pytest.raises(SetupError, match=words) as refused:
            await ask_all(server.url)
        assert server.url in refused.value.message


async def test_the_dialect_of_an_unknown_server_can_be_named() -> None:
    async with HttpServer("/v1/completions", server_dialects.vllm, "somebody") as server:
        report, _ = await ask_all(server.url, dialect="vllm")
        assert report.configuration["dialect"] == "vllm"


async def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-a-key-of-the-tests"
    monkeypatch.setenv("SERVER_KEY", key)
    async with HttpServer("/v1/completions", server_dialects.vllm, "vllm", key=key) as server:
        with pytest.raises(SetupError, match="status 401") as refused:
            await ask_all(server.url)
        assert "--api-key-env" in refused.value.fix
        report, _ = await ask_all(server.url, access=Access.from_environment("SERVER_KEY"))
        assert key not in repr(report)

    def repeats(body: dict[str, Any]) -> Any:
        return server_dialects.json_reply({"error": f"{key} is not welcome"}, 403)

    async with HttpServer("/v1/completions", repeats, "vllm") as server:
        with pytest.raises(SetupError, match=r"status 403: .*\[key\] is not welcome") as refused:
            await ask_all(server.url, access=Access.from_environment("SERVER_KEY"))
        assert key not in str(refused.value)


async def test_proxy_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with SERVERS["vllm"]() as server:
        await ask_all(server.url)


def test_an_unreachable_server_is_refused() -> None:
    with pytest.raises(SetupError, match="accepts no connection"):
        asyncio.run(EndpointEngine("http://127.0.0.1:1", SAMPLING, streaming=True).start())


async def test_requests_may_have_different_output_lengths() -> None:
    async with SERVERS["vllm"]() as server, started_engine(server.url) as engine:
        listeners = [WaitingListener() for _ in range(3)]
        for seq, (listener, lengths) in enumerate(zip(listeners, [(3, 3), None, (5, 5)], strict=True)):
            engine.submit(Request(listener, [7, 8], 0, seq, seq, output_lengths=lengths))
        await patiently(asyncio.gather(*(listener.over.wait() for listener in listeners)), "the responses")
        assert [len(listener.events[-1][1][0]) for listener in listeners] == [3, SAMPLING.max_tokens, 5]
        bodies = server.requests[-3:]
        assert sorted(body["min_tokens"] for body in bodies) == [1, 3, 5]
