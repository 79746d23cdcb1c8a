"""RunConfig: what may be asked, and how a mistake is answered."""

from pathlib import Path
from typing import Any

import pytest

from runs.benchmarks import BENCHMARKS
from runs.errors import InputError
from scenarios.leg.config import RunConfig, load_yaml, make_config, merged


@pytest.mark.parametrize(
    ("given", "name"),
    [("offline", "Offline"), ("SERVER", "Server"), ("singlestream", "SingleStream"), ("Interactive", "Interactive")],
)
def test_scenario_in_any_case(given: str, name: str) -> None:
    assert make_config({"scenario": given}).scenario == name


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "--scenario is missing"),
        ({"scenario": "MultiStream"}, "MultiStream is not part of this benchmark"),
        ({"scenario": "Batch"}, "--scenario Batch"),
        ({"scenario": 3}, "--scenario 3"),
        ({"lg_model_name": "llama3.1-8b"}, "--lg-model-name llama3.1-8b"),
        ({"lg_model_name": "llama2-13b"}, "choose from " + ", ".join(BENCHMARKS)),
        ({"total_sample_count": 0}, "--total-sample-count 0: Input should be greater than or equal to 1"),
        ({"tensor_parallel_size": -1}, "--tensor-parallel-size -1"),
        ({"batch_size": 0}, "--batch-size 0"),
        ({"num_workers": 0}, "--num-workers 0"),
        ({"target_qps": 1e-9}, "--target-qps 1e-09"),  # would be written as 0, on which LoadGen never ends
        ({"engine": "trt"}, "--engine trt"),
        ({"engine_arg": ["a=1"]}, "--engine-arg"),
        ({"accuracy": "perhaps"}, "--accuracy perhaps"),
        ({"acuracy": True}, "--acuracy: there is no such option"),
        ({"replicas": "0"}, "--replicas 0: must be a whole number from 1 to 1,024, or auto"),
    ],
)
def test_mistake_names_key_and_value(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        make_config({"scenario": "Offline", **values} if values else {})
    assert words in refused.value.message
    assert refused.value.fix


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(InputError) as refused:
        make_config({"scenario": "Batch", "target_qps": -1, "colour": "red"})
    assert all(words in refused.value.message for words in ("--scenario Batch", "--target-qps -1", "--colour"))


def test_yaml_has_the_same_keys(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("scenario: server\ntarget-qps: 2\nengine_arg: {max_num_seqs: 8}\nuser_conf: some.conf\n")
    config = make_config(load_yaml(path))
    assert config == RunConfig(
        scenario="Server", target_qps=2.0, engine_arg={"max_num_seqs": 8}, user_conf=Path("some.conf")
    )
    assert config.model_fields_set == {"scenario", "target_qps", "engine_arg", "user_conf"}


def test_a_plain_off_in_yaml_is_a_word(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("scenario: Server\nadmission: off\n")
    assert make_config(load_yaml(path)).admission == "off"


def test_command_line_wins_pair_by_pair() -> None:
    file = {"scenario": "Server", "engine_arg": {"max_num_seqs": 8, "block_size": 32}}
    given = {"scenario": "Offline", "engine_arg": {"max_num_seqs": 64}}
    assert merged(file, given) == {"scenario": "Offline", "engine_arg": {"max_num_seqs": 64, "block_size": 32}}
