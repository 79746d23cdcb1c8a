"""The search for a rate, on systems whose best rate an exhaustive search can tell."""

import heapq
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.benchmark import Scenario
from runs.benchmarks import BENCHMARKS
from runs.loadgen.counts import count_leg, settings_of
from runs.loadgen.early_stopping import judge_latencies
from runs.loadgen.schedule import poisson_offsets_ns
from runs.rounds import CURRENT_ROUND
from scenarios.tune.rates import MOST_PROBES, RESOLUTION, Bracket, Tried, cheaper, next_rate, rounded

SEED = CURRENT_ROUND.seeds.schedule_rng_seed


def search(
    valid: Callable[[float], bool], offline_qps: float, scenario: str = "Server", most: int = MOST_PROBES
) -> list[Tried]:
    """All probes of a search."""
    tried: list[Tried] = []
    while (rate := next_rate(scenario, offline_qps, tried, resolution=RESOLUTION, most_probes=most)) is not None:
        tried.append(Tried(rate, valid(rate)))
    return tried


class Queue:
    """An engine with slots: each computes a query for so long, of which the first part ends with the first token."""

    def __init__(self, slots: int, prefill_s: float, decode_s: float, ttft_limit_s: float, min_duration_s: int) -> None:
        self.slots, self.prefill_ns, self.decode_ns = slots, int(prefill_s * 1e9), int(decode_s * 1e9)
        self.limit_ns = int(ttft_limit_s * 1e9)
        self.min_duration_ms = min_duration_s * 1_000
        self.offline_qps = slots / (prefill_s + decode_s)

    def queries(self, qps: float) -> int:
        values = {"target_qps": str(qps), "min_duration": str(self.min_duration_ms)}
        benchmark = BENCHMARKS["llama3_1-8b"]
        return count_leg(settings_of("Server", benchmark, CURRENT_ROUND, 500, values.get), "performance").samples

    @cache  # noqa: B019
    def valid(self, qps: float) -> bool:
        """LoadGen's verdict over its own schedule."""
        free_ns = [0] * self.slots
        ttft_ns = []
        for due_ns in poisson_offsets_ns(SEED, qps, self.queries(qps)).tolist():
            start_ns = max(due_ns, heapq.heappop(free_ns))
            heapq.heappush(free_ns, start_ns + self.prefill_ns + self.decode_ns)
            ttft_ns.append(start_ns + self.prefill_ns - due_ns)
        return judge_latencies(np.array(ttft_ns), self.limit_ns, 0.99).met


@pytest.mark.parametrize(
    "queue",
    [
        Queue(64, 0.05, 1.3, 0.5, 60),
        Queue(8, 0.02, 0.1, 0.2, 60),
        Queue(1, 0.012, 0, 0.05, 60),
        Queue(16, 0.1, 0.5, 2.0, 120),
    ],
    ids=["wide", "middling", "one-slot", "patient"],
)
def test_at_most_three_percent_below_an_exhaustive_search(queue: Queue) -> None:
    tried = search(queue.valid, queue.offline_qps)
    found = Bracket.of(tried).valid
    assert found is not None
    assert len(tried) <= MOST_PROBES
    grid = [rounded(queue.offline_qps * float(share)) for share in np.arange(0.3, 1.3, 0.005)]
    best = max(rate for rate in grid if queue.valid(rate))
    assert found >= 0.97 * best


@given(threshold=st.floats(0.34, 1.1), offline_qps=st.floats(0.01, 10_000))
def test_a_sharp_threshold_is_found_within_the_resolution(threshold: float, offline_qps: float) -> None:
    for scenario in ("Server", "Interactive"):
        tried = search(lambda qps: qps <= threshold * offline_qps, offline_qps, scenario)
        bracket = Bracket.of(tried)
        assert bracket.valid is not None
        assert bracket.valid >= 0.97 * threshold * offline_qps
        assert bracket.width <= RESOLUTION or len(tried) == MOST_PROBES


@given(threshold=st.floats(0.9, 1.3))
def test_a_start_near_the_best_rate_needs_fewer_probes(threshold: float) -> None:
    def valid(qps: float) -> bool:
        return qps <= threshold * 50

    tried: list[Tried] = []
    while (rate := next_rate("Server", 100, tried, resolution=RESOLUTION, most_probes=8, start=50)) is not None:
        tried.append(Tried(rate, valid(rate)))
    assert tried[0].target_qps == 50
    bracket = Bracket.of(tried)
    assert bracket.valid is not None
    assert bracket.width <= RESOLUTION
    assert len(tried) <= MOST_PROBES
    if 1 <= threshold < 1.04:
        assert len(tried) <= 4


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_the_search_ends_whatever_the_verdicts(verdicts: list[bool]) -> None:
    left = iter(verdicts)
    tried = search(lambda _: next(left, False), 100)
    assert len(tried) <= MOST_PROBES
    assert len({one.target_qps for one in tried}) == len(tried)
    assert all(0 < one.target_qps < math.inf for one in tried)


def test_nothing_valid_ends_without_a_rate() -> None:
    tried = search(lambda _: False, 100)
    assert len(tried) == MOST_PROBES
    assert Bracket.of(tried).valid is None
    assert tried[-1].target_qps < 1


def test_a_failure_below_a_success_does_not_count() -> None:
    """Noise may fail a rate below one that passes; the bracket is above the success."""
    bracket = Bracket.of([Tried(90, False), Tried(95, True), Tried(99, False)])
    assert (bracket.valid, bracket.invalid) == (95, 99)


def official_s(scenario: Scenario) -> Callable[[float], float]:
    benchmark = BENCHMARKS["llama3_1-8b"]

    def expected_s(qps: float) -> float:
        return count_leg(
            settings_of(
                scenario, benchmark, CURRENT_ROUND, 13_368, lambda key: f"{qps}" if key == "target_qps" else None
            ),
            "performance",
        ).expected_s

    return expected_s


def test_a_hair_lower_where_a_whole_data_set_is_saved() -> None:
    expected_s = official_s("Server")
    lower = cheaper(22.1, None, expected_s)
    assert 0.99 * 22.1 <= lower <= 22.0751  # up to there one data set is enough
    assert expected_s(22.1) > 1_190
    assert expected_s(lower) < 620
    assert cheaper(22.5, None, expected_s) == 22.5  # more than a hundredth away
    assert cheaper(21.9, None, expected_s) == 21.9  # nothing to save
    assert cheaper(22.1, 22.05, expected_s) == 22.1  # 22.07 is all but known to be valid
