"""The servers of a curve: their common facts, and whether they respond."""

import asyncio

from runs.errors import HarnessError, SetupError
from runs.mistakes import Mistakes
from scenarios.curve.curve_config import CurveConfig
from sut.http.address import ServerAddress
from sut.http.server import ServerFacts, learn


class CurveServers:
    """The servers that `curve.yaml` lists."""

    def __init__(self, curve: CurveConfig) -> None:
        self._curve = curve

    def common_facts(self) -> ServerFacts:
        """Return the facts that all servers report.

        Raises:
            InputError: If a server does not serve the model.
            SetupError: If a server does not respond, or the servers differ.
        """
        facts = [self._facts(address) for address in self._curve.servers]
        if any(server.lasting() != facts[0].lasting() for server in facts):
            raise SetupError("server: the servers differ in model or version", "start equal servers")
        return facts[0]

    def fault(self) -> str:
        """Return why a server is dead; empty if all respond."""
        for address in self._curve.servers:
            try:
                self._facts(address)
            except HarnessError as error:
                return f"server {address.url}: {error.message}"
        return ""

    def _facts(self, address: ServerAddress) -> ServerFacts:
        mistakes = Mistakes("curve")
        with mistakes.collected("--api-model-name", "model:"):
            return asyncio.run(learn(address, self._curve.access, self._curve.options.model))
        mistakes.refuse()
        raise AssertionError("a failed request is a mistake")
