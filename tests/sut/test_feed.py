"""The feed: the engine is never short of work, and never given more than a bounded number ahead."""

import random

from hypothesis import given
from hypothesis import strategies as st

from sut.engine import EngineLimits, Request
from sut.feed import AHEAD_STEPS, LEAST_AHEAD, Feed


def query(seq: int, tokens: int) -> Request:
    return Request(None, [1] * tokens, seq=seq)  # type: ignore[arg-type]  # nobody answers here


def fill(feed: Feed, first: int, tokens: int, most: int = 10_000) -> list[Request]:
    """Offer queries for as long as the feed wants them."""
    taken: list[Request] = []
    while feed.wants() and len(taken) < most:
        feed.offer(query(first + len(taken), tokens))
        request = feed.take()
        assert request is not None
        taken.append(request)
    assert feed.take() is None
    return taken


def test_as_many_wait_ahead_as_are_computed() -> None:
    feed = Feed(EngineLimits(queries=256))
    assert len(fill(feed, 0, 100)) == 512


def test_prompts_ahead_are_bounded_by_the_steps_that_compute_them() -> None:
    feed = Feed(EngineLimits(queries=256, step_tokens=2_048))
    assert len(fill(feed, 0, 870)) == 256 + -(-AHEAD_STEPS * 2_048 // 870)


def test_an_engine_without_a_limit_is_given_everything() -> None:
    assert len(fill(Feed(EngineLimits(step_tokens=512)), 0, 1_000, most=5_000)) == 5_000


@given(
    st.integers(1, 80),
    st.integers(1, 4_000),
    st.lists(st.integers(1, 3_000), min_size=1, max_size=300),
    st.randoms(use_true_random=False),
)
def test_the_engine_never_waits_and_the_bounds_hold(
    limit: int, step_tokens: int, lengths: list[int], chooser: random.Random
) -> None:
    """An engine that computes `limit` queries, those handed over first, and answers them in any order."""
    feed = Feed(EngineLimits(queries=limit, step_tokens=step_tokens))
    given_to_engine: list[Request] = []
    issued = answered = 0
    while answered < len(lengths):
        while issued < len(lengths) and feed.wants():
            feed.offer(query(issued, lengths[issued]))
            request = feed.take()
            assert request is not None
            assert request.seq == issued
            given_to_engine.append(request)
            issued += 1
        ahead = given_to_engine[limit:]
        assert len(ahead) <= max(limit, LEAST_AHEAD)
        assert len(ahead) <= LEAST_AHEAD or (
            sum(len(request.prompt_ids) for request in ahead[:-1]) < AHEAD_STEPS * step_tokens
        )
        # Never fewer than it computes, nor fewer ahead than it could start on before more can come.
        assert issued == len(lengths) or len(given_to_engine) >= limit + LEAST_AHEAD
        for _ in range(chooser.randint(1, limit)):
            if given_to_engine:
                feed.completed(given_to_engine.pop(chooser.randrange(min(limit, len(given_to_engine)))))
                answered += 1
