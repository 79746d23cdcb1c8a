"""When the verdict of a running leg is certain, against the verdict of the whole leg."""

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.benchmarks import BENCHMARKS
from runs.loadgen.early_stopping import judge_latencies
from runs.loadgen.schedule import poisson_offsets_ns
from runs.rounds import CURRENT_ROUND
from scenarios.tune.watch import SERVER_PERCENTILE, ProbeTally

SERVER = BENCHMARKS["llama3_1-8b"]
SEED = CURRENT_ROUND.seeds.schedule_rng_seed
START_NS = 1_700_000_000_000_000_000
TTFT_NS, TPOT_NS = 2_000_000_000, 100_000_000
LONGEST_TOKENS = 128


def tally_of(queries: int) -> ProbeTally:
    return ProbeTally(queries, TTFT_NS, TPOT_NS)


def answer(tally: ProbeTally, ttft_ns: int, tpot_ns: int = 10_000_000, tokens: int = 11) -> None:
    """One answer, issued on time."""
    tally.add(START_NS, START_NS + ttft_ns, START_NS + ttft_ns + tpot_ns * (tokens - 1), tokens)


@pytest.mark.parametrize(("queries", "allowed"), [(13_368, 107), (26_736, 229), (459, 0)])
def test_one_late_query_too_many_is_certain(queries: int, allowed: int) -> None:
    tally = tally_of(queries)
    for _ in range(allowed):
        answer(tally, TTFT_NS + 1)
    assert tally.certainly_invalid() is None
    answer(tally, TTFT_NS + 1)
    assert tally.certainly_invalid() == (
        f"{allowed + 1:,} queries missed the TTFT limit, {allowed:,} of {queries:,} are allowed"
    )


def test_each_limit_is_counted_for_itself() -> None:
    tally = tally_of(13_368)
    for seq in range(214):  # 107 each: as many as may be, of either
        answer(tally, *((TTFT_NS + 1, 0) if seq % 2 else (0, TPOT_NS + 10_000_000)))
    assert (tally.late_ttft, tally.late_tpot) == (107, 107)
    assert tally.certainly_invalid() is None
    answer(tally, 0, TPOT_NS + 10_000_000)
    assert "108 queries missed the TPOT limit" in str(tally.certainly_invalid())


def test_a_tpot_that_stamps_may_explain_is_not_late() -> None:
    tally = tally_of(459)
    answer(tally, 0, TPOT_NS + 2_000_000, tokens=11)  # 20 ms over ten tokens
    assert tally.certainly_invalid() is None
    answer(tally, 0, TPOT_NS + 2_000_001, tokens=11)
    assert "TPOT" in str(tally.certainly_invalid())


def test_too_few_queries_are_never_valid() -> None:
    assert "458 queries are too few" in str(tally_of(458).certainly_invalid())


@pytest.mark.parametrize(
    ("qps", "queries", "known_after_s"),
    [(19.5, 13_368, None), (20.5, 13_368, 58.2), (22, 13_368, 40.2), (25, 26_736, 31)],
)
def test_an_overload_shows_in_the_first_minute(qps: float, queries: int, known_after_s: float | None) -> None:
    """32 slots of 1.5 s a query are 21.3 queries/s; legs of official length take 10 to 20 minutes."""
    tally = tally_of(queries)
    free_ns = [0] * 32
    answers = []
    for seq, due_ns in enumerate(poisson_offsets_ns(SEED, qps, queries).tolist()):
        start_ns = max(due_ns, heapq.heappop(free_ns))
        heapq.heappush(free_ns, start_ns + 1_500_000_000)
        answers.append((start_ns + 1_500_000_000, start_ns + 50_000_000, seq, due_ns))
    known_ns = None
    for complete_ns, first_ns, _, due_ns in sorted(answers):
        tally.add(START_NS + due_ns, START_NS + first_ns, START_NS + complete_ns, LONGEST_TOKENS)
        if tally.certainly_invalid():
            known_ns = complete_ns
            break
    if known_after_s is None:
        assert known_ns is None
    else:
        assert known_ns is not None
        assert known_ns / 1e9 == pytest.approx(known_after_s, abs=0.1)


@settings(max_examples=150, deadline=None)
@given(
    queries=st.integers(459, 3_000),
    late_share=st.floats(0, 0.03),
    slow_share=st.floats(0, 0.03),
    issue_delay_ns=st.integers(0, 50_000_000),
    seed=st.integers(0, 2**32 - 1),
)
def test_never_certain_of_what_loadgen_finds_valid(
    queries: int, late_share: float, slow_share: float, issue_delay_ns: int, seed: int
) -> None:
    """LoadGen counts from the schedule with stamps of its own, a little later than ours: a leg it finds VALID was
    never said to be INVALID on the way, in whichever order the answers came."""
    random = np.random.default_rng(seed)
    tally = tally_of(queries)
    offsets_ns = poisson_offsets_ns(SEED, 500, queries)
    issue_ns = START_NS + offsets_ns + random.integers(0, issue_delay_ns + 1, queries)
    tokens = random.integers(2, LONGEST_TOKENS + 1, queries)
    ttft_ns = np.where(random.random(queries) < late_share, TTFT_NS + 1, random.integers(0, TTFT_NS, queries))
    tpot_ns = np.where(random.random(queries) < slow_share, TPOT_NS + 1, random.integers(0, TPOT_NS, queries))
    first_ns = issue_ns + ttft_ns
    complete_ns = first_ns + tpot_ns * (tokens - 1)
    found_at = None
    for place, seq in enumerate(np.argsort(complete_ns, kind="stable")):
        tally.add(int(issue_ns[seq]), int(first_ns[seq]), int(complete_ns[seq]), int(tokens[seq]))
        if found_at is None and tally.certainly_invalid():
            found_at = place
    stamp_ns = random.integers(0, 1_000_000, queries)
    loadgen_first_ns = first_ns + stamp_ns
    verdicts = (
        judge_latencies(loadgen_first_ns - (START_NS + offsets_ns), TTFT_NS, SERVER_PERCENTILE),
        judge_latencies((complete_ns + 10_000 - loadgen_first_ns) // (tokens - 1), TPOT_NS, SERVER_PERCENTILE),
    )
    if all(verdict.met for verdict in verdicts):
        assert found_at is None
    if tally.late_ttft > tally.allowed:
        assert found_at is not None
