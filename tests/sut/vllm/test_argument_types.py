"""Types of vLLM's engine arguments, told from a source like vLLM's, before anything of it is imported."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from runs.errors import InputError
from sut.vllm.argument_types import check_types

SOURCE = """
import torch
class EngineArgs:
    max_num_seqs: int | None = None
    gpu_memory_utilization: float = CacheConfig.gpu_memory_utilization
    enforce_eager: bool = False
    revision: str | None = None
    jit_monitor_mode: Literal["warn", "error"] = "warn"
    hf_token: bool | str | None = None
    dtype: ModelDType = "auto"
    compilation_config: CompilationConfig = get_field(VllmConfig, "compilation_config")
class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False
class Other:
    dtype: int = 0
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "arg_utils.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_num_seqs", "many", "max_num_seqs=many: vLLM takes a whole number there"),
        ("max_num_seqs", 1.5, "a whole number"),
        ("max_num_seqs", True, "a whole number"),
        ("gpu_memory_utilization", "high", "takes a number there"),
        ("enforce_eager", 1, "true or false"),
        ("revision", 1234567, "revision='\"1234567\"'"),
        ("jit_monitor_mode", "loud", "takes warn or error there"),
        ("hf_token", 3, "true or false or a text"),
        ("enable_log_requests", "yes", "true or false"),
    ],
)
def test_refused(name: str, value: Any, words: str, source: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_types({name: value}, source)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_num_seqs", 64),
        ("max_num_seqs", None),
        ("gpu_memory_utilization", 1),
        ("hf_token", "x"),
        ("jit_monitor_mode", "warn"),
        ("dtype", 5),
        ("compilation_config", {"level": 3}),
        ("no_such_argument", object()),
    ],
)
def test_taken_or_left_to_vllm(name: str, value: Any, source: Path) -> None:
    check_types({name: value}, source)


def test_another_vllm_judges_by_itself(tmp_path: Path) -> None:
    check_types({"max_num_seqs": "many"}, tmp_path / "none.py")
    (tmp_path / "new.py").write_text("class EngineArgs(:")
    check_types({"max_num_seqs": "many"}, tmp_path / "new.py")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="no vLLM is installed")
def test_the_one_that_is_installed() -> None:
    check_types({"max_num_seqs": 64, "gpu_memory_utilization": 0.9, "enforce_eager": False, "dtype": "float32"})
    with pytest.raises(InputError, match="max_num_seqs=many"):
        check_types({"max_num_seqs": "many"})
