"""A server of the tests that computes for a while.

Usage: `python -m tests.support.servers.computing_server PORT [--after S] [--requests N]`. It listens after S seconds,
and ends with status 7 at the request after N. Tests start many of them, so it imports little.
"""

import argparse
import asyncio
import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

from tests.support.servers import server_dialects
from tests.support.servers.http_server import HttpServer, ServerReply, Step, json_reply

COMPUTING_S = 0.3  # before the first ID, so that the server and not the host determines the rate
TOKENS_S = 0.3  # before the others: two reads, also on a busy host


class Computing:
    """A server that sends the tokens of vLLM after a while.

    Args:
        seconds: Delay of the first ID.
        tokens_s: Delay of the others.
        counts: Whether it reports its cached tokens.
        keeps: Whether it keeps responses and repeats them at once, as a proxy might.
    """

    def __init__(
        self, seconds: float = COMPUTING_S, tokens_s: float = TOKENS_S, *, counts: bool = True, keeps: bool = False
    ) -> None:
        self._seconds = seconds
        self._tokens_s = tokens_s
        self._counts = counts
        self._keeps = keeps
        self._kept: set[str] = set()

    def __call__(self, body: dict[str, Any]) -> ServerReply:
        reply = server_dialects.vllm(body)
        steps = [self._step(step) for step in reply.steps]
        digest = hashlib.sha256(json.dumps({**body, "request_id": ""}).encode()).hexdigest()
        waits: Iterable[Step] = (
            [] if digest in self._kept else [self._seconds + (0 if body["stream"] else self._tokens_s)]
        )
        if self._keeps:
            self._kept.add(digest)
        return ServerReply([*waits, *steps], content_type=reply.content_type)

    def _step(self, step: Step) -> Step:
        if isinstance(step, float):
            return self._tokens_s
        if self._counts or not isinstance(step, bytes) or b"prompt_tokens_details" not in step:
            return step

        def forget(content: dict[str, Any]) -> None:
            del content["usage"]["prompt_tokens_details"]

        if step.startswith(b"data: "):
            return server_dialects.with_changed_content(step, forget)
        content = json.loads(step)
        forget(content)
        (made,) = json_reply(content).steps
        return made


async def _serve(port: int, after_s: float, requests: int | None) -> None:
    make_reply = Computing(0.0, tokens_s=1.0)

    def response(body: dict[str, Any]) -> ServerReply:
        if requests is not None and len(server.requests) > requests:
            print("out of requests", flush=True)
            os._exit(7)
        return make_reply(body)

    await asyncio.sleep(after_s)
    async with HttpServer("/v1/completions", response, "vllm", port=port) as server:
        print(f"listens on {port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--after", type=float, default=0.0)
    parser.add_argument("--requests", type=int)
    arguments = parser.parse_args()
    asyncio.run(_serve(arguments.port, arguments.after, arguments.requests))
