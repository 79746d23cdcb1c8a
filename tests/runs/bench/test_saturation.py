"""Saturation and the steady rate, on generated arrivals and completions of engines with slots."""

import heapq
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from runs.bench.saturation import growth_text, not_steady, signs_of_saturation, steady_offline_rate
from runs.loadgen.schedule import poisson_offsets_ns
from runs.numbers.load import ArrivalWindow, arrival_window
from runs.rounds import CURRENT_ROUND

SEED = CURRENT_ROUND.seeds.schedule_rng_seed


def slots(arrived_s: NDArray[np.float64], slots: int, service_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the latencies of an engine that computes some queries at a time, in order of arrival."""
    free, done = [0.0] * slots, np.zeros(len(arrived_s))
    for place, (arrived, took) in enumerate(zip(arrived_s, service_s, strict=True)):
        done[place] = max(arrived, heapq.heappop(free)) + took
        heapq.heappush(free, done[place])
    return done - arrived_s


@dataclass(frozen=True)
class Judged:
    saturated: bool
    unclear: bool
    steady: bool


def judge_saturation(arrived_s: NDArray[np.float64], latency_s: NDArray[np.float64]) -> Judged:
    window = arrival_window(arrived_s, latency_s)
    assert window is not None
    return Judged(
        window.is_saturated,
        bool(signs_of_saturation(window)) and not window.is_saturated,
        not_steady(window, arrived_s, latency_s) is None,
    )


def simulate_minute(
    queries: int, use: float, seed: int = SEED, *, latency_s: float = 5.0, run_s: float = 60.0
) -> Judged:
    """Simulate a run of an engine that completes `1 / use` of the offered load, with latencies of about `latency_s`."""
    arrived_s = poisson_offsets_ns(seed, queries / run_s, queries) / 1e9
    at_once = max(1, round(queries / run_s * latency_s / use))
    service_s = np.random.default_rng(seed).normal(1, 0.05, queries) * use * at_once * run_s / queries
    return judge_saturation(arrived_s - arrived_s[0], slots(arrived_s, at_once, service_s))


@pytest.mark.parametrize("queries", [24, 64, 130, 662, 20_000])
@pytest.mark.parametrize("latency_s", [0.3, 5.0])
def test_a_healthy_run_of_a_minute_is_steady(queries: int, latency_s: float) -> None:
    for use in (0.25, 0.5):
        verdict = simulate_minute(queries, use, latency_s=latency_s)
        assert verdict == Judged(saturated=False, unclear=False, steady=True)


def test_healthy_runs_are_rarely_called_saturated() -> None:
    for queries, use, saturated, unclear in ((24, 0.5, 1, 4), (64, 0.75, 4, 4), (130, 0.75, 2, 4), (662, 0.75, 1, 1)):
        verdicts = [simulate_minute(queries, use, seed) for seed in range(200)]
        assert sum(verdict.saturated for verdict in verdicts) <= saturated
        assert sum(verdict.unclear for verdict in verdicts) <= unclear
        assert sum(not verdict.steady for verdict in verdicts) <= 4


@pytest.mark.parametrize(
    ("queries", "use"), [(24, 2.0), (64, 2.0), (130, 2.0), (662, 1.1), (662, 2.0), (20_000, 1.1), (20_000, 2.0)]
)
def test_an_overload_is_detected_by_the_growth_of_open_queries(queries: int, use: float) -> None:
    assert simulate_minute(queries, use).saturated  # with arrivals of LoadGen
    verdicts = [simulate_minute(queries, use, seed) for seed in range(20 if queries < 1000 else 2)]
    assert sum(verdict.saturated for verdict in verdicts) >= 0.6 * len(verdicts)
    assert sum(verdict.saturated or verdict.unclear for verdict in verdicts) >= 0.7 * len(verdicts)


def test_an_overload_of_three_percent_is_detected_with_many_queries() -> None:
    verdicts = [simulate_minute(20_000, 1.03, seed) for seed in range(4)]
    assert all(verdict.saturated or verdict.unclear for verdict in verdicts)


def test_a_burst_is_not_saturation() -> None:
    arrived_s = np.arange(0.0, 60.0, 0.1)
    for begin_s in (30.0, 45.0):
        burst_s = np.sort(np.concatenate((arrived_s, np.full(100, begin_s))))
        verdict = judge_saturation(burst_s, slots(burst_s, 60, np.full(len(burst_s), 4.0)))
        assert not verdict.saturated


@pytest.mark.parametrize(("every", "late_s"), [(4, 0.8), (10, 1.0), (20, 1.0)])
def test_a_latency_tail_is_not_saturation(every: int, late_s: float) -> None:
    for seed in range(20):
        arrived_s = poisson_offsets_ns(seed, 16.0, 80) / 1e9
        late = np.random.default_rng(seed).random(80) < 1 / every
        assert not judge_saturation(arrived_s - arrived_s[0], np.where(late, late_s, 0.05)).saturated


def test_a_stall_before_the_window_is_not_steady() -> None:
    """No response arrives for half a minute, then all of them.

    So few queries are open at the end, and many at the beginning.
    """
    arrived_s = np.arange(0.0, 60.0, 0.1)
    verdict = judge_saturation(arrived_s, np.where(arrived_s < 30, 30 - arrived_s + 0.5, 0.5))
    assert verdict == Judged(saturated=False, unclear=False, steady=False)


def test_answers_longer_than_a_third_of_the_run_are_unclear() -> None:
    arrived_s = np.arange(0.0, 60.0, 0.1)
    verdict = judge_saturation(arrived_s, np.full(len(arrived_s), 40.0))
    assert (verdict.saturated, verdict.unclear) == (False, True)


@pytest.mark.parametrize("at_once", [1, 8, 64])
@pytest.mark.parametrize("waves", [4, 6.5, 20])
@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_the_steady_offline_rate_excludes_fill_and_drain(at_once: int, waves: float, spread: float) -> None:
    queries, rates = int(at_once * waves), []
    for seed in range(20):
        service_s = np.random.default_rng(seed).normal(1, spread, queries) * 5
        rates.append(steady_offline_rate(np.sort(slots(np.zeros(queries), at_once, service_s))))
    assert np.mean(rates) == pytest.approx(at_once / 5, rel=0.03 if spread else 1e-6)


def test_the_rate_of_one_wave_covers_the_complete_time() -> None:
    assert steady_offline_rate(np.full(8, 2.0)) == 4.0
    assert steady_offline_rate(np.array([1.0])) == 1.0
    assert steady_offline_rate(np.array([2.0, 2.1, 2.2, 2.3])) == pytest.approx(4 / 2.3)


@pytest.mark.parametrize(
    ("growth", "later", "saturated", "limit"),
    [
        (16.5, 1.4, True, "limit 8.4: 1.5 standard deviations"),
        (16.5, 0.2, False, "limit 16.9: 3 standard deviations"),
        (23.5, 0.03, False, "3% longer than the arrivals (limit 5%)"),
        (23.5, 0.2, True, "20% longer than the arrivals (limit 5%)"),
    ],
)
def test_the_reason_names_the_deciding_limits(growth: float, later: float, saturated: bool, limit: str) -> None:
    window = ArrivalWindow(0.0, 10.0, 43, mean_open=30.7, most_open=40, growth=growth, later=later)
    assert window.is_saturated == saturated
    assert limit in growth_text(window)
