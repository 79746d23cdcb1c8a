"""A box between client and server: what it does to answers is caught, or stands on record."""

import asyncio

import pytest

from tests.support import server_dialects as speak
from tests.support.http_server import HttpServer, Reply, answer_ids
from tests.support.http_tricks import ROWS
from tests.sut.endpoint.legs import look_through


def _server() -> HttpServer:
    """With a counter of the tokens that it makes."""

    def metrics() -> Reply:
        made = sum(
            len(answer_ids(body["prompt"], body["max_tokens"], body["min_tokens"], body["stop_token_ids"]))
            for body in server.requests
        )
        return Reply([f"# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total {made}\n".encode()])

    server = HttpServer("/v1/completions", speak.vllm, "vllm", {"/metrics": metrics})
    return server


@pytest.mark.parametrize("name", ROWS)
def test_what_a_box_does_is_caught_or_on_record(name: str) -> None:
    async def leg() -> None:
        async with _server() as server:
            await look_through(server.url, ROWS[name])

    asyncio.run(leg())
