"""A scripted server as a program, for commands of --serve.

Usage: `python -m tests.support.servers.served_program TTFT_MS TPOT_MS --port N`
"""

import asyncio
import sys

from tests.support.servers.scripted_server import scripted_server


async def serve(ttft_s: float, tpot_s: float, port: int) -> None:
    """Serve until this process ends."""
    server = scripted_server(ttft_s=lambda _: ttft_s, tpot_s=tpot_s)
    server.port = port
    async with server:
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]) / 1e3, float(sys.argv[2]) / 1e3, int(sys.argv[4])))
