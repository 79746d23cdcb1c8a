"""Which replica a query goes to."""

from collections import Counter

import pytest

from sut.replicas.pool import PREFILL_WEIGHT, LoadBalancer


def routed(replicas: int, queries: int) -> tuple[LoadBalancer, list[int]]:
    balancer = LoadBalancer(replicas)
    return balancer, [balancer.choose(tag) for tag in range(queries)]


def test_equal_queries_are_dealt_out_in_turn() -> None:
    _, chosen = routed(3, 7)
    assert chosen == [0, 1, 2, 0, 1, 2, 0]


def test_the_replica_with_the_fewest_open_queries_is_next() -> None:
    balancer, _ = routed(2, 3)  # 0 1 0
    assert balancer.choose(3) == 1
    balancer.answered(1, 1)
    balancer.answered(1, 3)
    assert [balancer.choose(tag) for tag in (4, 5, 6)] == [1, 1, 0]


def test_a_query_without_a_first_token_weighs_more() -> None:
    balancer, chosen = routed(2, 2)
    assert chosen == [0, 1]
    balancer.first_token(0, 0)
    # One open query with its first token weighs 1, one without 1 + the weight of a prompt.
    assert [balancer.choose(tag) for tag in range(2, 4)] == [0, 1]
    assert balancer._weights == [2 + PREFILL_WEIGHT, 2 * (1 + PREFILL_WEIGHT)]


@pytest.mark.parametrize("streamed", [True, False])
def test_answered_queries_weigh_nothing(streamed: bool) -> None:
    balancer, chosen = routed(3, 39)
    assert len(Counter(chosen)) == 3
    for tag, replica in enumerate(chosen):
        if streamed:
            balancer.first_token(replica, tag)
        balancer.answered(replica, tag)
    assert balancer._weights == [0, 0, 0]
    assert not balancer._prefilling
