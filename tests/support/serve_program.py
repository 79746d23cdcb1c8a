"""`python -m tests.support.serve_program PORT [--after S] [--requests N]`: a server that speaks as vLLM does.

It listens after some seconds, and ends with status 7 at the request after N.
"""

import argparse
import asyncio
import os
from typing import Any

from tests.support.http_campaign import Computing
from tests.support.http_server import HttpServer, Reply


async def _serve(port: int, after_s: float, requests: int | None) -> None:
    speaks = Computing(0.0, tokens_s=1.0)

    def answer(body: dict[str, Any]) -> Reply:
        if requests is not None and len(server.requests) > requests:
            print("out of requests", flush=True)
            os._exit(7)
        return speaks(body)

    await asyncio.sleep(after_s)
    server = HttpServer("/v1/completions", answer, "vllm", port=port)
    async with server:
        print(f"listens on {port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--after", type=float, default=0.0)
    parser.add_argument("--requests", type=int)
    asked = parser.parse_args()
    asyncio.run(_serve(asked.port, asked.after, asked.requests))
