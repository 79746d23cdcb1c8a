"""The search over scheduling options, on systems whose best rate is known for every setting."""

import math
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from runs.errors import InputError
from scenarios.tune.journal import LegRecord, Options
from scenarios.tune.option_search import RESOLUTION, WORTH_SHARE, Ask, OptionTrials, best_of, open_study, worth_of
from scenarios.tune.option_space import Space

SPACE = Space(
    {
        "data_parallel_size": (2,),
        "admission": ("fcfs", "deadline", "shortest"),
        "admission_tokens": (1024, 2048, 4096),
        "max_num_batched_tokens": (512, 1024, 2048, 4096),
        "max_num_seqs": (16, 32, 64, 128),
    }
)
MOST_TRIALS = 30
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


def probe(ask: Ask, of: Capacity, *, fails: bool = False) -> LegRecord:
    """A leg's record: the higher the overload, the sooner it shows."""
    highest = of(ask.options)
    valid = ask.target_qps <= highest
    answered = 1_000 if valid else round(1_000 * highest / ask.target_qps / 2)
    return LegRecord(
        step="search", number=1, verdict=None if fails else "VALID" if valid else "INVALID", reasons=[],
        queries_planned=1_000, queries_answered=answered, wall_s=1.0, directory="search-1", **ask._asdict(),
    )  # fmt: skip


Answer = Callable[[Ask, Capacity], LegRecord]


def trials_of(space: Space, study: optuna.Study, most: int = MOST_TRIALS, budget_s: float = 1e6) -> OptionTrials:
    return OptionTrials(space, study, "Server", 100.0, most, budget_s)


def search(
    of: Capacity,
    space: Space = SPACE,
    *,
    most: int = MOST_TRIALS,
    budget_s: float = 1e6,
    probe_s: float = 0.0,
    answer: Answer = probe,
) -> list[LegRecord]:
    trials = trials_of(space, open_study(None), most, budget_s)
    probes: list[LegRecord] = []
    while (ask := trials.next_probe(probes, probe_s * len(probes))) is not None:
        probes.append(answer(ask, of))
        assert len(probes) < 500
    return probes


def settings_tried(probes: list[LegRecord]) -> list[Options]:
    """Those of each trial, in their order."""
    found = {one.trial: one.options for one in probes if one.phase != "worth"}
    return list(found.values())


def test_the_best_settings_are_found_and_cost_few_full_legs() -> None:
    probes = search(capacity)
    best = best_of(probes)
    assert best is not None
    assert SPACE.count() == 650  # 2 · (off and 3 policies with 4 bounds each) · 5 · 5, each with a rate of its own
    assert len(settings_tried(probes)) == 1 + MOST_TRIALS
    assert best.target_qps > 0.95 * capacity(BEST)
    assert best.options["data_parallel_size"] == 2
    assert len(probes) < 90
    # What costs a whole leg is a probe that is VALID: the defaults' and those of trials that were better.
    assert sum(1 for one in probes if one.valid) < 20


def test_a_search_that_is_ended_after_every_probe_goes_on_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "study.jsonl"
    most = 12
    probes: list[LegRecord] = []
    while True:
        ask = trials_of(SPACE, open_study(file), most).next_probe(probes, 0.0)
        assert trials_of(SPACE, open_study(file), most).next_probe(probes, 0.0) == ask  # ended in the leg
        if ask is None:
            break
        probes.append(probe(ask, capacity))
    settings = settings_tried(probes)
    assert len(settings) == 1 + most
    assert all(settings.count(one) == 1 for one in settings)
    best = best_of(probes)
    assert best is not None
    assert best.options["data_parallel_size"] == 2
    study = optuna.load_study(
        study_name="search",
        storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(file))),
    )
    assert study.best_value == best.target_qps


def test_a_study_that_was_killed_or_damaged(tmp_path: Path) -> None:
    file = tmp_path / "study.jsonl"
    ask = trials_of(SPACE, open_study(file)).next_probe([], 0.0)
    file.write_text(file.read_text() + '{"op_code": 4, "tri')  # killed while it wrote
    (tmp_path / "study.jsonl.lock").touch()
    assert trials_of(SPACE, open_study(file)).next_probe([], 0.0) == ask
    file.write_text("{}\n{}\n")
    with pytest.raises(InputError, match="not a study of optuna"):
        open_study(file)


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
    for name in best.options:
        worth = worth_of(SPACE, name, probes, best)
        without = capacity(worth["without"]["options"])
        assert worth["without"]["invalid"] > without  # every option that stays in the best settings is worth something
        assert (worth["without"]["valid"] or 0) <= without
        truth = best.target_qps / without - 1
        assert worth["worth_at_least"] <= truth
        assert truth <= (worth["worth_at_most"] or math.inf)
    assert worth_of(SPACE, "data_parallel_size", probes, best)["worth_at_least"] > 0.3


def test_nothing_valid_with_the_defaults_ends_the_search() -> None:
    probes = search(lambda _: 0.0)
    assert {one.phase for one in probes} == {"defaults"}
    assert len(probes) == 8
    assert best_of(probes) is None


def test_settings_that_the_engine_refuses_are_neither_best_nor_asked_again() -> None:
    def refuse_copies(ask: Ask, of: Capacity) -> LegRecord:
        return probe(ask, of, fails="data_parallel_size" in ask.options)

    probes = search(capacity, answer=refuse_copies)
    best = best_of(probes)
    assert best is not None
    assert "data_parallel_size" not in best.options
    refused = [one.options for one in probes if one.verdict is None]
    assert refused
    assert all(refused.count(options) == 1 for options in refused)


def test_the_time_is_kept_and_a_part_of_it_is_for_the_worth() -> None:
    probes = search(capacity, most=1_000, budget_s=60.0, probe_s=1.0)
    assert len(probes) <= 60
    worth = [number for number, one in enumerate(probes) if one.phase == "worth"]
    assert worth
    new = [n for n, one in enumerate(probes) if one.phase == "trial" and one.trial != probes[n - 1].trial]
    assert max(new) < (1 - WORTH_SHARE) * 60


def test_a_small_space_is_searched_whole() -> None:
    space = Space({"dummy_slots": (4, 8), "admission": ("fcfs",)})
    probes = search(lambda options: float(options.get("dummy_slots", 6)) * 10, space)
    settings = settings_tried(probes)
    assert sorted(map(str, settings)) == sorted(map(str, space.combinations()))
    best = best_of(probes)
    assert best is not None
    assert best.options == {"dummy_slots": 8}


def test_first_each_option_alone_then_the_sampler() -> None:
    worse = search(lambda options: 80.0 - len(options))
    assert settings_tried(worse)[1:6] == [
        {"data_parallel_size": 2},
        {"admission": "deadline"},
        {"admission": "deadline", "admission_tokens": 2048},  # a bound has no effect without a policy
        {"max_num_batched_tokens": 2048},
        {"max_num_seqs": 64},
    ]
    better = search(lambda options: 80.0 + 10 * len(options))
    assert settings_tried(better)[2] == {"data_parallel_size": 2, "admission": "deadline"}
