"""The calls of vLLM, with stand-ins that have the signatures of its versions."""

import os
import sys
from dataclasses import dataclass
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runs.errors import InputError, SetupError
from sut.vllm.interface import Interface
from tests.support.official import SAMPLING

INTERVAL = SAMPLING.max_tokens + 1


@dataclass
class Parameters24:
    """The used part of SamplingParams in 0.24: no stream_interval."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    detokenize: bool = True
    output_kind: str = "cumulative"


@dataclass
class Parameters28(Parameters24):
    """The used part of SamplingParams in 0.28 and later."""

    stream_interval: int | None = None


@dataclass
class Arguments:
    """The used part of AsyncEngineArgs."""

    model: str = ""
    max_num_seqs: int | None = None
    stream_interval: int = 1


class AsyncLLM: ...


class LLMEngine: ...


def number_of(variable: str) -> int:
    return int(os.environ.get(variable, "0"))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that installs a stand-in for a vLLM."""

    def install(version: str, parameters: type, arguments: type = Arguments, **gone: bool) -> None:
        parts = {
            "vllm": {"__version__": version, "SamplingParams": parameters},
            "vllm.envs": {"environment_variables": {name: partial(number_of, name) for name in ("VLLM_A", "VLLM_B")}},
            "vllm.engine": {},
            "vllm.engine.arg_utils": {"AsyncEngineArgs": arguments},
            "vllm.inputs": {} if gone.get("tokens_input") else {"tokens_input": lambda ids: {"prompt_token_ids": ids}},
            "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(DELTA="delta", FINAL_ONLY="final")},
            "vllm.usage": {},
            "vllm.usage.usage_lib": {
                "UsageContext": SimpleNamespace(OPENAI_API_SERVER="server", LLM_CLASS="llm"),
            },
            "vllm.v1": {},
            "vllm.v1.engine": {},
            "vllm.v1.engine.async_llm": {"AsyncLLM": AsyncLLM},
            "vllm.v1.engine.llm_engine": {"LLMEngine": LLMEngine},
        }
        for name, content in parts.items():
            module = ModuleType(name)
            module.__path__ = []
            vars(module).update(content)
            monkeypatch.setitem(sys.modules, name, module)

    return install


@pytest.mark.parametrize("one_process", [True, False])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("version", "parameters"), [("0.24.0", Parameters24), ("0.28.0", Parameters28)])
def test_a_request_streams_first_token_and_output_in_each_version(
    version: str, parameters: type, stream: bool, one_process: bool, install: Any
) -> None:
    install(version, parameters)
    interface = Interface(one_process=one_process)
    made = interface.sampling_parameters(SAMPLING, stream=stream)
    arguments = interface.engine_arguments({"model": "m"}, SAMPLING, stream=stream)
    assert interface.engine_class is (LLMEngine if one_process else AsyncLLM)
    assert made.output_kind == ("delta" if stream else "final")
    assert made.detokenize is False
    intervals = (getattr(made, "stream_interval", None), arguments.stream_interval)
    if not stream:
        assert intervals == (None, 1)
    else:
        assert intervals == ((INTERVAL, 1) if parameters is Parameters28 else (None, INTERVAL))


def test_engine_options_of_the_user_take_precedence(install: Any) -> None:
    install("0.24.0", Parameters24)
    interface = Interface(one_process=False)
    assert interface.engine_arguments({"stream_interval": 7}, SAMPLING, stream=True).stream_interval == 7


def test_an_unknown_option_suggests_similar_ones(install: Any) -> None:
    install("0.24.0", Parameters24)
    with pytest.raises(InputError, match=r"--engine-arg max_num_seq: vLLM 0\.24\.0 has no") as refused:
        Interface(one_process=False).check_options({"max_num_seq": 8})
    assert "did you mean max_num_seqs?" in refused.value.fix


@pytest.mark.parametrize(
    ("version", "changes", "words"),
    [
        ("0.23.1", {}, "vLLM 0.23.1 is older than 0.24"),
        ("0.9.2+rocm", {}, "vLLM 0.9.2+rocm is older than 0.24"),
        ("0.24.0", {"tokens_input": True}, "cannot be used: cannot import name 'tokens_input'"),
    ],
)
def test_an_incompatible_vllm_is_refused_with_the_reason(
    version: str, changes: dict[str, Any], words: str, install: Any
) -> None:
    install(version, Parameters24, **changes)
    with pytest.raises(SetupError, match=words.replace("+", r"\+")):
        Interface(one_process=False)


@pytest.mark.parametrize("version", ["0.24.1.dev3+rocm", "dev", "0.0.0", "1.0.0"])
def test_a_build_from_sources_may_have_any_version(version: str, install: Any) -> None:
    install(version, Parameters24)
    assert Interface(one_process=False).version == version


def test_a_missing_vllm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(SetupError, match="vLLM cannot be imported"):
        Interface(one_process=False)


@dataclass
class RefusingArguments(Arguments):
    """Arguments that refuse some models, numbers and pairs when a configuration is created."""

    max_model_len: int = 0

    def create_engine_config(self, usage_context: Any) -> None:
        number_of("VLLM_A")
        if self.model == "none" or self.max_num_seqs == -1 or self.max_model_len == -1:
            raise ValueError("no")
        if self.max_num_seqs and self.max_model_len > self.max_num_seqs:
            raise RuntimeError("not together")


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({}, []),
        ({"max_num_seqs": -1}, ["max_num_seqs"]),
        ({"max_num_seqs": -1, "max_model_len": -1}, ["max_num_seqs", "max_model_len"]),
        ({"max_num_seqs": 2, "max_model_len": 3}, ["max_num_seqs", "max_model_len"]),
        ({"max_num_seqs": 2, "max_model_len": -1, "stream_interval": 1}, ["max_model_len"]),
        ({"model": "none", "max_num_seqs": 1}, ["model"]),
    ],
)
def test_the_invalid_argument_is_found_by_elimination(
    arguments: dict[str, Any], wrong: list[str], install: Any
) -> None:
    install("0.32.0", Parameters28, arguments=RefusingArguments)
    arguments = {"model": "a model", **arguments}
    interface = Interface(one_process=False)
    assert interface.at_fault(arguments, SAMPLING, stream=True) == {name: arguments[name] for name in wrong}


def test_an_unreadable_environment_variable_is_named(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install("0.32.0", Parameters28, arguments=RefusingArguments)
    monkeypatch.setenv("VLLM_A", "1.5")
    monkeypatch.setenv("VLLM_B", "2")
    interface = Interface(one_process=False)
    assert interface.at_fault({"model": "a model"}, SAMPLING, stream=True) == {"VLLM_A": "1.5"}
