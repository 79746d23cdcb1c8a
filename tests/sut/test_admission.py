"""Feed and admission: the queries that reach the engine, their times and their order."""

import random
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from sut.admission import STEPPED_BACK, Admission, AdmissionPolicy
from sut.engine import EngineLimits, Request
from sut.feed import AHEAD_STEPS, MIN_AHEAD, Feed
from tests.support.engines.fakes import Clock


class DrivenAdmission:
    """An admission that is polled after each call, as the system under test does."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.admitted: list[Request] = []

    @property
    def waiting(self) -> int:
        return self._admission.waiting

    def offer(self, request: Request) -> None:
        assert self._admission.wants()
        self._admission.offer(request)
        self._take()

    def prefilled(self, request: Request) -> None:
        self._admission.prefilled(request)
        self._take()

    def completed(self, request: Request) -> None:
        self._admission.completed(request)
        self._take()

    def _take(self) -> None:
        while (request := self._admission.take()) is not None:
            self.admitted.append(request)


def make(
    policy: AdmissionPolicy, bound: int, limit_ns: int = 1_000, queries: int | None = None
) -> tuple[DrivenAdmission, list[Request], Clock]:
    clock = Clock()
    admission = DrivenAdmission(
        Admission(policy=policy, prefill_tokens=bound, queries=queries, ttft_limit_ns=limit_ns, clock=clock)
    )
    return admission, admission.admitted, clock


def query(seq: int, tokens: int, issue_ns: int = 0) -> Request:
    return Request(None, [1] * tokens, seq=seq, issue_ns=issue_ns)  # type: ignore[arg-type]  # nobody answers here


def seqs(requests: list[Request]) -> list[int]:
    return [request.seq for request in requests]


def show_sixty(admission: DrivenAdmission, admitted: list[Request], clock: Clock) -> None:
    """Complete queries from which it learns that a prompt token takes 10 ns. Each one is alone in the engine."""
    for seq in range(60):
        admission.offer(query(seq, 40, issue_ns=clock.now))
        clock.now += 400
        admission.prefilled(admitted[-1])


def test_fcfs_holds_queries_until_a_first_token() -> None:
    admission, admitted, _ = make("fcfs", 100)
    for seq in range(4):
        admission.offer(query(seq, 40))
    assert seqs(admitted) == [0, 1]
    assert admission.waiting == 2
    admission.prefilled(admitted[0])
    assert seqs(admitted) == [0, 1, 2]
    admission.prefilled(admitted[0])  # reported twice, counted once
    assert seqs(admitted) == [0, 1, 2]


def test_the_query_limit_holds_until_a_query_completes() -> None:
    admission, admitted, _ = make("fcfs", 1_000, queries=2)
    for seq in range(4):
        admission.offer(query(seq, 10))
    assert seqs(admitted) == [0, 1]
    admission.prefilled(admitted[0])
    assert seqs(admitted) == [0, 1]
    admission.completed(admitted[0])
    assert seqs(admitted) == [0, 1, 2]
    admission.completed(admitted[1])  # in one piece, without an earlier first token
    assert seqs(admitted) == [0, 1, 2, 3]


def test_priority_delays_late_queries_if_queries_are_limited() -> None:
    admission, admitted, clock = make("priority", 1_000, limit_ns=1_000, queries=1)
    admission.offer(query(0, 10))
    admission.offer(query(1, 10))
    clock.now = 2_000
    admission.offer(query(2, 10, issue_ns=2_000))
    assert seqs(admitted) == [0]
    admission.completed(admitted[0])
    assert seqs(admitted) == [0, 2]
    admission.completed(admitted[1])
    assert seqs(admitted) == [0, 2, 1]


def test_shortest_admits_short_prompts_first_in_stable_order() -> None:
    admission, admitted, _ = make("shortest", 50)
    for seq, tokens in enumerate((50, 40, 30, 30)):
        admission.offer(query(seq, tokens))
    for done in range(4):
        admission.prefilled(admitted[done])
    assert seqs(admitted) == [0, 2, 3, 1]


def test_deadline_delays_late_queries_but_serves_them() -> None:
    admission, admitted, clock = make("deadline", 50, limit_ns=1_000)
    admission.offer(query(0, 50, issue_ns=0))
    admission.offer(query(1, 50, issue_ns=0))
    clock.now = 900
    admission.offer(query(2, 50, issue_ns=900))
    clock.now = 1_500
    admission.prefilled(admitted[0])
    assert seqs(admitted) == [0, 2]
    admission.prefilled(admitted[1])
    assert seqs(admitted) == [0, 2, 1]


def test_deadline_counts_the_prompt_tokens_ahead() -> None:
    admission, admitted, clock = make("deadline", 100, limit_ns=1_000)
    show_sixty(admission, admitted, clock)
    now_ns = clock.now
    admission.offer(query(60, 60, issue_ns=now_ns))
    admission.offer(query(61, 50, issue_ns=now_ns))  # behind 60 tokens: 1,100 ns
    admission.offer(query(62, 41, issue_ns=now_ns))  # behind 60 tokens: 1,010 ns
    admission.offer(query(63, 41, issue_ns=now_ns + 10))  # 1,000 ns, but the bound is reached
    assert seqs(admitted)[60:] == [60]
    admission.prefilled(admitted[60])
    assert seqs(admitted)[60:] == [60, 63, 61]


def test_priority_admits_late_queries_with_the_lowest_priority() -> None:
    admission, admitted, clock = make("priority", 100, limit_ns=1_000)
    show_sixty(admission, admitted, clock)
    now_ns = clock.now
    admission.offer(query(60, 60, issue_ns=now_ns))
    admission.offer(query(61, 60, issue_ns=now_ns))  # behind 60 tokens: 1,200 ns
    admission.offer(query(62, 30, issue_ns=now_ns))  # 61 steps back, so that 60 tokens are ahead: 900 ns
    admission.offer(query(63, 20, issue_ns=now_ns))  # 1,100 ns
    admission.offer(query(64, 10, issue_ns=now_ns))  # 1,000 ns
    assert seqs(admitted)[60:] == [60, 61, 62, 63, 64]
    assert [request.priority for request in admitted[60:]] == [0, STEPPED_BACK, 0, STEPPED_BACK, 0]
    admission.prefilled(admitted[61])  # no effect on the bound
    admission.offer(query(65, 10, issue_ns=now_ns))
    assert admitted[-1].priority == STEPPED_BACK


@given(
    st.sampled_from(get_args(AdmissionPolicy)),
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 2_000)), min_size=1, max_size=60),
    st.randoms(use_true_random=False),
)
def test_each_query_is_admitted_once_within_the_limit(
    policy: AdmissionPolicy, bound: int, queries: list[tuple[int, int]], chooser: object
) -> None:
    admission, admitted, clock = make(policy, bound)
    open_ones: list[Request] = []
    seen = 0

    def poll() -> None:
        nonlocal seen
        open_ones.extend(admitted[seen:])
        seen = len(admitted)
        lengths = [len(request.prompt_ids) for request in open_ones if request.priority != STEPPED_BACK]
        assert sum(lengths) <= bound or len(lengths) == 1

    for seq, (tokens, wait_ns) in enumerate(queries):
        clock.now += wait_ns
        admission.offer(query(seq, tokens, clock.now))
        poll()
        if open_ones and chooser.random() < 0.5:  # type: ignore[attr-defined]
            admission.prefilled(open_ones.pop(0))
            poll()
    while open_ones:
        admission.prefilled(open_ones.pop(0))
        poll()
    assert sorted(seqs(admitted)) == list(range(len(queries)))
    assert admission.waiting == 0


def fill(feed: Feed, first: int, tokens: int, most: int = 10_000) -> list[Request]:
    """Offer queries until the feed refuses them."""
    taken: list[Request] = []
    while feed.wants() and len(taken) < most:
        feed.offer(query(first + len(taken), tokens))
        request = feed.take()
        taken.append(request)
    assert feed.take() is None
    return taken


def test_as_many_queries_wait_as_are_computed() -> None:
    feed = Feed(EngineLimits(queries=256))
    assert len(fill(feed, 0, 100)) == 512


def test_waiting_prompts_are_limited_by_the_steps_that_compute_them() -> None:
    feed = Feed(EngineLimits(queries=256, step_tokens=2_048))
    assert len(fill(feed, 0, 870)) == 256 + -(-AHEAD_STEPS * 2_048 // 870)


def test_an_engine_without_limit_receives_all_queries() -> None:
    assert len(fill(Feed(EngineLimits(step_tokens=512)), 0, 1_000, most=5_000)) == 5_000


@given(
    st.integers(1, 80),
    st.integers(1, 4_000),
    st.lists(st.integers(1, 3_000), min_size=1, max_size=300),
    st.randoms(use_true_random=False),
)
def test_the_feed_keeps_the_engine_busy_within_its_limits(
    limit: int, step_tokens: int, lengths: list[int], chooser: random.Random
) -> None:
    """The engine computes `limit` queries, the first submitted ones, and completes them in any order."""
    feed = Feed(EngineLimits(queries=limit, step_tokens=step_tokens))
    given_to_engine: list[Request] = []
    issued = answered = 0
    while answered < len(lengths):
        while issued < len(lengths) and feed.wants():
            feed.offer(query(issued, lengths[issued]))
            request = feed.take()
            assert request.seq == issued
            given_to_engine.append(request)
            issued += 1
        ahead = given_to_engine[limit:]
        assert len(ahead) <= max(limit, MIN_AHEAD)
        assert len(ahead) <= MIN_AHEAD or (
            sum(len(request.prompt_ids) for request in ahead[:-1]) < AHEAD_STEPS * step_tokens
        )
        # Never fewer than it computes, nor fewer ahead than it could start before the next poll.
        assert issued == len(lengths) or len(given_to_engine) >= limit + MIN_AHEAD
        for _ in range(chooser.randint(1, limit)):
            if given_to_engine:
                feed.completed(given_to_engine.pop(chooser.randrange(min(limit, len(given_to_engine)))))
                answered += 1
