"""Comparisons of simulated systems, equal and with planted changes."""

import numpy as np
import pytest

from runs.ab.block_queries import SystemQueries
from runs.ab.changes import Turns, changes_of
from tests.support.simulated.ab_sessions import Planted, SimulatedMachine, Values, session


def constant(factor: float) -> "Planted":
    return Planted(tpot=lambda times: np.full_like(times, factor))


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.2])
def test_equal_systems_are_rarely_called_different_at_any_look(noise: float) -> None:
    different = 0
    for seed in range(15):
        machine = SimulatedMachine(seed, query_noise=noise, shared_noise=noise, own_noise=noise / 4)
        different += bool(session(machine, Planted(), Planted(), max_time_s=400, stops=False).ever_different())
    assert different <= 2


@pytest.mark.parametrize("factor", [1.04, 1.015])
def test_a_longer_tpot_is_found(factor: float) -> None:
    results = [session(SimulatedMachine(seed), Planted(), constant(factor)) for seed in range(10)]
    assert sum(result.last["TPOT mean"].verdict == "slower" for result in results) >= 9


def test_a_shorter_tpot_is_faster() -> None:
    change = session(SimulatedMachine(1), Planted(), constant(0.95)).last["TPOT mean"]
    assert (change.verdict, round(change.change, 2)) == ("faster", -0.05)


def test_a_longer_ttft_is_found_and_the_tpot_is_equal() -> None:
    slow = Planted(ttft=lambda times: np.full_like(times, 1.06))
    results = [session(SimulatedMachine(seed), Planted(), slow).last for seed in range(10)]
    assert sum(result["TTFT mean"].verdict == "slower" for result in results) >= 9
    assert sum(result["TPOT mean"].verdict == "equal" for result in results) >= 9


def test_a_longer_tail_is_found_in_p99_and_the_means_are_equal() -> None:
    results = [session(SimulatedMachine(seed), Planted(), Planted(tail=0.3), max_time_s=1200) for seed in range(10)]
    times_s = [result.found_after_s("TPOT p99") for result in results]
    assert sum(time_s is not None and time_s <= 300 for time_s in times_s) >= 9
    assert all(abs(result.last["TPOT mean"].change) < 0.015 for result in results)


def test_a_percentile_in_turns_is_compared_over_all_blocks() -> None:
    draw = np.random.default_rng(1)

    def turn(factor: float) -> tuple[SystemQueries, float]:
        times = np.exp(draw.normal(0, 0.1, 30)) * np.where(draw.random(30) < 0.03, 2 * factor, 1)
        return SystemQueries(np.arange(30.0), times, times / 10, times / 100, np.full(30, 32.0)), 100.0

    turns: Turns = {pair: {0: [turn(1.0)], 1: [turn(1.5)]} for pair in range(50)}
    changes = changes_of(turns, "server", load=0, systems=2, loads=1, precision=0.02, elapsed_s=100)
    verdicts = {change.quantity: change.verdict for change in changes}
    assert (verdicts["TPOT p50"], verdicts["TPOT p99"]) == ("equal", "slower")


def test_a_change_that_grows_is_stated_for_both_halves() -> None:
    slowing = Planted(tpot=lambda times: 1 + 0.2 * times / 600)
    change = session(SimulatedMachine(1), Planted(), slowing, stops=False).last["TPOT mean"]
    assert change.drift is not None
    assert change.drift[1] - change.drift[0] == pytest.approx(0.1, abs=0.04)


def test_a_slow_start_is_not_called_slower_when_the_comparison_stops() -> None:
    def slow_start(times: Values) -> Values:
        return np.where(times < 30, 1.5, 1.0)

    for seed in range(5):
        result = session(SimulatedMachine(seed), Planted(), Planted(tpot=slow_start))
        assert result.steps[0][1].verdict == "slower"  # a single block cannot show that the change ends
        assert result.last["TPOT mean"].verdict in ("equal", "undecided")
        assert abs(result.last["TPOT mean"].change) < 0.02


def test_a_change_that_is_not_constant_is_measured_until_the_time_limit() -> None:
    slowing = Planted(tpot=lambda times: 1 + 0.2 * times / 600)
    result = session(SimulatedMachine(1), Planted(), slowing, max_time_s=400)
    assert result.elapsed_s > 330
    assert result.last["TPOT mean"].drift is not None


def test_foreign_load_in_one_block_does_not_decide() -> None:
    for seed in range(10):
        result = session(SimulatedMachine(seed, burst=(60, 90)), Planted(), Planted(), stops=False)
        assert result.last["TPOT mean"].verdict in ("equal", "undecided")
        assert abs(result.last["TPOT mean"].change) < 0.01


def test_three_systems_are_compared_with_the_base() -> None:
    steps = session(SimulatedMachine(3), Planted(), Planted(), constant(1.1)).steps
    verdicts = {step.system: step.verdict for step in steps[-1] if step.quantity == "TPOT mean"}
    assert verdicts == {1: "equal", 2: "slower"}


def block(rate: float) -> tuple[SystemQueries, float]:
    times = np.full(40, 0.1)
    return SystemQueries(np.zeros(40), times, None, None, np.full(40, 32.0)), rate


def test_a_lower_throughput_is_found_in_turns() -> None:
    noise = np.random.default_rng(1).normal(0, 0.01, (12, 2))
    turns: Turns = {
        pair: {0: [block(1000 * np.exp(noise[pair, 0]))], 1: [block(950 * np.exp(noise[pair, 1]))]}
        for pair in range(12)
    }
    (change,) = changes_of(turns, "offline", load=0, systems=2, loads=1, precision=0.02, elapsed_s=100)
    assert (change.quantity, change.verdict) == ("tokens/s", "slower")
    assert change.change == pytest.approx(-0.05, abs=0.015)


def test_few_pairs_of_turns_have_no_interval() -> None:
    turns: Turns = {pair: {0: [block(1000)], 1: [block(900)]} for pair in range(3)}
    (change,) = changes_of(turns, "offline", load=0, systems=2, loads=1, precision=0.02, elapsed_s=100)
    assert (change.low, change.verdict) == (None, "undecided")


def test_a_pair_without_its_second_block_is_left_out() -> None:
    turns: Turns = {0: {0: [block(1000)], 1: [block(900)]}, 1: {0: [block(1000)]}}
    (change,) = changes_of(turns, "offline", load=0, systems=2, loads=1, precision=0.02, elapsed_s=100)
    assert len(change.values) == 1
