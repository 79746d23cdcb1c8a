"""Which replica a query goes to."""

import pytest

from runs.errors import ExecutionError
from sut.engine import Request
from sut.replicas.messages import ReplicaSpec
from sut.replicas.pool import PREFILL_WEIGHT, ReplicaHandle, lightest
from sut.replicas.processes import LocalProcesses


class Replicas:
    """Handles that are given queries."""

    def __init__(self, replicas: int, queries: int) -> None:
        self.handles = [ReplicaHandle(index, LocalProcesses(), 60.0) for index in range(replicas)]
        self._queries = 0
        self.chosen = [self.choose() for _ in range(queries)]

    def choose(self) -> int:
        handle = lightest(self.handles)
        handle.take(self._queries, Request(None, [5]))  # type: ignore[arg-type]  # nobody answers here
        self._queries += 1
        return handle.index


def test_equal_queries_are_dealt_out_in_turn() -> None:
    assert Replicas(3, 7).chosen == [0, 1, 2, 0, 1, 2, 0]


def test_the_replica_with_the_fewest_open_queries_is_next() -> None:
    replicas = Replicas(2, 3)  # 0 1 0
    assert replicas.choose() == 1
    replicas.handles[1].answered(1)
    replicas.handles[1].answered(3)
    assert [replicas.choose() for _ in range(3)] == [1, 1, 0]


def test_a_query_without_a_first_token_weighs_more() -> None:
    replicas = Replicas(2, 2)
    assert replicas.chosen == [0, 1]
    replicas.handles[0].first_token(0)
    # One open query with its first token weighs 1, one without 1 + the weight of a prompt.
    assert [replicas.choose() for _ in range(2)] == [0, 1]
    assert [handle.weight for handle in replicas.handles] == [2 + PREFILL_WEIGHT, 2 * (1 + PREFILL_WEIGHT)]


@pytest.mark.parametrize("streamed", [True, False])
def test_answered_queries_weigh_nothing(streamed: bool) -> None:
    replicas = Replicas(3, 39)
    assert set(replicas.chosen) == {0, 1, 2}
    for tag, replica in enumerate(replicas.chosen):
        if streamed:
            replicas.handles[replica].first_token(tag)
        replicas.handles[replica].answered(tag)
    for handle in replicas.handles:
        assert (handle.weight, handle.open, handle._prefilling) == (0, {}, set())


@pytest.mark.parametrize("what", ["first_token", "answered"])
def test_an_answer_to_a_query_that_is_not_open(what: str) -> None:
    processes = LocalProcesses()
    processes._specs = [ReplicaSpec(0, "", "", "", "", {}, [], ["3"], None, {})]
    with pytest.raises(ExecutionError, match=r"replica 0 \(device 3, host .*\) answered a query that is not open"):
        getattr(ReplicaHandle(0, processes, 60.0), what)(7)
