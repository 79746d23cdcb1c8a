"""Offered and completed rates, open queries, and whether an engine kept up, on made-up timelines."""

import heapq

import numpy as np
import pytest
from numpy.typing import NDArray

from runs.loadgen.schedule import poisson_offsets_ns
from runs.numbers.load import SteadyPart, load_of, steady_offline_rate, steady_part
from runs.rounds import CURRENT_ROUND

SEED = CURRENT_ROUND.seeds.schedule_rng_seed
Times = NDArray[np.int64]


def ns(seconds: list[float]) -> Times:
    return (np.array(seconds) * 1e9).astype(np.int64)


def shared(arrived_ns: Times, per_second: float, alone_s: float) -> Times:
    """Latencies of an engine that computes all open queries together: `per_second` at most, each `alone_s` at least."""
    work, open_until, now, latencies = 0.0, list[tuple[float, int]](), 0.0, np.zeros(len(arrived_ns), np.int64)
    places = list(range(len(arrived_ns)))[::-1]
    while places or open_until:
        speed = min(1.0, per_second * alone_s / len(open_until)) if open_until else 0.0
        done_s = now + (open_until[0][0] - work) / speed if open_until else np.inf
        next_s = arrived_ns[places[-1]] / 1e9 if places else np.inf
        work += (min(done_s, next_s) - now) * speed
        now = min(done_s, next_s)
        if next_s <= done_s:
            heapq.heappush(open_until, (work + alone_s, places.pop()))
        else:
            _, place = heapq.heappop(open_until)
            latencies[place] = now * 1e9 - arrived_ns[place]
    return latencies


def test_a_constant_latency_shifts_the_completions_and_no_rate() -> None:
    load = load_of(ns([0, 2, 4, 6, 8, 10]), ns([5] * 6))
    assert load is not None
    assert load.offered_per_second == pytest.approx(0.5)
    assert load.completed_per_second == pytest.approx(0.5)
    assert load.mean_open == pytest.approx((5 + 5 + 5 + 4 + 2) / 10)  # open seconds up to the last arrival
    assert (load.open_at_end, load.drain_s) == (2, 5.0)
    assert (load.kept_up, load.warning) == (True, "")
    assert str(load) == "offered 0.50/s, completed 0.50/s, 2.1 open on average"


@pytest.mark.parametrize("count", [8, 24, 44, 128, 512])
@pytest.mark.parametrize("use", [0.3, 0.5, 0.65, 0.8])
def test_an_engine_with_headroom_keeps_up(count: int, use: float) -> None:
    arrived_ns = poisson_offsets_ns(SEED, 0.25, count)
    load = load_of(arrived_ns, shared(arrived_ns, 0.25 / use, 6.0))
    assert load is not None
    assert load.kept_up
    assert load.completed_per_second == pytest.approx(load.offered_per_second, rel=0.08)


def test_poisson_noise_is_no_saturation() -> None:
    flagged = 0
    for seed in range(200):
        arrived_ns = poisson_offsets_ns(seed, 0.25, 24)
        load = load_of(arrived_ns, shared(arrived_ns, 0.25 / 0.5, 6.0))
        flagged += load is not None and not load.kept_up
    assert flagged <= 2


@pytest.mark.parametrize("count", [24, 44, 128, 512])
def test_an_engine_that_is_too_slow_is_told(count: int) -> None:
    arrived_ns = poisson_offsets_ns(SEED, 0.5, count)
    load = load_of(arrived_ns, shared(arrived_ns, 0.3, 3.5))
    assert load is not None
    assert not load.kept_up
    assert load.completed_per_second == pytest.approx(0.3, rel=0.12)
    assert load.open_at_end > 4
    assert "the engine did not keep up: 0." in load.warning
    assert load.warning.endswith(f"{load.open_at_end} requests were waiting at the end")


def test_queries_one_after_another_at_too_high_a_rate() -> None:
    arrived = np.arange(60.0)
    done = np.arange(1, 61) * 1.5
    load = load_of(ns(list(arrived)), ns(list(done - arrived)))
    assert load is not None
    assert load.completed_per_second == pytest.approx(1 / 1.5)
    assert not load.kept_up


def test_an_engine_that_stops_has_a_long_drain_and_a_straggler_has_none() -> None:
    arrived = list(np.arange(0.0, 60.0))
    latencies = [1.0] * 55 + [20.0 - n for n in range(5)]
    stopped, straggler = load_of(ns(arrived), ns(latencies)), load_of(ns(arrived), ns([1.0] * 59 + [20.0]))
    assert stopped is not None
    assert straggler is not None
    assert (stopped.kept_up, straggler.kept_up) == (False, True)


def test_no_load_without_two_moments_of_arrival() -> None:
    assert load_of(ns([0.0]), ns([1.0])) is None
    assert load_of(ns([0.0, 0.0]), ns([1.0, 1.0])) is None


def slots(arrived_s: NDArray[np.float64], slots: int, service_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Latencies of an engine that computes some queries at a time, each with a time of its own, in order of arrival."""
    free, done = [0.0] * slots, np.zeros(len(arrived_s))
    for place, (arrived, took) in enumerate(zip(arrived_s, service_s, strict=True)):
        done[place] = max(arrived, heapq.heappop(free)) + took
        heapq.heappush(free, done[place])
    return done - arrived_s


def steady(queries: int, use: float, seed: int = SEED, *, latency_s: float = 5.0, run_s: float = 60.0) -> SteadyPart:
    """A run of an engine that computes `1 / use` of the offered load, with answers that take about `latency_s`."""
    arrived_s = poisson_offsets_ns(seed, queries / run_s, queries) / 1e9
    at_once = max(1, round(queries / run_s * latency_s / use))
    service_s = np.random.default_rng(seed).normal(1, 0.05, queries) * use * at_once * run_s / queries
    found = steady_part(arrived_s - arrived_s[0], slots(arrived_s, at_once, service_s))
    assert found is not None
    return found


@pytest.mark.parametrize("queries", [24, 64, 130, 662, 20_000])
@pytest.mark.parametrize("latency_s", [0.3, 5.0])
def test_a_healthy_run_of_a_minute_is_steady(queries: int, latency_s: float) -> None:
    for use in (0.25, 0.5):
        found = steady(queries, use, latency_s=latency_s)
        assert (found.is_saturated, found.is_unclear, found.is_steady) == (False, False, True)


def test_few_healthy_runs_are_called_saturated() -> None:
    for queries, use, saturated, unclear in ((24, 0.5, 4, 8), (64, 0.5, 2, 4), (130, 0.75, 4, 10), (662, 0.75, 2, 4)):
        found = [steady(queries, use, seed) for seed in range(200)]
        assert sum(one.is_saturated for one in found) <= saturated
        assert sum(one.is_unclear for one in found) <= unclear
        assert sum(not one.is_steady for one in found) <= 4


@pytest.mark.parametrize(
    ("queries", "use"), [(64, 2.0), (130, 2.0), (662, 1.1), (662, 2.0), (20_000, 1.1), (20_000, 2.0)]
)
def test_an_overload_is_told_from_the_growth_of_open_queries(queries: int, use: float) -> None:
    found = [steady(queries, use, seed) for seed in range(20 if queries < 1000 else 2)]
    assert sum(one.is_saturated for one in found) >= 0.6 * len(found)
    assert sum(one.is_saturated or one.is_unclear for one in found) >= 0.9 * len(found)


def test_an_overload_of_three_percent_needs_many_queries() -> None:
    found = [steady(20_000, 1.03, seed) for seed in range(4)]
    assert all(one.is_saturated or one.is_unclear for one in found)


def test_a_burst_is_no_overload() -> None:
    arrived_s = np.arange(0.0, 60.0, 0.1)
    for begin_s in (30.0, 45.0):
        burst_s = np.sort(np.concatenate((arrived_s, np.full(100, begin_s))))
        found = steady_part(burst_s, slots(burst_s, 60, np.full(len(burst_s), 4.0)))
        assert found is not None
        assert not found.is_saturated


def test_a_mean_that_does_not_fit_the_latencies_is_not_steady() -> None:
    """Answers that take longer than the first third of the run: open queries are still filling up."""
    arrived_s = np.arange(0.0, 60.0, 0.1)
    found = steady_part(arrived_s, np.full(len(arrived_s), 40.0))
    assert found is not None
    assert not found.is_steady


@pytest.mark.parametrize("at_once", [1, 8, 64])
@pytest.mark.parametrize("waves", [4, 6.5, 20])
@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_the_steady_offline_rate_has_neither_fill_nor_drain(at_once: int, waves: float, spread: float) -> None:
    queries, rates = int(at_once * waves), []
    for seed in range(20):
        service_s = np.random.default_rng(seed).normal(1, spread, queries) * 5
        rates.append(steady_offline_rate(np.sort(slots(np.zeros(queries), at_once, service_s))))
    assert np.mean(rates) == pytest.approx(at_once / 5, rel=0.03 if spread else 1e-6)


def test_the_rate_of_one_wave_is_over_the_whole_time() -> None:
    assert steady_offline_rate(np.full(8, 2.0)) == 4.0
    assert steady_offline_rate(np.array([1.0])) == 1.0
    assert steady_offline_rate(np.array([2.0, 2.1, 2.2, 2.3])) == pytest.approx(4 / 2.3)
