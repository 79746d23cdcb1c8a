"""The configuration of a run: valid options, messages on mistakes, and the settings for LoadGen."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runs.benchmarks import BENCHMARKS
from runs.errors import ExecutionError, InputError, SetupError
from runs.record.manifest import RunPlan
from scenarios.launch.loadgen_settings import build_settings, check_engaged, expected_size
from scenarios.launch.plan import prepare
from scenarios.launch.run_config import RunConfig, load_yaml, make_config, merged


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("offline", "Offline"), ("SERVER", "Server"), ("singlestream", "SingleStream"), ("Interactive", "Interactive")],
)
def test_scenario_names_are_accepted_in_any_case(spelling: str, name: str) -> None:
    assert make_config({"scenario": spelling}).scenario == name


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "--scenario: missing"),
        ({"scenario": "MultiStream"}, "MultiStream is not part of this benchmark"),
        ({"scenario": "Batch"}, "--scenario Batch"),
        ({"scenario": 3}, "--scenario 3"),
        ({"lg_model_name": "llama3.1-8b"}, "--lg-model-name llama3.1-8b"),
        ({"lg_model_name": "llama2-13b"}, "choose from " + ", ".join(BENCHMARKS)),
        ({"total_sample_count": 0}, "--total-sample-count 0: "),
        ({"target_qps": 1e-9}, "--target-qps 1e-09"),  # would be written as 0, with which LoadGen never ends
        ({"engine": "trt"}, "--engine trt"),
        ({"engine_arg": ["a=1"]}, "--engine-arg"),
        ({"accuracy": "perhaps"}, "--accuracy perhaps"),
        ({"acuracy": True}, "--acuracy: unknown option"),
        ({"replicas": "0"}, "--replicas 0: "),
    ],
)
def test_each_invalid_value_is_refused_with_key_and_value(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        make_config({"scenario": "Offline", **values} if values else {})
    assert words in refused.value.message
    assert refused.value.fix


def test_all_invalid_values_are_reported_at_once() -> None:
    with pytest.raises(InputError) as refused:
        make_config({"scenario": "Batch", "target_qps": -1, "colour": "red"})
    assert all(words in refused.value.message for words in ("--scenario Batch", "--target-qps -1", "--colour"))


def test_a_yaml_file_has_the_keys_of_the_options(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("scenario: server\ntarget-qps: 2\nengine_arg: {max_num_seqs: 8}\nuser_conf: some.conf\n")
    config = make_config(load_yaml(path))
    assert config == RunConfig(
        scenario="Server", target_qps=2.0, engine_arg={"max_num_seqs": 8}, user_conf=Path("some.conf")
    )
    assert config.model_fields_set == {"scenario", "target_qps", "engine_arg", "user_conf"}


def test_the_yaml_word_off_is_read_as_text(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("scenario: Server\nadmission: off\n")
    assert make_config(load_yaml(path)).admission == "off"


def test_options_replace_single_pairs_of_a_file() -> None:
    file = {"scenario": "Server", "engine_arg": {"max_num_seqs": 8, "block_size": 32}}
    options = {"scenario": "Offline", "engine_arg": {"max_num_seqs": 64}}
    assert merged(file, options) == {"scenario": "Offline", "engine_arg": {"max_num_seqs": 64, "block_size": 32}}


def plan_of(**values: Any) -> Any:
    return prepare(make_config({"scenario": "Offline", "engine": "dummy", **values}), lambda text: None).plan


def test_the_expected_number_of_samples_is_that_of_loadgen(tmp_path: Path) -> None:
    conf = tmp_path / "user.conf"
    conf.write_text("*.Offline.target_qps = 6\n*.*.min_duration = 10000\n*.*.min_query_count = 64\n")

    def samples(plan: RunPlan) -> int | None:
        size = expected_size(plan, conf)
        return size and size.samples

    assert samples(plan_of()) == 128  # 1.1 × 10 s × 6/s = 66, rounded up to complete datasets
    assert samples(plan_of(accuracy=True)) == 64
    assert samples(plan_of(accuracy=True).model_copy(update={"audit": True})) == 64
    assert samples(plan_of().model_copy(update={"audit": True})) is None
    assert samples(plan_of(scenario="SingleStream")) is None
    conf.write_text("*.*.min_duration = 0\n*.*.sample_concatenate_permutation = 0\n*.*.min_query_count = 12\n")
    assert samples(plan_of(scenario="SingleStream")) == 12


def test_an_audit_without_duration_has_an_expected_number_of_samples(tmp_path: Path) -> None:
    conf, audit_config = tmp_path / "user.conf", tmp_path / "audit.config"
    conf.write_text("*.Offline.target_qps = 6\n*.*.min_duration = 10000\n*.*.min_query_count = 64\n")
    plan = plan_of().model_copy(update={"audit": True})
    fixed = "*.*.mode = 2\n*.*.min_duration = 0\n*.*.sample_concatenate_permutation = 0\n*.*.min_query_count = 12\n"
    for text, samples in ((fixed, 12), (fixed.replace("mode = 2", "mode = 1"), None), ("*.*.mode = 2\n", None)):
        audit_config.write_text(text)
        size = expected_size(plan, conf, audit_config)
        assert (size and size.samples) == samples, text


@pytest.mark.parametrize(
    ("code", "token_latencies", "seed", "words"),
    [
        (-22, True, 1, "rejects"),
        (0, False, 1, "no seeds or token latencies"),
        (0, True, 0, "no seeds or token latencies"),
    ],
)
def test_a_loadgen_that_ignores_settings_is_refused(code: int, token_latencies: bool, seed: int, words: str) -> None:
    class TestSettings:
        use_token_latencies = token_latencies
        schedule_rng_seed = seed

        def FromConfig(self, *arguments: object) -> int:
            return code

    lg = SimpleNamespace(TestSettings=TestSettings, TestScenario=SimpleNamespace(Offline=1))
    with pytest.raises(SetupError, match=words):
        build_settings(lg, plan_of(), "user.conf")  # type: ignore[arg-type]  # only named


@pytest.mark.parametrize(
    ("mode", "scenario", "accuracy", "audit", "fine"),
    [
        ("PerformanceOnly", "Offline", False, False, True),
        ("AccuracyOnly", "Offline", True, False, True),
        ("PerformanceOnly", "Offline", True, False, False),
        ("AccuracyOnly", "Offline", False, False, False),
        ("PerformanceOnly", "Server", False, False, False),
        (None, None, False, False, False),
        ("PerformanceOnly", "Offline", True, True, True),  # an audit may change the mode
        ("PerformanceOnly", "Server", True, True, False),
    ],
)
def test_a_run_in_another_mode_or_scenario_is_an_error(
    mode: str, scenario: str, accuracy: bool, audit: bool, fine: bool
) -> None:
    detail = {"effective_test_mode": mode, "effective_scenario": scenario}
    plan = plan_of(accuracy=accuracy).model_copy(update={"audit": audit})
    if fine:
        check_engaged(detail, plan)
        return
    with pytest.raises(ExecutionError, match="LoadGen used effective_"):
        check_engaged(detail, plan)
