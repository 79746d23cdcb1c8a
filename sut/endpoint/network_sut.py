"""The system under test of the Network division."""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from runs.loadgen.detail_log import NETWORK_SUT
from sut.endpoint.address import Access, ServerAddress
from sut.endpoint.server import read_card
from sut.loadgen_sut import LoadgenSut


@dataclass(eq=False, kw_only=True)
class NetworkSut(LoadgenSut):
    """The system under test of the Network division: LoadGen asks it for its name, and so each server is asked for its
    own.

    [inference_rules.adoc, Network Division, QDL Constraints: the name holds "Network SUT", is fetched over the network
    each time, and is made of the names of all nodes, none of which is another's.]
    """

    servers: list[ServerAddress]  # all of them, which LoadGen sees as one system
    access: Access  # to each
    model_name: str | None  # at the servers; None where they serve one

    @contextlib.contextmanager
    def handle(self) -> Iterator[int]:
        handle = self.loadgen.ConstructQDL(self.issue_queries, self.flush_queries, self.name)
        yield handle
        self.loadgen.DestroyQDL(handle)

    def name(self) -> str:
        """LoadGen's callback, on its thread."""
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
        # LoadGen writes names into JSON as they are.
        return re.sub(r"[^ !#-\[\]-~]", "", f"{NETWORK_SUT} ({', '.join(nodes)})")
