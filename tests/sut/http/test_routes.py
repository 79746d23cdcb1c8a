"""The route of a server: one function decides it, and only the named routes are requested."""

import pytest

from runs.errors import InputError, SetupError
from scenarios.launch.machine_checks import DoctorRequest, examine_machine
from sut.http.address import ServerAddress, with_route
from sut.http.http_engine import EndpointEngine
from sut.http.tokenizer import BYTES
from tests.support.servers.http_server import HttpServer, serving
from tests.support.servers.text_server import reply_text
from tests.sut.http.endpoint_runs import PROMPTS, SAMPLING, responses, started_engine

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@pytest.mark.parametrize(
    ("path", "prefix", "route", "models", "dialects"),
    [
        ("", "", "", "/v1/models", "vllm vllm-tokens sglang tensorrt-llm llama.cpp openai openai-chat"),
        ("/v1/", "", "", "/v1/models", "vllm vllm-tokens sglang tensorrt-llm llama.cpp openai openai-chat"),
        (CHAT, "", CHAT, "/v1/models", "openai-chat"),
        (f"{CHAT}/", "", CHAT, "/v1/models", "openai-chat"),
        (f"/eu{CHAT}", "/eu", CHAT, "/v1/models", "openai-chat"),
        (COMPLETIONS, "", COMPLETIONS, "/v1/models", "vllm tensorrt-llm openai"),
        ("/v3/chat/completions", "/v3", "/chat/completions", "/models", "openai-chat"),
        ("/v3/completions", "/v3", "/completions", "/models", "vllm tensorrt-llm openai"),
        ("/v1/account/gateway/chat/completions", "/v1/account/gateway", "/chat/completions", "/models", "openai-chat"),
        ("/inference/v1/generate", "", "/inference/v1/generate", "/v1/models", "vllm-tokens"),
        ("/generate", "", "/generate", "/v1/models", "sglang"),
        ("/completion", "", "/completion", "/v1/models", "llama.cpp"),
    ],
)
def test_the_path_of_a_url_selects_the_route(path: str, prefix: str, route: str, models: str, dialects: str) -> None:
    address = ServerAddress.parse(f"http://host:80{path}?api-version=1")
    assert (address.path, address.route, address.models_path) == (prefix, route, models)
    assert [dialect.name for dialect in address.dialects()] == dialects.split()
    assert ServerAddress.parse(address.text) == address
    assert ServerAddress.parse(address.text).route == route
    assert address.target(route) == f"{prefix}{route}?api-version=1"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings", "/eu/v1/chat"])
def test_a_route_of_another_api_is_refused(path: str) -> None:
    with pytest.raises(InputError, match=f"{path} is not the route of a supported API"):
        ServerAddress.parse(f"http://host{path}")


@pytest.mark.parametrize("query", ["key=sk-1", "api_key=sk-1", "a=1&X-Amz-Signature=sk-1", "access_token=sk-1"])
def test_a_key_in_the_query_is_refused_without_repeating_it(query: str) -> None:
    with pytest.raises(InputError) as refused:
        ServerAddress.parse(f"http://host/?{query}")
    assert "sk-1" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "route", "expected"),
    [
        ("http://host", CHAT, f"http://host{CHAT}"),
        ("http://host/v1/", CHAT, f"http://host{CHAT}"),
        ("http://host/v1?a=b", CHAT, f"http://host{CHAT}?a=b"),
        (f"http://host{CHAT}", CHAT, f"http://host{CHAT}"),
        (f"http://host{CHAT}", "", f"http://host{CHAT}"),
        ("http://host/v3", "/chat/completions", "http://host/v3/chat/completions"),
        ("http://a, http://b/", CHAT, f"http://a{CHAT},http://b{CHAT}"),
    ],
)
def test_a_route_is_added_to_a_url_once(url: str, route: str, expected: str) -> None:
    assert with_route(url, route) == expected


def test_a_url_with_another_route_is_refused() -> None:
    with pytest.raises(InputError, match="names another route"):
        with_route(f"http://host{CHAT}", COMPLETIONS)


async def test_only_the_named_route_is_requested() -> None:
    """One server has both routes, and one has only the other route."""
    async with HttpServer((COMPLETIONS, CHAT), reply_text, "somebody") as server:
        for route, dialect in ((CHAT, "openai-chat"), (COMPLETIONS, "openai"), ("", "openai")):
            server.lines.clear()
            async with started_engine(f"{server.url}{route}?api-version=1", model_path=BYTES) as engine:
                await responses(engine, PROMPTS[:1])
                await engine.observed()
            posted = {line for line in server.lines if line.startswith("POST")}
            assert posted == {f"POST {route or COMPLETIONS}?api-version=1"}, dialect
            assert all(line.endswith("?api-version=1") for line in server.lines)
    async with HttpServer(COMPLETIONS, reply_text, "somebody") as server:
        for more in ({"url": f"{server.url}{CHAT}"}, {"url": server.url, "dialect": "openai-chat"}):
            server.lines.clear()
            with pytest.raises(SetupError, match=f"has no {CHAT}"):
                async with started_engine(**more, model_path=BYTES):
                    pass
            assert {line for line in server.lines if line.startswith("POST")} == {f"POST {CHAT}"}


async def test_a_server_with_another_api_root_is_measured() -> None:
    path = "/v3/chat/completions"
    async with HttpServer(path, reply_text, "somebody", models_path="/v3/models") as server:
        engine = EndpointEngine(f"{server.url}{path}", SAMPLING, streaming=True, connections=1, model_path=BYTES)
        report = await engine.start()
        assert (await responses(engine, PROMPTS[:1]))[0][-1][0] == "done"
        await engine.stop()
    assert report.configuration["dialect"] == "openai-chat"


@pytest.mark.parametrize(("route", "dialect"), [("", "openai"), (CHAT, "openai-chat")])
def test_doctor_uses_the_route_of_the_url(route: str, dialect: str) -> None:
    with serving(HttpServer((COMPLETIONS, CHAT), reply_text, None)) as server:
        doctor_request = DoctorRequest(api_server=f"{server.url}{route}")
        texts = [finding.text for finding in examine_machine(doctor_request) if finding.rule == "machine/server"]
    assert f"dialect {dialect}, model model" in texts[0]
    assert not [text for text in texts if "None" in text]
