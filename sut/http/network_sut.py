"""The system under test of the Network division."""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from runs.loadgen.detail_log import NETWORK_SUT
from sut.http.address import Access, ServerAddress
from sut.http.server import read_card
from sut.loadgen_sut import LoadgenSut


@dataclass(eq=False, kw_only=True)
class NetworkSut(LoadgenSut):
    """The system under test of the Network division. When LoadGen asks for its name, it asks each server for a name.

    [inference_rules.adoc, Network Division, QDL Constraints: the name holds "Network SUT", is fetched over the network
    each time, and consists of the different names of all nodes.]
    """

    servers: list[ServerAddress]  # all servers; LoadGen sees one system
    access: Access  # access to each server
    model_name: str | None  # name at the servers; None if each has one model

    @contextlib.contextmanager
    def handle(self) -> Iterator[int]:
        handle = self.loadgen.ConstructQDL(self.issue_queries, self.flush_queries, self.name)
        yield handle
        self.loadgen.DestroyQDL(handle)

    def name(self) -> str:
        """Return the system's name. LoadGen calls this on its thread."""
        try:
            return asyncio.run(self._name())
        except BaseException as error:
            self.fail(error)
            return f"{NETWORK_SUT} without a name"

    async def _name(self) -> str:
        cards = await asyncio.gather(*(read_card(server, self.access, self.model_name) for server in self.servers))
        nodes = [
            f"{card.id} of {card.owned_by or 'a server'} at {server.authority}"
            for card, server in zip(cards, self.servers, strict=True)
        ]
        # LoadGen writes names into JSON without escaping them.
        return re.sub(r"[^ !#-\[\]-~]", "", f"{NETWORK_SUT} ({', '.join(nodes)})")
