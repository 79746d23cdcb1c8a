"""Decisions between settings: pairs of probes, and searches whose equal runs differ."""

import math

import pytest

from scenarios.tune.decisions import MAX_PAIRS, advantage, margin, next_of_pair, recommendable, smallest_gain
from scenarios.tune.journal import SchedulingOptions, TunePhase, TuneRun
from tests.support.simulated.option_searches import simulate_search

BASE: SchedulingOptions = {}
CANDIDATE: SchedulingOptions = {"max_num_seqs": 64}


def probe(
    options: SchedulingOptions, p99_ms: float, *, trial: int = 1, phase: TunePhase = "trial", rate: float = 10.0
) -> TuneRun:
    """Return a probe with this p99 TPOT, of a limit of 100 ms."""
    return TuneRun(
        step="search", number=1, target_qps=rate, verdict="VALID" if p99_ms <= 100 else "INVALID", reasons=[],
        queries_planned=1_000, ttft_p99_ms=10, ttft_limit_ms=2_000, tpot_p99_ms=p99_ms, tpot_limit_ms=100, wall_s=60,
        directory="search-1", options=options, trial=trial, phase=phase,
    )  # fmt: skip


def pairs(candidate_ms: list[float], base_ms: list[float]) -> list[TuneRun]:
    probes = [probe(CANDIDATE, p99_ms) for p99_ms in candidate_ms]
    return [*probes, *(probe(BASE, p99_ms, phase="base") for p99_ms in base_ms)]


def test_the_margin_is_that_of_the_nearer_limit() -> None:
    assert margin(probe(BASE, 50)) == pytest.approx(math.log(2))
    assert margin(probe(BASE, 50).model_copy(update={"ttft_p99_ms": 2_000})) == pytest.approx(0)
    assert margin(probe(BASE, 50).model_copy(update={"ttft_p99_ms": None, "tpot_p99_ms": None})) is None


def test_single_probes_decide_nothing() -> None:
    assert advantage(pairs([50], [200]), CANDIDATE, BASE, 10).low == -math.inf


def test_a_clear_difference_needs_fewer_probes_than_an_unclear_one() -> None:
    clear, unclear = pairs([50, 51, 50], [120, 121, 122]), pairs([95, 99, 97], [101, 97, 104])
    assert next_of_pair(clear, CANDIDATE, BASE, 10) is None
    assert advantage(clear, CANDIDATE, BASE, 10).low > 0
    assert next_of_pair(unclear, CANDIDATE, BASE, 10) == BASE  # the last probe was one of the base: A B B A
    assert next_of_pair(pairs([95] * MAX_PAIRS, [101, 97, 104, 95]), CANDIDATE, BASE, 10) is None


def test_repeated_probes_of_other_settings_show_the_noise() -> None:
    others = [probe({"max_num_seqs": 8}, p99_ms, trial=0) for p99_ms in (100, 101, 99, 100, 101, 99, 100, 100)]
    assert advantage([*others, *pairs([50], [120])], CANDIDATE, BASE, 10).low > 0


def test_settings_that_were_not_better_are_not_recommended() -> None:
    defaults = probe(BASE, 90, trial=0, phase="defaults", rate=9.7)
    lucky, better = pairs([95, 99, 97, 101], [101, 97, 104, 99]), pairs([50, 51, 50], [120, 121, 122])
    assert [probe.options for probe in recommendable([defaults, *lucky])] == [BASE] * 5
    assert CANDIDATE in [probe.options for probe in recommendable([defaults, *better])]


def test_an_option_that_was_not_needed_is_dropped() -> None:
    defaults = probe(BASE, 90, trial=0, phase="defaults", rate=9.7)
    better = pairs([50, 51, 50], [120, 121, 122])
    without: SchedulingOptions = {"admission": "fcfs"}
    both = {**CANDIDATE, **without}
    trial = [probe(both, p99_ms, trial=2, rate=12) for p99_ms in (60, 61, 60)]
    trial += [probe(CANDIDATE, p99_ms, trial=2, phase="base", rate=12) for p99_ms in (130, 131, 130)]
    valid_without = probe(without, 95, trial=3, phase="worth", rate=12)
    probes = [defaults, *better, *trial]
    assert both in [probe.options for probe in recommendable(probes)]
    assert both not in [probe.options for probe in recommendable([*probes, valid_without])]


def test_options_without_effect_are_rarely_recommended() -> None:
    assert sum(bool(simulate_search(0.0, 0.03, seed).options) for seed in range(10)) <= 1


def test_an_option_with_an_effect_above_the_noise_is_recommended_alone() -> None:
    assert sum(simulate_search(0.1, 0.01, seed).options == {"first": 1} for seed in range(5)) >= 4


def test_a_gain_that_was_missed_is_below_the_smallest_visible_gain() -> None:
    searches = [simulate_search(0.05, 0.03, seed) for seed in range(10)]
    gains = [gain for search in searches if (gain := smallest_gain(search.probes)) is not None]
    assert not any(search.options for search in searches)
    assert len(gains) >= 7
    assert min(gains) > 0.05


def test_the_smallest_visible_gain_of_a_quiet_system_is_small() -> None:
    gains = [smallest_gain(simulate_search(0.1, 0.01, seed).probes) for seed in range(5)]
    assert all(gain is not None and gain < 0.05 for gain in gains)


def test_the_smallest_visible_gain_is_unknown_without_repeated_probes() -> None:
    rates = [probe(BASE, 90, rate=9.0), probe(BASE, 110, rate=10.0)]
    assert smallest_gain(rates) is None
    repeated = [probe(BASE, p99_ms, rate=10.0) for p99_ms in (108, 109, 111, 112, 110, 109, 111)]
    assert smallest_gain([*rates, *repeated]) == pytest.approx(0.04, abs=0.03)
