"""Offered and completed rates, open queries, and whether an engine kept up, on generated timelines."""

import heapq

import numpy as np
import pytest
from numpy.typing import NDArray

from runs.loadgen.schedule import poisson_offsets_ns
from runs.numbers.load import load_of
from runs.rounds import CURRENT_ROUND

SEED = CURRENT_ROUND.seeds.schedule_rng_seed
Times = NDArray[np.int64]


def ns(seconds: list[float]) -> Times:
    return (np.array(seconds) * 1e9).astype(np.int64)


def latencies_of_shared_engine(arrived_ns: Times, per_second: float, alone_s: float) -> Times:
    """Return latencies of an engine that computes all open queries together, at most `per_second`."""
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


def test_a_constant_latency_does_not_change_the_rates() -> None:
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
    load = load_of(arrived_ns, latencies_of_shared_engine(arrived_ns, 0.25 / use, 6.0))
    assert load is not None
    assert load.kept_up
    assert load.completed_per_second == pytest.approx(load.offered_per_second, rel=0.08)


def test_poisson_noise_is_rarely_called_saturation() -> None:
    flagged = 0
    for seed in range(200):
        arrived_ns = poisson_offsets_ns(seed, 0.25, 24)
        load = load_of(arrived_ns, latencies_of_shared_engine(arrived_ns, 0.25 / 0.5, 6.0))
        flagged += load is not None and not load.kept_up
    assert flagged <= 2


@pytest.mark.parametrize("count", [24, 44, 128, 512])
def test_a_slow_engine_is_reported(count: int) -> None:
    arrived_ns = poisson_offsets_ns(SEED, 0.5, count)
    load = load_of(arrived_ns, latencies_of_shared_engine(arrived_ns, 0.3, 3.5))
    assert load is not None
    assert not load.kept_up
    assert load.completed_per_second == pytest.approx(0.3, rel=0.12)
    assert load.open_at_end > 4
    assert "the engine did not keep up: 0." in load.warning
    assert load.warning.endswith(f"{load.open_at_end} requests were waiting at the end")


def test_sequential_queries_above_the_rate_do_not_keep_up() -> None:
    arrived = np.arange(60.0)
    done = np.arange(1, 61) * 1.5
    load = load_of(ns(list(arrived)), ns(list(done - arrived)))
    assert load is not None
    assert load.completed_per_second == pytest.approx(1 / 1.5)
    assert not load.kept_up


def test_a_stopped_engine_has_a_long_drain_and_a_straggler_has_none() -> None:
    arrived = list(np.arange(0.0, 60.0))
    latencies = [1.0] * 55 + [20.0 - n for n in range(5)]
    stopped, straggler = load_of(ns(arrived), ns(latencies)), load_of(ns(arrived), ns([1.0] * 59 + [20.0]))
    assert stopped is not None
    assert straggler is not None
    assert (stopped.kept_up, straggler.kept_up) == (False, True)


def test_a_single_arrival_time_has_no_rate() -> None:
    assert load_of(ns([0.0]), ns([1.0])) is None
    assert load_of(ns([0.0, 0.0]), ns([1.0, 1.0])) is None
