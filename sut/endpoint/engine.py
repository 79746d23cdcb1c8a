"""A server as the system under test: token ids in, token ids out, over HTTP.

One engine is the client of one server, on one event loop. Several servers, or one that needs more than a core of
client, are several engines, each in a process of its own.
"""

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import Any

from runs.errors import ExecutionError, HarnessError, SetupError
from sut.endpoint.address import Access, ServerAddress
from sut.endpoint.client import Client
from sut.endpoint.dialects.base import Dialect
from sut.endpoint.probes import not_asked, probe
from sut.endpoint.questions import (
    CACHE_HITS,
    GENERATED,
    ServerFacts,
    choose_dialect,
    first_of,
    learn,
    read_metrics,
)
from sut.engine import EngineReport, Request, SamplingPolicy

QUIET_S = 5.0  # nothing came for so long: the server's own counters are asked whether it works
QUIET_LOOK_S = 2.0


class EndpointEngine:
    """See the module.

    Args:
        url: of the server.
        sampling: how tokens are chosen; sent in full.
        streaming: whether first tokens are wanted.
        dialect: name of the server's language; None asks the server.
        model_name: at the server; None where it serves one.
        key_variable: environment variable that holds the key.
        ca_file: certificate authority of the server.
        connections: at most, and from the start.
        silence_s: how long a stream that has begun may bring nothing, at the least.
    """

    def __init__(
        self,
        url: str,
        sampling: SamplingPolicy,
        *,
        streaming: bool,
        dialect: str | None = None,
        model_name: str | None = None,
        key_variable: str | None = None,
        ca_file: str | None = None,
        connections: int = 1024,
        silence_s: float = 20.0,
    ) -> None:
        self._address = ServerAddress.parse(url)
        self._access = Access.from_environment(key_variable, Path(ca_file) if ca_file else None)
        self._sampling = sampling
        self._streaming = streaming
        self._asked_dialect = dialect
        self._model_name = model_name
        self._connections = connections
        self._silence_s = silence_s
        self._client: Client | None = None
        self._lost: BaseException | None = None
        self._watching: asyncio.Task[None] | None = None
        self._generated = 0.0  # by the server's own counter, where it has one
        self._moved_s = 0.0
        self._hits_before: float | None = None
        self._facts: dict[str, Any] = {}

    async def start(self) -> EngineReport:
        address, access = self._address, self._access
        learned = await learn(address, access, self._model_name)
        kind = await choose_dialect(address, access, learned, self._asked_dialect)
        dialect = kind(learned.model, self._sampling, streaming=self._streaming)
        connections = min(self._connections, learned.slots or self._connections)
        self._client = client = Client(
            address, access, dialect, connections=connections, silence_s=self._silence_s, on_error=self._server_lost
        )
        await client.open()
        probed = await probe(client)
        self._hits_before = first_of(learned.metrics, CACHE_HITS)
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        return self._report(learned, probed, dialect, connections)

    def _report(self, learned: ServerFacts, probed: dict[str, Any], dialect: Dialect, connections: int) -> EngineReport:
        return EngineReport(
            name="endpoint",
            versions={learned.owner or "server": learned.version} if learned.version else {},
            asked={"dialect": self._asked_dialect, "connections": self._connections},
            in_force={"dialect": dialect.name, "connections": connections},
            configuration={
                "server": self._address.url,
                "told_by_the_server": dataclasses.asdict(learned),
                "probes": probed,
                "not_asked_for": not_asked(dialect),
            },
            prefix_caching=bool(learned.prefix_caching),
            max_model_len=learned.max_model_len,
        )

    def submit(self, request: Request) -> None:
        assert self._client is not None, "submit before start"
        self._client.submit(request)

    def check_alive(self) -> None:
        if self._lost is not None:
            reason = self._lost.message if isinstance(self._lost, HarnessError) else str(self._lost)
            raise ExecutionError(f"lost the server: {reason}", "see the server's log; nothing is sent twice")

    def activity(self) -> int:
        return (self._client.moved if self._client else 0) + int(self._generated)

    def _server_lost(self, error: BaseException) -> None:
        self._lost = self._lost or error

    async def _watch(self) -> None:
        """Ask the server whether it works while nothing comes from it. A busy server is not disturbed."""
        moved, moved_s = -1, 0.0
        while self._client is not None:
            if self._client.moved != moved:
                moved, moved_s = self._client.moved, time.monotonic()
            elif time.monotonic() - moved_s > QUIET_S:
                try:
                    metrics, _ = await read_metrics(self._address, self._access)
                except SetupError:
                    pass  # the watchdog draws the conclusion: nothing moves
                else:
                    self._generated = first_of(metrics, GENERATED) or 0.0
            await asyncio.sleep(QUIET_LOOK_S)

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        client, self._client = self._client, None
        if client is None:
            return
        self._facts = {
            "server": self._address.url,
            **client.record.facts(),
            "connections_renewed": client.connections_renewed,
            "most_waiting_for_a_connection": client.most_waiting,
        }
        client.close()

    async def observed(self) -> dict[str, Any]:
        """What the client saw in this leg; the server's own counters are asked once more.

        Raises:
            ExecutionError: the server does not answer any more.
        """
        client = self._client
        assert client is not None, "observed before start, or after stop"
        try:
            metrics, _ = await read_metrics(self._address, self._access)
        except SetupError as error:
            raise ExecutionError(error.message, error.fix) from error
        hits = first_of(metrics, CACHE_HITS)
        return {
            "server": self._address.url,
            **client.record.facts(),
            "connections_renewed": client.connections_renewed,
            "most_waiting_for_a_connection": client.most_waiting,
            "metrics_at_the_end": metrics,
            # Probes and warm-up are before the leg, so this counts them too.
            "cached_tokens_by_metrics": None if hits is None else hits - (self._hits_before or 0.0),
        }
