"""What a replica makes of its engine's outcomes: which of them travel together."""

import asyncio
from typing import Any

import pytest

from sut.engine import Request
from sut.replicas import replica as replica_module
from sut.replicas.messages import ReplicaSpec, ResultBatch, read_for_leg
from sut.replicas.replica import Replica


class Wire:
    """Takes what is sent to the leg."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: bytes) -> None:
        self.messages.append(read_for_leg(message))


@pytest.mark.parametrize(("scenario", "messages"), [("Server", 2), ("SingleStream", 2), ("Offline", 1)])
def test_outcomes_of_several_turns_travel_together_where_no_latency_is_judged(
    scenario: str, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "GATHER_S", 1.0)  # longer than a pause of the machine

    async def run() -> list[Any]:
        spec = ReplicaSpec(0, "", "", "", "", {"loadgen_scenario": scenario}, [], [], None, {})
        replica = Replica(spec)
        replica._transport = wire = Wire()
        for tag in (1, 2):
            replica.complete(Request(replica, [5], tag), [7, 8], "stop", 0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        while sum(len(one.answers) for one in wire.messages) < 2:
            await asyncio.sleep(0.001)
        return wire.messages

    outcomes: list[ResultBatch] = asyncio.run(run())
    assert len(outcomes) == messages
    assert [answer.tag for one in outcomes for answer in one.answers] == [1, 2]
