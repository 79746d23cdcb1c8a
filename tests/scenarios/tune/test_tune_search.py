"""The search for a rate, on systems with a known best rate; and certain verdicts of unfinished runs."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.benchmark import Scenario
from runs.benchmarks import BENCHMARKS
from runs.loadgen.counts import count_run, settings_of
from runs.loadgen.early_stopping import judge_latencies
from runs.loadgen.schedule import poisson_offsets_ns
from runs.rounds import CURRENT_ROUND
from scenarios.tune.rates import MAX_PROBES, RESOLUTION, Bracket, Tried, cheaper, next_rate
from scenarios.tune.watch import SERVER_PERCENTILE, ProbeTally


def search(
    valid: Callable[[float], bool], offline_qps: float, scenario: str = "Server", most: int = MAX_PROBES
) -> list[Tried]:
    """Return all probes of a search."""
    tried: list[Tried] = []
    while (rate := next_rate(scenario, offline_qps, tried, resolution=RESOLUTION, most_probes=most)) is not None:
        tried.append(Tried(rate, valid(rate)))
    return tried


@given(threshold=st.floats(0.34, 1.1), offline_qps=st.floats(0.01, 10_000))
def test_a_sharp_threshold_is_found_within_the_resolution(threshold: float, offline_qps: float) -> None:
    for scenario in ("Server", "Interactive"):
        tried = search(lambda qps: qps <= threshold * offline_qps, offline_qps, scenario)
        bracket = Bracket.of(tried)
        assert bracket.valid >= 0.97 * threshold * offline_qps
        assert bracket.width <= RESOLUTION or len(tried) == MAX_PROBES


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_the_search_ends_for_arbitrary_verdicts(verdicts: list[bool]) -> None:
    left = iter(verdicts)
    tried = search(lambda _: next(left, False), 100)
    assert len(tried) <= MAX_PROBES
    assert len({probe.target_qps for probe in tried}) == len(tried)
    assert all(0 < probe.target_qps < math.inf for probe in tried)


def test_a_failure_below_a_success_is_ignored() -> None:
    """Noise may fail a rate below one that passes. The bracket is above the success."""
    bracket = Bracket.of([Tried(90, False), Tried(95, True), Tried(99, False)])
    assert (bracket.valid, bracket.invalid) == (95, 99)


def official_s(scenario: Scenario) -> Callable[[float], float]:
    benchmark = BENCHMARKS["llama3_1-8b"]

    def expected_s(qps: float) -> float:
        return count_run(
            settings_of(scenario, benchmark, CURRENT_ROUND, 13_368, lambda key: qps if key == "target_qps" else None),
            "performance",
        ).expected_s

    return expected_s


def test_a_slightly_lower_rate_is_chosen_if_it_saves_a_dataset() -> None:
    expected_s = official_s("Server")
    lower = cheaper(22.1, None, expected_s)
    assert 0.99 * 22.1 <= lower <= 22.0751  # up to this rate, one dataset is enough
    assert expected_s(22.1) > 1_190
    assert expected_s(lower) < 620
    assert cheaper(22.5, None, expected_s) == 22.5  # more than a hundredth away
    assert cheaper(21.9, None, expected_s) == 21.9  # saves nothing
    assert cheaper(22.1, 22.05, expected_s) == 22.1  # 22.07 is nearly certain to be valid


SERVER = BENCHMARKS["llama3_1-8b"]
SEED = CURRENT_ROUND.seeds.schedule_rng_seed
START_NS = 1_700_000_000_000_000_000
TTFT_NS, TPOT_NS = 2_000_000_000, 100_000_000
LONGEST_TOKENS = 128


def tally_of(queries: int) -> ProbeTally:
    return ProbeTally(queries, TTFT_NS, TPOT_NS)


def response(tally: ProbeTally, ttft_ns: int, tpot_ns: int = 10_000_000, tokens: int = 11) -> None:
    """Add a response that was issued on time."""
    tally.add(START_NS, START_NS + ttft_ns, START_NS + ttft_ns + tpot_ns * (tokens - 1), tokens)


@pytest.mark.parametrize(("queries", "allowed"), [(13_368, 107), (26_736, 229), (459, 0)])
def test_one_late_query_above_the_allowance_is_certainly_invalid(queries: int, allowed: int) -> None:
    tally = tally_of(queries)
    for _ in range(allowed):
        response(tally, TTFT_NS + 1)
    assert tally.certainly_invalid() is None
    response(tally, TTFT_NS + 1)
    assert tally.certainly_invalid() == (
        f"{allowed + 1:,} queries exceeded the TTFT limit, allowed: {allowed:,} of {queries:,}"
    )


def test_late_queries_are_counted_for_each_limit() -> None:
    tally = tally_of(13_368)
    for seq in range(214):  # 107 each: the maximum of each limit
        response(tally, *((TTFT_NS + 1, 0) if seq % 2 else (0, TPOT_NS + 10_000_000)))
    assert (tally.late_ttft, tally.late_tpot) == (107, 107)
    assert tally.certainly_invalid() is None
    response(tally, 0, TPOT_NS + 10_000_000)
    assert "108 queries exceeded the TPOT limit" in str(tally.certainly_invalid())


def test_a_tpot_excess_within_the_resolution_of_stamps_is_not_late() -> None:
    tally = tally_of(459)
    response(tally, 0, TPOT_NS + 2_000_000, tokens=11)  # 20 ms over ten tokens
    assert tally.certainly_invalid() is None
    response(tally, 0, TPOT_NS + 2_000_001, tokens=11)
    assert "TPOT" in str(tally.certainly_invalid())


def test_too_few_queries_are_never_valid() -> None:
    assert "458 queries are too few" in str(tally_of(458).certainly_invalid())


@settings(max_examples=150)
@given(
    queries=st.integers(459, 3_000),
    late_share=st.floats(0, 0.03),
    slow_share=st.floats(0, 0.03),
    issue_delay_ns=st.integers(0, 50_000_000),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_run_that_loadgen_finds_valid_is_never_certainly_invalid(
    queries: int, late_share: float, slow_share: float, issue_delay_ns: int, seed: int
) -> None:
    """LoadGen counts from the schedule with stamps of its own, a little later than those of the harness.

    A run that it finds VALID was never reported as INVALID before, for any order of responses.
    """
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
