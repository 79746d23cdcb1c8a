"""Requests to a server before and after a run: each response is limited, and reported without names of Python."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runs.errors import InputError, SetupError
from sut.http import server
from sut.http.address import Access, ServerAddress

OK = b"HTTP/1.1 200 OK\r\n"


async def _models(address: ServerAddress, access: Access) -> server.Reply:
    return await server.ask(address, access, "/v1/models")


async def _ask_server(
    response: bytes, question: Callable[[ServerAddress, Access], Awaitable[Any]] = _models, *, closes: bool = True
) -> Any:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        if closes:
            writer.close()
        else:
            await asyncio.sleep(60.0)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        return await question(ServerAddress.parse(f"http://127.0.0.1:{port}"), Access())


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (OK + b"content-length: 5000000\r\n\r\n" + b"x" * 5_000_000, "the response is larger than 4 MiB"),
        (OK + b"content-length: 10\r\n\r\nabc", "not a complete HTTP response"),
        (OK + b"x: " + b"x" * 1_000_000, "not a complete HTTP response"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "not a complete HTTP response"),
        (b"", "not a complete HTTP response"),
    ],
)
def test_invalid_responses_are_refused(response: bytes, words: str) -> None:
    with pytest.raises(SetupError, match=words) as refused:
        asyncio.run(_ask_server(response))
    assert "/v1/models" in refused.value.message
    assert not re.search(r"Error|Exception|bytearray|b'", refused.value.message)


def test_a_server_without_model_list_requires_a_model_name() -> None:
    absent = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
    card = asyncio.run(_ask_server(absent, lambda address, access: server.read_card(address, access, "name")))
    assert card == server.ModelCard("name")
    with pytest.raises(SetupError, match="status 404") as refused:
        asyncio.run(_ask_server(absent, lambda address, access: server.read_card(address, access, None)))
    assert "--api-model-name" in refused.value.fix


def test_a_silent_server_is_refused_after_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "RESPONSE_TIMEOUT_S", 0.5)
    with pytest.raises(SetupError, match="did not respond to /v1/models within"):
        asyncio.run(_ask_server(OK, closes=False))


@pytest.mark.parametrize(
    ("page", "generated"),
    [
        (b"vllm:generation_tokens_total 12\n", 12.0),
        (b"vllm:generation_tokens_total NaN\n", None),
        (b"vllm:generation_tokens_total 1e300\n", None),
        (b'vllm:x_{a="b", ="d"}"1.0 1\n', None),
        (b'[{"iteration": 1}]', None),
        (b"\xff\xfe", None),
    ],
)
def test_invalid_counters_are_ignored(page: bytes, generated: float | None) -> None:
    response = OK + b"content-length: %d\r\n\r\n" % len(page) + page
    assert asyncio.run(_ask_server(response, server.read_counters)).generated == generated


@pytest.mark.parametrize(
    "card", [{"id": "x" * 5_000}, {"id": "m", "max_model_len": -1}, {"id": 3}, {"id": "m", "owned_by": "x" * 5_000}]
)
def test_an_invalid_model_list_is_refused(card: dict[str, Any]) -> None:
    page = json.dumps({"data": [card]}).encode()
    response = OK + b"content-length: %d\r\n\r\n" % len(page) + page
    with pytest.raises(SetupError, match="lists no models"):
        asyncio.run(_ask_server(response, lambda address, access: server.read_card(address, access, None)))


@pytest.mark.parametrize("host", ["xn--", "h\x00st", "\u2024\u2024"])
def test_an_invalid_host_name_is_refused(host: str) -> None:
    with pytest.raises(InputError, match="--api-server http://"):
        asyncio.run(_models(ServerAddress.parse(f"http://{host}:8000"), Access()))


def test_redirects_and_compression_are_not_followed() -> None:
    redirect = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    assert asyncio.run(_ask_server(redirect)).status == 307
    packed = OK + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc"
    assert asyncio.run(_ask_server(packed)) == server.Reply(200, b"abc")
