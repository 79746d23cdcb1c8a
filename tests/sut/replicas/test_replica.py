"""The choice of a replica for a query, common transfers of responses, and the death of a node."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from runs.errors import ExecutionError
from sut.engine import EngineReport, Request
from sut.replicas import replica as replica_module
from sut.replicas.cluster import LaunchEvent, LaunchOrder
from sut.replicas.cluster_process import report_dead_nodes
from sut.replicas.messages import Heartbeat, ReplicaSpec, ResultBatch, read_for_run
from sut.replicas.pool import PREFILL_WEIGHT, ReplicaHandle, lightest
from sut.replicas.processes import LocalProcesses
from sut.replicas.replica import Session
from sut.watchdog import WORKING_FACTOR, Watchdog
from tests.support.engines.fakes import Clock
from tests.support.runs.records import run_plan


class SentMessages:
    """A transport that keeps what is sent to the run."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: bytes) -> None:
        self.messages.append(read_for_run(message))


@pytest.mark.parametrize(
    ("scenario", "concurrency", "messages"),
    [("Server", None, 2), ("SingleStream", None, 2), ("Offline", None, 1), ("Offline", 8, 2)],
)
def test_responses_are_sent_together_only_without_latency_limits(
    scenario: str, concurrency: int | None, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "GATHER_S", 1.0)  # longer than a pause of the host

    async def run() -> list[Any]:
        plan = run_plan(loadgen_scenario=scenario, concurrency=concurrency).model_dump(mode="json")
        spec = ReplicaSpec(0, "", "", "", "", plan, [], [], None, {})
        replica = Session(SimpleNamespace(), spec)
        replica._transport = wire = SentMessages()
        for tag in (1, 2):
            replica.complete(Request(replica, [5], tag), [7, 8], "stop", 0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        while sum(len(message.responses) for message in wire.messages) < 2:
            await asyncio.sleep(0.001)
        return wire.messages

    outcomes: list[ResultBatch] = asyncio.run(run())
    assert len(outcomes) == messages
    assert [response.tag for outcome in outcomes for response in outcome.responses] == [1, 2]


def test_a_dead_node_ends_its_replicas() -> None:
    ray = SimpleNamespace(nodes=lambda: [{"NodeID": name, "Alive": name != "b"} for name in "abc"])
    order = LaunchOrder(address="", specs=[{}] * 4, nodes=["a", "b", "c", "gone"], labels=[""] * 4)
    events: list[LaunchEvent] = []
    report_dead_nodes(ray, order, events.append)
    dead = "because Ray reports its node as dead"
    assert events == [LaunchEvent(replica=number, ended=dead) for number in (1, 3)]


class Replicas:
    """Handles that receive queries."""

    def __init__(self, replicas: int, queries: int) -> None:
        self.handles = [ReplicaHandle(index, LocalProcesses(), 60.0) for index in range(replicas)]
        self._queries = 0
        self.chosen = [self.choose() for _ in range(queries)]

    def choose(self) -> int:
        handle = lightest(self.handles)
        handle.take(self._queries, Request(None, [5]))  # type: ignore[arg-type]  # nobody answers here
        self._queries += 1
        return handle.index


def test_equal_queries_are_distributed_in_turn() -> None:
    assert Replicas(3, 7).chosen == [0, 1, 2, 0, 1, 2, 0]


def test_the_replica_with_the_fewest_open_queries_is_chosen() -> None:
    replicas = Replicas(2, 3)  # 0 1 0
    assert replicas.choose() == 1
    replicas.handles[1].answered(1)
    replicas.handles[1].answered(3)
    assert [replicas.choose() for _ in range(3)] == [1, 1, 0]


def test_a_query_without_a_first_token_weighs_more() -> None:
    replicas = Replicas(2, 2)
    assert replicas.chosen == [0, 1]
    replicas.handles[0].first_token(0)
    # One open query with its first token weighs 1, one without weighs 1 + the weight of a prompt.
    assert [replicas.choose() for _ in range(2)] == [0, 1]
    assert [handle.weight for handle in replicas.handles] == [2 + PREFILL_WEIGHT, 2 * (1 + PREFILL_WEIGHT)]


@pytest.mark.parametrize("streamed", [True, False])
def test_completed_queries_have_no_weight(streamed: bool) -> None:
    replicas = Replicas(3, 39)
    assert set(replicas.chosen) == {0, 1, 2}
    for tag, replica in enumerate(replicas.chosen):
        if streamed:
            replicas.handles[replica].first_token(tag)
        replicas.handles[replica].answered(tag)
    for handle in replicas.handles:
        assert (handle.weight, handle.open, handle._prefilling) == (0, {}, set())


@pytest.mark.parametrize(
    ("what", "cores", "devices", "place"),
    [("first_token", [], ["3"], "device 3"), ("answered", [4, 5], [], "cores 4,5"), ("answered", [], [], "all cores")],
)
def test_a_duplicate_response_is_an_error(what: str, cores: list[int], devices: list[str], place: str) -> None:
    processes = LocalProcesses()
    processes._specs = [ReplicaSpec(0, "", "", "", "", {}, cores, devices, None, {})]
    with pytest.raises(ExecutionError, match=rf"replica 0 \({place}, host .*\) returned two responses to one query"):
        getattr(ReplicaHandle(0, processes, 60.0), what)(7)


@pytest.mark.parametrize(("cpu_share", "factor"), [(0.0, 1), (1.0, WORKING_FACTOR)])
def test_a_computing_cpu_replica_has_a_longer_but_finite_stall_limit(cpu_share: float, factor: int) -> None:
    clock, limit_s = Clock(1000.0), 10
    processes = LocalProcesses()
    processes._specs = [ReplicaSpec(0, "", "", "", "", {}, [], ["3"], None, {})]
    handle = ReplicaHandle(0, processes, limit_s)
    handle._stall = Watchdog(limit_s, 0, now_s=clock)
    handle.ready = SimpleNamespace(report=EngineReport("dummy", configuration={"device": "cpu"}))
    handle.take(0, Request(None, [5]))
    handle.queries = 1
    with pytest.raises(ExecutionError, match="no progress for"):  # noqa: PT012  # which look it is comes below
        while True:
            clock.now += 1
            handle.beat(Heartbeat(0, None, 50 + cpu_share * clock.now))
            handle.poll()
    assert factor * limit_s <= clock.now - 1000 <= factor * limit_s + 2
