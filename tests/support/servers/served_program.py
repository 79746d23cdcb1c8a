"""A scripted server as a program, for commands of --serve.

Usage: `python -m tests.support.servers.served_program TTFT_MS TPOT_MS [REQUESTS] --port N`

With REQUESTS, the program prints an error and ends after this number of requests.
"""

import argparse
import asyncio
import os

from tests.support.servers.scripted_server import scripted_server


async def serve(ttft_s: float, tpot_s: float, requests: int | None, port: int) -> None:
    """Serve until this process ends."""

    def time_of(number: int) -> float:
        if requests is not None and number > requests:
            print("out of memory", flush=True)
            os._exit(7)
        return ttft_s

    server = scripted_server(ttft_s=time_of, tpot_s=tpot_s)
    server.port = port
    async with server:
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("ttft_ms", type=float)
    parser.add_argument("tpot_ms", type=float)
    parser.add_argument("requests", type=int, nargs="?")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    asyncio.run(serve(options.ttft_ms / 1e3, options.tpot_ms / 1e3, options.requests, options.port))
