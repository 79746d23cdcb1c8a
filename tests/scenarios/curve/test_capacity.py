"""The search for C_max, with simulated servers of K slots."""

import random
from collections.abc import Callable

import pytest

from scenarios.curve.capacity import Capacity, ProbeFailed, search_c_max

FIRST = 32


def searched(rate_at: Callable[[int], float], limit: int = 8192, fails_from: int | None = None) -> tuple[Capacity, int]:
    """Search with a server, and return the result and the number of probes."""
    probes: list[int] = []

    def measure(level: int) -> float:
        probes.append(level)
        if fails_from is not None and level >= fails_from:
            raise ProbeFailed
        return rate_at(level)

    return search_c_max(FIRST, limit, measure), len(probes)


def slots(count: int, noise: float = 0.0, seed: int = 0) -> Callable[[int], float]:
    """Return a server that computes some samples at a time, each for 2 s."""
    draw = random.Random(seed)
    return lambda level: min(level, count) / 2 * draw.uniform(1 - noise, 1 + noise)


@pytest.mark.parametrize("count", [50, 77, 100, 300, 450, 1000, 2900])
def test_c_max_is_close_to_the_slots_of_the_server(count: int) -> None:
    capacity, probes = searched(slots(count))
    assert capacity.is_saturated
    assert count / 1.1 <= capacity.c_max <= count * 1.1
    assert 11 <= probes <= 21


@pytest.mark.parametrize("count", [50, 77, 100, 300, 450, 1000, 2900])
def test_c_max_of_a_noisy_server_is_close_to_its_slots(count: int) -> None:
    capacities = [searched(slots(count, 0.03, seed))[0].c_max for seed in range(10)]
    assert all(count / 1.25 <= c_max <= count * 1.25 for c_max in capacities), capacities


def test_a_server_that_is_saturated_at_the_first_level_has_its_c_max_there() -> None:
    assert searched(slots(20))[0].c_max == FIRST


def test_without_saturation_the_search_stops_at_the_limit_and_says_so() -> None:
    capacity, _ = searched(slots(10**6), limit=1500)
    assert (capacity.c_max, capacity.is_saturated) == (1500, False)
    assert "the limit of 1,500 was reached" in capacity.note


def test_failed_samples_end_the_doubling() -> None:
    capacity, _ = searched(slots(10**6), fails_from=512)
    assert (capacity.c_max, capacity.is_saturated) == (256, False)
    assert "samples failed at concurrency 512" in capacity.note


def test_a_server_that_fails_at_the_first_level_has_no_c_max() -> None:
    with pytest.raises(ProbeFailed):
        searched(slots(100), fails_from=FIRST)
