"""Which scheduling options a search may change, and what they become in a leg."""

from pathlib import Path
from typing import Any

import pytest

from runs.errors import InputError
from scenarios.leg.config import make_config
from scenarios.tune.config import load_tune
from scenarios.tune.option_space import ALLOWED, Space, applied, make_space, shown
from sut.vllm.kind import CPU_VALUES, GPU_VALUES, VllmKind
from sut.vllm.machine import Machine

TWO_GPUS = Machine("cuda", 2, [0])


def on_cores(cores: int) -> Machine:
    return Machine("cpu", 0, list(range(cores)))


def space_of(values: dict[str, Any], machine: Machine | None = None, **asked: Any) -> Space:
    kind = VllmKind(lambda: machine) if machine else None
    return make_space(values, make_config(values), asked, kind)


def test_what_is_given_is_not_searched() -> None:
    whole = space_of({"scenario": "Server"}, on_cores(4))
    assert list(whole.values) == [
        "data_parallel_size", "max_num_seqs", "admission", "admission_tokens", "admission_queries",
        "max_num_batched_tokens",
    ]  # fmt: skip
    assert whole.values["data_parallel_size"] == (2, 4)
    assert "off" not in whole.values["admission"]  # the default
    given = {"scenario": "Server", "engine_arg": {"max_num_seqs": 64, "data_parallel_size": 2}, "admission": "off"}
    assert list(space_of(given, on_cores(4)).values) == ["max_num_batched_tokens"]
    fixed = space_of({"scenario": "Server", "admission": "fcfs"})
    assert "admission" not in fixed.values
    assert fixed.matters("admission_tokens", {})


def test_a_given_value_is_searched_from_if_asked_for() -> None:
    values = {"scenario": "Server", "engine_arg": {"max_num_seqs": 8, "seed": 1}}
    space = space_of(values, max_num_seqs=[4, 8, 16])
    assert space.values == {"max_num_seqs": (4, 16)}
    assert applied(values, {"max_num_seqs": 16})["engine_arg"] == {"max_num_seqs": 16, "seed": 1}


def test_replicas_only_where_there_is_a_place_for_them() -> None:
    assert space_of({"scenario": "Server"}, TWO_GPUS).values["data_parallel_size"] == (2,)
    assert "data_parallel_size" not in space_of({"scenario": "Server", "tensor_parallel_size": 2}, TWO_GPUS).values
    assert "data_parallel_size" not in space_of({"scenario": "Server"}, on_cores(1)).values


def test_the_usual_values_are_allowed_ones() -> None:
    for usual in (GPU_VALUES, CPU_VALUES):
        assert set(usual) <= set(ALLOWED)
        # vLLM refuses a budget of tokens below the number of sequences.
        assert min(usual["max_num_batched_tokens"]) >= max(usual["max_num_seqs"])
        for policy in usual["admission"]:
            make_config({"scenario": "Server", "admission": policy})


def test_nothing_that_changes_answers_or_reuses_work_is_searched() -> None:
    never = ("enable_prefix_caching", "dtype", "quantization", "kv_cache_dtype", "speculative_config", "max_model_len")
    for name in never:
        assert name not in ALLOWED
        with pytest.raises(InputError, match=f"{name}: this option cannot be searched"):
            space_of({"scenario": "Server"}, **{name: [True]})


@pytest.mark.parametrize(
    ("values", "asked", "words"),
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
def test_what_cannot_be_searched_says_why(values: dict[str, Any], asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        space_of({"scenario": "Server", **values}, **asked)


def test_equal_settings_are_equal() -> None:
    space = Space({"admission": ("fcfs",), "admission_tokens": (512, 1024), "max_num_seqs": (8,)})
    assert space.reduced({"admission": None, "admission_tokens": 512, "max_num_seqs": 8}) == {"max_num_seqs": 8}
    assert space.reduced({"admission": "fcfs", "admission_tokens": 512}) == {
        "admission": "fcfs", "admission_tokens": 512,
    }  # fmt: skip
    every = list(space.combinations())
    assert every[0] == {}
    assert len(every) == space.count() == (1 + 3) * 2
    assert shown(every[0]) == "defaults"
    assert shown({"max_num_seqs": 8, "admission": "fcfs"}) == "max_num_seqs=8, admission=fcfs"


def test_the_queries_that_are_in_time_are_tried_first() -> None:
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


# As a user asks for it ------------------------------------------------------------------------------------------------


def test_a_search_from_a_file_and_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "tune.yaml"
    file.write_text(
        "scenario: Server\nengine: dummy\ntune:\n  search: true\n  search-trials: 5\n"
        "  search_values:\n    dummy_slots: [4, 8]\n    admission: [fcfs]\n"
    )
    tune = load_tune(file, {"search_values": {"dummy_slots": [2]}, "search_budget_s": 60.0}, {})
    assert tune.space is not None
    assert tune.space.values == {"admission": ("fcfs",), "dummy_slots": (2,)}
    assert (tune.options.search_trials, tune.options.search_budget_s) == (5, 60)
    assert load_tune(None, {}, {"scenario": "Server"}).space is None


@pytest.mark.parametrize(
    ("own", "legs", "words"),
    [
        ({"search_trials": 3}, {}, "--search-trials has no effect without --search"),
        ({"search_values": {"dummy_slots": [4]}}, {}, "--search-values has no effect without --search"),
        ({"search": True}, {"scenario": "Offline"}, "--search with --scenario Offline"),
        ({"search": True, "search_leg_s": 0.5}, {}, "--search-leg-s 0.5"),
        ({"search": True, "search_values": {"dtype": ["float16"]}}, {}, "dtype: this option cannot be searched"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(own: dict[str, Any], legs: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_tune(None, own, {"scenario": "Server", "engine": "dummy", **legs})


def test_data_parallel_is_not_searched_with_replicas() -> None:
    assert "data_parallel_size" in space_of({"scenario": "Server"}, on_cores(4)).values
    assert "data_parallel_size" not in space_of({"scenario": "Server", "replicas": "2"}, on_cores(4)).values


def test_limits_hold_for_each_replica_whoever_asked_for_them() -> None:
    """As many as the legs were found to have: on accelerators several are the default."""
    tune = load_tune(None, {"search": True}, {"scenario": "Server", "engine": "dummy"}).with_replicas(4)
    assert tune.space is not None
    assert tune.space.copies == 4
    values = {"scenario": "Server"}
    space = make_space(values, make_config(values), {}, VllmKind(lambda: TWO_GPUS), replicas=2)
    assert "data_parallel_size" not in space.values
    in_time = space.with_queries_in_time(101)
    assert 50 in in_time.values["max_num_seqs"]
    assert in_time.alone("max_num_seqs", {}) == {"max_num_seqs": 50}
