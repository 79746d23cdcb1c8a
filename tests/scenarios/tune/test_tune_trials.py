"""The search over scheduling options: the permitted changes, and systems with a known best rate."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from runs.errors import InputError
from scenarios.launch.run_config import make_config
from scenarios.tune.decisions import recommendable
from scenarios.tune.journal import SchedulingOptions, TuneRun, best_probe
from scenarios.tune.option_search import RESOLUTION, WORTH_SHARE, NextProbe, OptionTrials, open_study, worth_of
from scenarios.tune.option_space import ALLOWED, Space, applied, make_space, shown
from scenarios.tune.tune_config import load_tune
from sut.vllm.machine import Machine
from sut.vllm.vllm_kind import CPU_VALUES, GPU_VALUES, VllmKind

SPACE = Space(
    {
        "data_parallel_size": (2,),
        "admission": ("fcfs", "deadline", "shortest"),
        "admission_tokens": (1024, 2048, 4096),
        "max_num_batched_tokens": (512, 1024, 2048, 4096),
        "max_num_seqs": (16, 32, 64, 128),
    }
)
MAX_TRIALS = 30
Capacity = Callable[[SchedulingOptions], float]


def capacity(options: SchedulingOptions) -> float:
    """Replicas help much, a policy with a suitable limit helps little, small batches hurt, others do nothing."""
    rate = 80.0
    if options.get("data_parallel_size") == 2:
        rate *= 1.4
    if options.get("admission") == "deadline":
        rate *= {None: 1.02, 1024: 0.8, 2048: 1.1, 4096: 1.05}[options.get("admission_tokens")]
    if options.get("admission") == "shortest":
        rate *= 0.9
    return rate * {None: 1.0, 16: 0.5, 32: 0.8, 64: 1.06, 128: 1.0}[options.get("max_num_seqs")]


BEST = {"data_parallel_size": 2, "admission": "deadline", "admission_tokens": 2048, "max_num_seqs": 64}


def probe(ask: NextProbe, capacity_of: Capacity, *, fails: bool = False) -> TuneRun:
    """Return the manifest of a run. A higher overload shows earlier."""
    highest = capacity_of(ask.options)
    valid = ask.target_qps <= highest
    answered = 1_000 if valid else round(1_000 * highest / ask.target_qps / 2)
    return TuneRun(
        step="search", number=1, verdict=None if fails else "VALID" if valid else "INVALID", reasons=[],
        queries_planned=1_000, queries_answered=answered, wall_s=1.0, directory="search-1",
        tpot_p99_ms=100 * ask.target_qps / highest if highest else None, tpot_limit_ms=100, **ask._asdict(),
    )  # fmt: skip


Response = Callable[[NextProbe, Capacity], TuneRun]


def trials_of(space: Space, study: optuna.Study, most: int = MAX_TRIALS, budget_s: float = 1e6) -> OptionTrials:
    return OptionTrials(space, study, "Server", 100.0, most, budget_s)


def search(
    capacity_of: Capacity,
    space: Space = SPACE,
    *,
    most: int = MAX_TRIALS,
    budget_s: float = 1e6,
    probe_s: float = 0.0,
    response: Response = probe,
) -> list[TuneRun]:
    trials = trials_of(space, open_study(None), most, budget_s)
    probes: list[TuneRun] = []
    while (ask := trials.next_probe(probes, probe_s * len(probes))) is not None:
        probes.append(response(ask, capacity_of))
        assert len(probes) < 500
    return probes


def settings_tried(probes: list[TuneRun]) -> list[SchedulingOptions]:
    """Return the settings of each trial, in their order."""
    by_trial = {probe.trial: probe.options for probe in probes if probe.phase not in ("worth", "base")}
    return list(by_trial.values())


def test_the_best_settings_are_found_with_few_complete_runs() -> None:
    probes = search(capacity)
    best = best_probe(recommendable(probes))
    assert SPACE.count() == 650  # 2 · (off and 3 policies with 4 limits each) · 5 · 5, each with its own rate
    assert len(settings_tried(probes)) == 1 + MAX_TRIALS
    assert best.target_qps > 0.95 * capacity(BEST)
    assert best.options["data_parallel_size"] == 2
    assert len(probes) < 90
    # Only VALID probes take a complete run: the probe of the defaults and probes of better trials.
    assert sum(1 for probe in probes if probe.valid) < 20


def test_an_interrupted_search_continues_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "study.jsonl"
    most = 12
    probes: list[TuneRun] = []
    while True:
        ask = trials_of(SPACE, open_study(file), most).next_probe(probes, 0.0)
        assert trials_of(SPACE, open_study(file), most).next_probe(probes, 0.0) == ask  # interrupted in the run
        if ask is None:
            break
        probes.append(probe(ask, capacity))
    settings = settings_tried(probes)
    assert len(settings) == 1 + most
    assert all(settings.count(setting) == 1 for setting in settings)
    best = best_probe(recommendable(probes))
    assert best.options["data_parallel_size"] == 2
    study = optuna.load_study(
        study_name="search",
        storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(file))),
    )
    assert study.best_value == best.target_qps


def test_a_truncated_study_is_repaired_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "study.jsonl"
    ask = trials_of(SPACE, open_study(file)).next_probe([], 0.0)
    file.write_text(file.read_text() + '{"op_code": 4, "tri')  # killed while it wrote
    (tmp_path / "study.jsonl.lock").touch()
    assert trials_of(SPACE, open_study(file)).next_probe([], 0.0) == ask
    file.write_text("{}\n{}\n")
    with pytest.raises(InputError, match="not an optuna study"):
        open_study(file)


def test_an_option_without_effect_is_not_recommended() -> None:
    """The best settings may contain the option by chance, but the search then removes it."""

    def capacity_of_options(options: SchedulingOptions) -> float:
        return 50.0 * (1.5 if options.get("max_num_seqs") == 64 else 1.0)

    probes = search(capacity_of_options)
    best = best_probe(recommendable(probes))
    assert best.options == {"max_num_seqs": 64}
    assert 75 / (1 + RESOLUTION) <= best.target_qps <= 75


def test_the_effect_of_each_option_is_measured() -> None:
    probes = search(capacity)
    best = best_probe(recommendable(probes))
    for name in best.options:
        worth = worth_of(SPACE, name, probes, best)
        without = capacity(worth["without"]["options"])
        assert worth["without"]["invalid"] > without  # each option in the best settings has an effect
        assert (worth["without"]["valid"] or 0) <= without
        truth = best.target_qps / without - 1
        assert worth["worth_at_least"] <= truth
        assert truth <= (worth["worth_at_most"] or math.inf)
    assert worth_of(SPACE, "data_parallel_size", probes, best)["worth_at_least"] > 0.3


def test_a_search_without_valid_defaults_ends() -> None:
    probes = search(lambda _: 0.0)
    assert {probe.phase for probe in probes} == {"defaults"}
    assert len(probes) == 8
    assert best_probe(recommendable(probes)) is None


def test_settings_refused_by_the_engine_are_not_tried_again() -> None:
    def refuse_copies(ask: NextProbe, capacity_of: Capacity) -> TuneRun:
        return probe(ask, capacity_of, fails="data_parallel_size" in ask.options)

    probes = search(capacity, response=refuse_copies)
    best = best_probe(recommendable(probes))
    assert "data_parallel_size" not in best.options
    refused = [probe.options for probe in probes if probe.verdict is None]
    assert refused
    assert all(refused.count(options) == 1 for options in refused)


def test_the_time_limit_reserves_time_for_measuring_effects() -> None:
    probes = search(capacity, most=1_000, budget_s=60.0, probe_s=1.0)
    assert len(probes) <= 60
    worth = [number for number, probe in enumerate(probes) if probe.phase == "worth"]
    assert worth
    new = [n for n, probe in enumerate(probes) if probe.phase == "trial" and probe.trial != probes[n - 1].trial]
    assert max(new) < (1 - WORTH_SHARE) * 60


def test_a_small_search_space_is_searched_completely() -> None:
    space = Space({"dummy_slots": (4, 8), "admission": ("fcfs",)})
    probes = search(lambda options: float(options.get("dummy_slots", 6)) * 10, space)
    settings = settings_tried(probes)
    assert sorted(map(str, settings)) == sorted(map(str, space.combinations()))
    best = best_probe(recommendable(probes))
    assert best.options == {"dummy_slots": 8}


def test_each_option_is_tried_alone_before_the_sampler() -> None:
    worse = search(lambda options: 80.0 - len(options))
    assert settings_tried(worse)[1:6] == [
        {"data_parallel_size": 2},
        {"admission": "deadline"},
        {"admission": "deadline", "admission_tokens": 2048},  # a limit has no effect without a policy
        {"max_num_batched_tokens": 2048},
        {"max_num_seqs": 64},
    ]
    better = search(lambda options: 80.0 + 10 * len(options))
    assert settings_tried(better)[2] == {"data_parallel_size": 2, "admission": "deadline"}


TWO_GPUS = Machine("cuda", 2, [0])


def on_cores(cores: int) -> Machine:
    return Machine("cpu", 0, list(range(cores)))


def space_of(values: dict[str, Any], machine: Machine | None = None, **options: Any) -> Space:
    kind = VllmKind(lambda: machine) if machine else None
    return make_space(make_config(values), options, kind)


def test_options_given_by_the_user_are_not_searched() -> None:
    full_space = space_of({"scenario": "Server"}, on_cores(4))
    assert list(full_space.values) == [
        "data_parallel_size", "max_num_seqs", "admission", "admission_tokens", "admission_queries",
        "max_num_batched_tokens",
    ]  # fmt: skip
    assert full_space.values["data_parallel_size"] == (2, 4)
    assert "off" not in full_space.values["admission"]  # the default
    values = {"scenario": "Server", "engine_arg": {"max_num_seqs": 64, "data_parallel_size": 2}, "admission": "off"}
    assert list(space_of(values, on_cores(4)).values) == ["max_num_batched_tokens"]
    fixed = space_of({"scenario": "Server", "admission": "fcfs"})
    assert "admission" not in fixed.values
    assert fixed.matters("admission_tokens", {})


def test_a_given_option_is_searched_if_requested() -> None:
    values = {"scenario": "Server", "engine_arg": {"max_num_seqs": 8, "seed": 1}}
    space = space_of(values, max_num_seqs=[4, 8, 16])
    assert space.values == {"max_num_seqs": (4, 16)}
    assert applied(values, {"max_num_seqs": 16})["engine_arg"] == {"max_num_seqs": 16, "seed": 1}


def test_data_parallel_ranks_are_searched_only_with_enough_devices() -> None:
    assert space_of({"scenario": "Server"}, TWO_GPUS).values["data_parallel_size"] == (2,)
    assert "data_parallel_size" not in space_of({"scenario": "Server", "tensor_parallel_size": 2}, TWO_GPUS).values
    assert "data_parallel_size" not in space_of({"scenario": "Server"}, on_cores(1)).values
    assert "data_parallel_size" not in space_of({"scenario": "Server", "replicas": "2"}, on_cores(4)).values


def test_default_search_values_are_allowed() -> None:
    for usual in (GPU_VALUES, CPU_VALUES):
        assert set(usual) <= set(ALLOWED)
        # vLLM refuses a token budget below the number of sequences.
        assert min(usual["max_num_batched_tokens"]) >= max(usual["max_num_seqs"])
        for policy in usual["admission"]:
            make_config({"scenario": "Server", "admission": policy})


def test_options_that_change_responses_are_never_searched() -> None:
    never = ("enable_prefix_caching", "dtype", "quantization", "kv_cache_dtype", "speculative_config", "max_model_len")
    for name in never:
        assert name not in ALLOWED
        with pytest.raises(InputError, match=f"{name}: the search does not support this option"):
            space_of({"scenario": "Server"}, **{name: [True]})


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        ({}, {"max_num_seqs": 64}, "not a list of values"),
        ({}, {"max_num_seqs": []}, "not a list of values"),
        ({}, {"max_num_seqs": [64, 64]}, "is given twice"),
        ({}, {"max_num_seqs": [[64]]}, "is not an allowed value"),
        ({}, {"max_num_seqs": [None]}, "is not an allowed value"),
        ({}, {"admission": ["best"]}, "--admission best"),
        ({}, {"admission_tokens": [0]}, "--admission-tokens 0"),
        ({}, {"admission_tokens": [512]}, "no effect with admission off"),
        ({"engine": "dummy", "admission": "off"}, {}, "every searched option is already given"),
        ({"engine_arg": {"max_num_seqs": 8}}, {"max_num_seqs": [8]}, "every searched option is already given"),
    ],
)
def test_an_impossible_search_is_refused_with_its_reason(
    values: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        space_of({"scenario": "Server", **values}, **options)


def test_settings_without_effect_are_removed() -> None:
    space = Space({"admission": ("fcfs",), "admission_tokens": (512, 1024), "max_num_seqs": (8,)})
    assert space.reduced({"admission": None, "admission_tokens": 512, "max_num_seqs": 8}) == {"max_num_seqs": 8}
    assert space.reduced({"admission": "fcfs", "admission_tokens": 512}) == {
        "admission": "fcfs", "admission_tokens": 512,
    }  # fmt: skip
    combinations = list(space.combinations())
    assert combinations[0] == {}
    assert len(combinations) == space.count() == (1 + 3) * 2
    assert shown(combinations[0]) == "defaults"
    assert shown({"max_num_seqs": 8, "admission": "fcfs"}) == "max_num_seqs=8, admission=fcfs"


def test_batch_sizes_that_meet_the_limit_are_tried_first() -> None:
    cores = on_cores(2)
    space = space_of({"scenario": "Server"}, cores).with_queries_in_time(107)
    assert space.values["max_num_seqs"] == (32, 53, 64, 107, 128, 256, 512)
    assert space.alone("max_num_seqs", {}) == {"max_num_seqs": 107}
    assert space.alone("max_num_seqs", {"data_parallel_size": 2})["max_num_seqs"] == 53
    two_copies = space_of({"scenario": "Server", "engine_arg": {"data_parallel_size": 2}}, cores).with_queries_in_time(
        107
    )
    assert two_copies.alone("max_num_seqs", {}) == {"max_num_seqs": 53}
    assert space_of({"scenario": "Server"}, cores).alone("max_num_seqs", {}) == {"max_num_seqs": 128}


# Command lines of users -----------------------------------------------------------------------------------------------


def test_search_options_of_the_command_line_replace_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tune.yaml"
    file.write_text(
        "scenario: Server\nengine: dummy\ntune:\n  search: true\n  search-trials: 5\n"
        "  search_values:\n    dummy_slots: [4, 8]\n    admission: [fcfs]\n"
    )
    tune = load_tune(file, {"search_values": {"dummy_slots": [2]}, "search_budget_s": 60.0}, {})
    assert tune.space.values == {"admission": ("fcfs",), "dummy_slots": (2,)}
    assert (tune.options.search_trials, tune.options.search_budget_s) == (5, 60)
    assert load_tune(None, {}, {"scenario": "Server"}).space is None


def test_search_limits_apply_to_each_replica() -> None:
    """The runs use multiple replicas by default on accelerators."""
    tune = load_tune(None, {"search": True}, {"scenario": "Server", "engine": "dummy"}).with_replicas(4)
    assert tune.space.copies == 4
    space = make_space(make_config({"scenario": "Server"}), {}, VllmKind(lambda: TWO_GPUS), replicas=2)
    assert "data_parallel_size" not in space.values
    in_time = space.with_queries_in_time(101)
    assert 50 in in_time.values["max_num_seqs"]
    assert in_time.alone("max_num_seqs", {}) == {"max_num_seqs": 50}
