"""The replay of LoadGen's random choices. That it is LoadGen's is shown by test_loadgen_runs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.loadgen import schedule
from runs.loadgen.schedule import OrderSettings, issue_order, loaded_sets, poisson_offsets_ns
from runs.rounds import CURRENT_ROUND

SEEDS = CURRENT_ROUND.seeds


def test_the_loaded_set_begins_as_loadgen_logs_it() -> None:
    assert loaded_sets(SEEDS.qsl_rng_seed, 100, 100)[0][:8] == [1, 5, 13, 64, 11, 37, 58, 70]


@given(count=st.integers(0, 400), size=st.integers(1, 150), seed=st.integers(0, 2**64 - 1))
def test_loaded_sets_part_the_library(count: int, size: int, seed: int) -> None:
    sets = loaded_sets(seed, count, size)
    assert sorted(index for one in sets for index in one) == list(range(count))
    assert all(len(one) == size for one in sets[:-1])


@settings(max_examples=50)
@given(
    scenario=st.sampled_from(["Offline", "Server", "SingleStream"]), size=st.integers(1, 60), repeats=st.integers(1, 4)
)
def test_permutations_issue_every_sample_equally_often(scenario: str, size: int, repeats: int) -> None:
    loaded = [index * 3 for index in range(size)]
    order = issue_order(loaded, size * repeats, OrderSettings(scenario, False, SEEDS.sample_index_rng_seed, 100, True))
    assert [int(np.count_nonzero(order == index)) for index in loaded] == [repeats] * size


def test_only_the_low_half_of_a_seed_counts() -> None:
    low = SEEDS.schedule_rng_seed & 0xFFFFFFFF
    assert np.array_equal(poisson_offsets_ns(low, 10, 50), poisson_offsets_ns(SEEDS.schedule_rng_seed, 10, 50))
    assert not np.array_equal(poisson_offsets_ns(low + 1, 10, 50), poisson_offsets_ns(low, 10, 50))


@given(qps=st.floats(0.01, 1e5), count=st.integers(0, 500))
def test_offsets_rise_from_zero(qps: float, count: int) -> None:
    offsets_ns = poisson_offsets_ns(SEEDS.schedule_rng_seed, qps, count)
    assert len(offsets_ns) == count
    assert count == 0 or offsets_ns[0] == 0
    assert np.all(np.diff(offsets_ns) >= 0)


def test_a_longer_schedule_begins_with_the_shorter_one() -> None:
    """Whatever was computed before, and beyond what is kept."""
    seed, longest = SEEDS.schedule_rng_seed, schedule._KEPT_GAPS + 2
    whole = poisson_offsets_ns(seed, 22.5, longest)
    for count in (2, 3, 1000, 1024, 1025, 1026):
        assert np.array_equal(poisson_offsets_ns(seed, 22.5, count), whole[:count])


def test_what_is_kept_cannot_be_changed_by_a_caller() -> None:
    loaded = loaded_sets(SEEDS.qsl_rng_seed, 50, 20)
    loaded[0].clear()
    assert [len(one) for one in loaded_sets(SEEDS.qsl_rng_seed, 50, 20)] == [20, 20, 10]
    settings_ = OrderSettings("Server", False, SEEDS.sample_index_rng_seed, 100, True)
    order = issue_order(list(range(50)), 100, settings_)
    expected = order.tolist()
    order[:] = 0
    assert issue_order(list(range(50)), 100, settings_).tolist() == expected
    offsets_ns = poisson_offsets_ns(SEEDS.schedule_rng_seed, 10, 50)
    last_ns = int(offsets_ns[-1])
    offsets_ns[:] = 0
    assert poisson_offsets_ns(SEEDS.schedule_rng_seed, 10, 50)[-1] == last_ns
