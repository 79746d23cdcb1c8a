"""The search over scheduling options, on systems whose best rate is known for every setting."""

import math
import random
import statistics
from collections.abc import Callable, Sequence

import pytest

from scenarios.tune.option_sampler import SEEDS, ScoredOptions, suggest
from scenarios.tune.option_space import Options, Space
from scenarios.tune.option_trials import (
    RESOLUTION,
    WORTH_SHARE,
    Ask,
    Limits,
    Probe,
    Suggest,
    best_of,
    next_ask,
    scores,
    trials_of,
    worths,
)

SPACE = Space(
    {
        "data_parallel_size": (2,),
        "admission": ("fcfs", "deadline", "shortest"),
        "admission_tokens": (1024, 2048, 4096),
        "max_num_batched_tokens": (512, 1024, 2048, 4096),
        "max_num_seqs": (16, 32, 64, 128),
    }
)
LIMITS = Limits("Server", 100.0, 30, 1e6)
Capacity = Callable[[Options], float]


def capacity(options: Options) -> float:
    """Replicas help much, a policy with a bound that fits helps a little, small batches hurt, the rest does nothing."""
    rate = 80.0
    if options.get("data_parallel_size") == 2:
        rate *= 1.4
    if options.get("admission") == "deadline":
        rate *= {None: 1.02, 1024: 0.8, 2048: 1.1, 4096: 1.05}[options.get("admission_tokens")]
    if options.get("admission") == "shortest":
        rate *= 0.9
    return rate * {None: 1.0, 16: 0.5, 32: 0.8, 64: 1.06, 128: 1.0}[options.get("max_num_seqs")]


BEST = {"data_parallel_size": 2, "admission": "deadline", "admission_tokens": 2048, "max_num_seqs": 64}


def probe(ask: Ask, of: Capacity) -> Probe:
    """What a leg would tell: the higher the overload, the sooner it shows."""
    highest = of(ask.options)
    valid = ask.target_qps <= highest
    held = 1.0 if valid else highest / ask.target_qps / 2
    return Probe(ask.trial, ask.phase, ask.options, ask.target_qps, valid, held)


def search(
    of: Capacity, space: Space = SPACE, limits: Limits = LIMITS, probe_s: float = 0.0, choose: Suggest = suggest
) -> list[Probe]:
    probes: list[Probe] = []
    while (ask := next_ask(space, probes, probe_s * len(probes), limits, choose)) is not None:
        probes.append(probe(ask, of))
        assert len(probes) < 500
    return probes


def test_the_best_settings_are_found_and_cost_few_full_legs() -> None:
    probes = search(capacity)
    best = best_of(probes)
    assert best is not None
    assert SPACE.count() == 650  # 2 · (off and 3 policies with 4 bounds each) · 5 · 5, each with a rate of its own
    assert trials_of(probes) == LIMITS.most_trials
    assert best.target_qps > 0.95 * capacity(BEST)
    assert best.options["data_parallel_size"] == 2
    assert len(probes) < 90
    # What costs a whole leg is a probe that is VALID: the defaults' and those of trials that were better.
    assert sum(1 for one in probes if one.valid) < 20


def drawn(seed: int) -> Capacity:
    """A system of which each value of each option multiplies the rate by something around 1."""
    draw = random.Random(seed)
    effects = {name: {value: 1 + draw.gauss(0, 0.12) for value in values} for name, values in SPACE.values.items()}
    return lambda options: 80 * math.prod(max(0.2, effects[name][value]) for name, value in options.items())


def at_random(seed: int) -> Suggest:
    """Settings drawn without a thought."""
    draw, every = random.Random(seed), list(SPACE.combinations())

    def suggest_any(_space: Space, tried: Sequence[ScoredOptions], _best: Options) -> Options:
        return draw.choice([one for one in every if one not in [other.options for other in tried]])

    return suggest_any


@pytest.mark.slow
def test_thirty_trials_of_650_settings_come_near_the_best() -> None:
    """Systems that nobody made for the search: half of the searches end within 3 % of the best of all settings."""
    found, by_chance = [], []
    for seed in range(6):
        of = drawn(seed)
        highest = max(map(of, SPACE.combinations()))
        for shares, choose in ((found, suggest), (by_chance, at_random(seed))):
            best = best_of(search(of, choose=choose))
            assert best is not None
            shares.append(of(best.options) / highest)
    assert statistics.median(found) > 0.97
    assert min(found) > 0.8
    assert statistics.median(by_chance) < statistics.median(found)


def test_a_trial_that_fails_at_once_is_over() -> None:
    probes = search(capacity)
    for number in range(1, probes[-1].trial + 1):
        trial = [one for one in probes if one.trial == number]
        earlier = best_of([one for one in probes if one.trial < number])
        assert earlier is not None
        if trial[0].phase == "trial":
            assert trial[0].target_qps == pytest.approx(earlier.target_qps * (1 + RESOLUTION), rel=1e-3)
            assert trial[0].valid or len(trial) == 1


def test_the_search_goes_on_from_any_point_as_if_it_had_not_ended() -> None:
    probes = search(capacity)
    for count in range(0, len(probes), 3):
        ask = next_ask(SPACE, probes[:count], 0.0, LIMITS, suggest)
        assert ask is not None
        assert probe(ask, capacity) == probes[count]


def test_settings_are_tried_once() -> None:
    probes = search(capacity)
    asked = [(one.options, one.target_qps) for one in probes]
    assert all(asked.count(one) == 1 for one in asked)


def test_an_option_without_effect_is_left_out() -> None:
    """It may get into the best settings by chance, but not stay there."""

    def of(options: Options) -> float:
        return 50.0 * (1.5 if options.get("max_num_seqs") == 64 else 1.0)

    probes = search(of)
    best = best_of(probes)
    assert best is not None
    assert best.options == {"max_num_seqs": 64}
    assert 75 / (1 + RESOLUTION) <= best.target_qps <= 75


def test_what_each_option_is_worth() -> None:
    probes = search(capacity)
    best = best_of(probes)
    assert best is not None
    found = {worth.name: worth for worth in worths(SPACE, probes, best)}
    assert set(found) == set(best.options)
    for worth in found.values():
        without = capacity(worth.without)
        assert worth.bracket.invalid is not None  # every option that stays in the best settings is worth something
        assert worth.bracket.invalid > without
        assert worth.bracket.valid is None or worth.bracket.valid <= without
        at_least, at_most = worth.shares(best)
        truth = best.target_qps / without - 1
        assert at_least is not None
        assert at_least <= truth
        assert at_most is None or truth <= at_most
    at_least, at_most = found["data_parallel_size"].shares(best)
    assert at_least is not None
    assert at_least > 0.3


def test_nothing_better_than_the_defaults_leaves_the_defaults() -> None:
    probes = search(lambda options: 80.0 - 10 * len(options))
    best = best_of(probes)
    assert best is not None
    assert best.options == {}
    assert trials_of(probes) == LIMITS.most_trials
    assert len(probes) - LIMITS.most_trials <= 8  # one probe a trial, and those of the defaults


def test_nothing_valid_with_the_defaults_ends_the_search() -> None:
    probes = search(lambda _: 0.0)
    assert {one.phase for one in probes} == {"defaults"}
    assert len(probes) == 8
    assert best_of(probes) is None


def test_settings_that_the_engine_refuses_are_neither_best_nor_asked_again() -> None:
    probes: list[Probe] = []
    while (ask := next_ask(SPACE, probes, 0.0, LIMITS, suggest)) is not None:
        if "data_parallel_size" in ask.options:
            probes.append(Probe(ask.trial, ask.phase, ask.options, ask.target_qps, None, 0.0))
        else:
            probes.append(probe(ask, capacity))
        assert len(probes) < 200
    best = best_of(probes)
    assert best is not None
    assert "data_parallel_size" not in best.options
    refused = [one.options for one in probes if one.valid is None]
    assert refused
    assert all(refused.count(options) == 1 for options in refused)
    assert {one.score for one in scores(probes) if "data_parallel_size" in one.options} == {0.0}


def test_a_leg_that_fails_on_the_way_up_ends_its_trial() -> None:
    probes = [
        Probe(0, "defaults", {}, 90.0, False, 0.1),
        Probe(0, "defaults", {}, 88.0, True, 1.0),
        Probe(1, "trial", {"max_num_seqs": 64}, 90.64, True, 1.0),
        Probe(1, "trial", {"max_num_seqs": 64}, 94.3, None, 0.0),
    ]
    ask = next_ask(SPACE, probes, 0.0, LIMITS, suggest)
    assert ask is not None
    assert ask.trial == 2


def test_the_time_is_kept_and_a_part_of_it_is_for_the_worth() -> None:
    limits = Limits("Server", 100.0, 1_000, 60.0)
    probes = search(capacity, limits=limits, probe_s=1.0)
    assert len(probes) <= 60
    worth = [number for number, one in enumerate(probes) if one.phase == "worth"]
    assert worth
    new = [n for n, one in enumerate(probes) if one.phase == "trial" and one.trial != probes[n - 1].trial]
    assert max(new) < (1 - WORTH_SHARE) * 60


def test_a_small_space_is_searched_whole() -> None:
    space = Space({"dummy_slots": (4, 8), "admission": ("fcfs",)})
    probes = search(lambda options: float(options.get("dummy_slots", 6)) * 10, space)
    settings = [one.options for one in scores(probes)]
    assert sorted(map(str, settings)) == sorted(map(str, space.combinations()))
    best = best_of(probes)
    assert best is not None
    assert best.options == {"dummy_slots": 8}


# Scores and the sampler -----------------------------------------------------------------------------------------------


def test_scores_put_better_settings_higher() -> None:
    a, b, c, d = ({"max_num_seqs": value} for value in (16, 32, 64, 128))
    probes = [
        Probe(0, "defaults", {}, 100, True, 1.0),
        Probe(1, "trial", a, 103, False, 0.9),  # failed late
        Probe(2, "trial", b, 103, False, 0.1),  # failed at once
        Probe(3, "trial", c, 103, True, 1.0),
        Probe(3, "trial", c, 107, False, 1.0),
        Probe(4, "trial", d, 106, None, 0.0),  # did not run
    ]
    order = sorted(scores(probes), key=lambda one: one.score, reverse=True)
    assert [one.options for one in order] == [c, {}, a, b, d]


def test_first_each_option_alone_then_the_sampler() -> None:
    tried = [ScoredOptions({}, 80.0)]
    first: list[Options | None] = []
    for _ in range(5):
        options = suggest(SPACE, tried, {})
        first.append(options)
        assert options is not None
        tried.append(ScoredOptions(options, 1.0))
    assert first == [
        {"data_parallel_size": 2},
        {"admission": "deadline"},
        {"admission": "deadline", "admission_tokens": 2048},  # a bound has no effect without a policy
        {"max_num_batched_tokens": 2048},
        {"max_num_seqs": 64},
    ]
    assert suggest(SPACE, tried[:2], {"data_parallel_size": 2}) == {"data_parallel_size": 2, "admission": "deadline"}


def test_the_sampler_never_repeats_and_ends() -> None:
    space = Space({"max_num_seqs": (16, 32), "admission": ("fcfs",), "admission_tokens": (1024, 2048)})
    tried: Sequence[ScoredOptions] = [ScoredOptions({}, 1.0)]
    while (options := suggest(space, tried, {})) is not None:
        assert options not in [one.options for one in tried]
        tried = [*tried, ScoredOptions(options, float(len(options)))]
    assert len(tried) == space.count() == 3 * (1 + 3)


def test_the_sampler_follows_the_scores() -> None:
    """Of many settings, those that share values with the good ones are asked for: more often than one in five."""
    tried = [
        ScoredOptions({}, 50.0),
        ScoredOptions({"admission": "fcfs"}, 1.0),
        ScoredOptions({"data_parallel_size": 2}, 1.0),
    ]
    tried += [ScoredOptions({"max_num_seqs": size}, 100.0 if size == 64 else 1.0) for size in (16, 32, 64, 128)]
    tried += [ScoredOptions({"max_num_batched_tokens": size, "max_num_seqs": 64}, 100.0 + size) for size in (512, 1024)]
    asked = []
    for _ in range(10):
        options = suggest(SPACE, tried, {"max_num_seqs": 64})
        assert options is not None
        asked.append(options)
        tried.append(ScoredOptions(options, 100.0 if options.get("max_num_seqs") == 64 else 1.0))
    assert sum(options.get("max_num_seqs") == 64 for options in asked) >= 5
    assert SEEDS > 1
