"""Which replica a query goes to."""

from collections import Counter
from typing import Any

import pytest

from sut.engine import Request
from sut.replicas.routing import PREFILL_WEIGHT, Routing
from tests.support.fakes import FakeSink


def query(prompt_tokens: int = 10) -> Request:
    return Request(FakeSink(), [1] * prompt_tokens)


def routed(policy: Any, replicas: int, *prompt_tokens: int) -> tuple[Routing, list[int]]:
    routing = Routing(policy, replicas)
    return routing, [routing.choose(tag, query(tokens)) for tag, tokens in enumerate(prompt_tokens)]


@pytest.mark.parametrize("policy", ["open", "tokens", "prefill", "round-robin"])
def test_equal_queries_are_dealt_out_in_turn(policy: Any) -> None:
    _, chosen = routed(policy, 3, *[10] * 7)
    assert chosen == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin_looks_at_nothing() -> None:
    routing, _ = routed("round-robin", 2, 10, 10, 10)
    routing.answered(0, 0)
    routing.answered(0, 2)
    assert [routing.choose(tag, query()) for tag in (3, 4, 5)] == [1, 0, 1]


def test_fewest_open_queries_whatever_their_length() -> None:
    routing, _ = routed("open", 2, 1000, 1, 1)  # 0 1 0
    assert routing.choose(3, query()) == 1
    routing.answered(1, 1)
    routing.answered(1, 3)
    assert [routing.choose(tag, query()) for tag in (4, 5, 6)] == [1, 1, 0]


def test_fewest_tokens_that_wait_until_they_are_computed() -> None:
    routing, chosen = routed("tokens", 2, 1000, 300, 300, 300)
    assert chosen == [0, 1, 1, 1]
    routing.first_token(0, 0)
    assert routing.choose(4, query(100)) == 0
    routing.answered(0, 0)


def test_a_query_without_a_first_token_weighs_more() -> None:
    routing, chosen = routed("prefill", 2, 10, 10)
    assert chosen == [0, 1]
    routing.first_token(0, 0)
    more = [routing.choose(tag, query()) for tag in range(2, 4)]
    # One open query with its first token weighs 1, one without 1 + the weight of a prompt.
    assert more == [0, 1]
    assert routing._weights == [2 + PREFILL_WEIGHT, 2 * (1 + PREFILL_WEIGHT)]


@pytest.mark.parametrize("policy", ["open", "tokens", "prefill", "round-robin"])
@pytest.mark.parametrize("streamed", [True, False])
def test_what_is_over_weighs_nothing(policy: Any, streamed: bool) -> None:
    routing, chosen = routed(policy, 3, *range(1, 40))
    assert len(Counter(chosen)) == 3
    for tag, replica in enumerate(chosen):
        if streamed:
            routing.first_token(replica, tag)
        routing.answered(replica, tag)
    assert routing._weights == [0, 0, 0]
    assert not routing._waiting
