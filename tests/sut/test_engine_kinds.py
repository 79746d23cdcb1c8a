"""Engine kinds: their interface to the other packages, and their use of options."""

from typing import Any

import orjson
import pytest

from runs.errors import InputError, SetupError
from runs.record.engines.engine_records import EngineRecord, engine_record
from sut.engine_kind import EngineKind
from sut.engines import DEFAULT, KINDS, EngineOptions, engine_kind, refuse_options_of_others
from sut.vllm.machine import Machine
from sut.vllm.vllm_kind import VllmKind, VllmOptions
from tests.support.runs.records import run_facts

FACTS = run_facts()


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> EngineKind[Any]:
    return KINDS[request.param]


def test_each_engine_kind_has_one_name(kind: EngineKind[Any]) -> None:
    assert engine_kind(kind.name) is kind
    assert engine_record(kind.name) is kind.record
    assert DEFAULT in KINDS


def test_options_of_an_engine_kind_are_options_of_a_run(kind: EngineKind[Any]) -> None:
    assert kind.options.model_fields.keys() <= EngineOptions.model_fields.keys()


def test_default_options_give_a_serializable_plan(kind: EngineKind[Any]) -> None:
    least = {"endpoint": {"api_server": "http://localhost:8000"}}  # options without a default
    options = kind.options(**least.get(kind.name, {}))
    plan = kind.plan(options, FACTS)
    assert all(isinstance(value, str) for value in plan.environment.values())
    assert orjson.loads(orjson.dumps(plan.options)) == plan.options
    assert kind.early_environment(options).keys() <= plan.environment.keys()


def test_options_of_another_kind_are_refused(kind: EngineKind[Any]) -> None:
    foreign_options = {"dummy_slots": 3} if "dtype" in kind.options.model_fields else {"dtype": "half"}
    with pytest.raises(InputError, match=f"the {kind.name} engine takes no --"):
        refuse_options_of_others(kind, EngineOptions(**foreign_options))
    default = {"dummy_slots": 0} if "dtype" in kind.options.model_fields else {"dtype": None}
    refuse_options_of_others(kind, EngineOptions(**default))


def test_all_contradictions_between_options_of_a_server_are_reported_together() -> None:
    values = {"api_server": "http://a:1,http://b:2/v1/completions", "serve": "x", "api_dialect": "sglang"}
    values |= {"api_omit": "foo", "api_rename": {"seed": 3, "foo": "bar"}, "api_key_env": "NO_SUCH_VARIABLE"}
    kind = KINDS["endpoint"]
    with pytest.raises(InputError) as refused:
        kind.plan(kind.options(**values), FACTS)
    for option in ("--serve", "--api-server http://b:2", "--api-omit foo", "--api-rename seed=3", "--api-rename foo"):
        assert option in str(refused.value)
    assert "NO_SUCH_VARIABLE" in str(refused.value)


def test_an_unknown_kind_is_refused_and_has_all_obligations() -> None:
    with pytest.raises(SetupError, match="unknown engine 'other'"):
        engine_kind("other")
    unknown = engine_record("other")
    assert unknown == EngineRecord()
    assert unknown.runs_model
    assert unknown.prints_configuration


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"enable_prefix_caching": True}, "prefix caching"),
        ({"speculative_config": {"method": "ngram"}}, "speculative"),
        ({"load_format": "dummy"}, "other weights"),
        ({"load_format": "pt"}, "other weights"),
        ({"load_format": "safetensors"}, None),
        ({"model_weights": "/data/smaller"}, "model_weights changes the model"),
        ({"hf_overrides": {"eos_token_id": 5}}, "hf_overrides changes the model"),
        ({"max_num_seqs": 8}, None),
    ],
)
def test_vllm_options_against_the_rules_make_a_run_ineligible(argument: dict[str, Any], words: str | None) -> None:
    kind = VllmKind(lambda: Machine("cuda", 1, [0]))
    reasons = kind.plan(VllmOptions(engine_arg=argument), FACTS).unofficial_reasons
    assert [words in reason for reason in reasons] == [True] if words else reasons == []


@pytest.mark.parametrize("machine", [Machine("cpu", 0, [0, 1]), Machine("cuda", 4, [0, 1])])
def test_the_early_environment_equals_the_planned_one(machine: Machine) -> None:
    kind = VllmKind(lambda: machine, lambda: machine)
    for options in (
        VllmOptions(),
        VllmOptions(engine_arg={"data_parallel_size": 2}),
        VllmOptions(tensor_parallel_size=2),
    ):
        assert kind.early_environment(options) == kind.plan(options, FACTS).environment
