"""The search for a rate, on systems whose best rate an exhaustive search can tell."""

import math
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from runs.benchmark import Scenario
from runs.benchmarks import BENCHMARKS
from runs.loadgen.counts import count_leg, settings_of
from runs.rounds import CURRENT_ROUND
from scenarios.tune.rates import MOST_PROBES, RESOLUTION, Bracket, Tried, cheaper, next_rate


def search(
    valid: Callable[[float], bool], offline_qps: float, scenario: str = "Server", most: int = MOST_PROBES
) -> list[Tried]:
    """All probes of a search."""
    tried: list[Tried] = []
    while (rate := next_rate(scenario, offline_qps, tried, resolution=RESOLUTION, most_probes=most)) is not None:
        tried.append(Tried(rate, valid(rate)))
    return tried


@given(threshold=st.floats(0.34, 1.1), offline_qps=st.floats(0.01, 10_000))
def test_a_sharp_threshold_is_found_within_the_resolution(threshold: float, offline_qps: float) -> None:
    for scenario in ("Server", "Interactive"):
        tried = search(lambda qps: qps <= threshold * offline_qps, offline_qps, scenario)
        bracket = Bracket.of(tried)
        assert bracket.valid is not None
        assert bracket.valid >= 0.97 * threshold * offline_qps
        assert bracket.width <= RESOLUTION or len(tried) == MOST_PROBES


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_the_search_ends_whatever_the_verdicts(verdicts: list[bool]) -> None:
    left = iter(verdicts)
    tried = search(lambda _: next(left, False), 100)
    assert len(tried) <= MOST_PROBES
    assert len({one.target_qps for one in tried}) == len(tried)
    assert all(0 < one.target_qps < math.inf for one in tried)


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
