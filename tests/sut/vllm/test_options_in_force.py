"""The effective value of an option: found where an engine keeps it, compared by meaning and not by type."""

import dataclasses
import enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sut.vllm.options_in_force import PARTS, RENAMED, difference, find_option, plain


class Colour(enum.Enum):
    RED = "red"


class Level(enum.StrEnum):
    HIGH = "high"


class Backend(enum.Enum):
    FLASH_ATTN = "package.flash.Backend"
    SDPA = ""


@dataclasses.dataclass
class Attention:
    backend: Backend | None = None


class Number(enum.IntEnum):
    THREE = 3


@dataclasses.dataclass
class Settings:
    size: int = 4
    colour: Colour = Colour.RED


class torch_type:
    def __str__(self) -> str:
        return "torch.bfloat16"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (True, True), (3, 3), (0.5, 0.5), ("x", "x"),
        (Colour.RED, "red"), (Level.HIGH, "high"), (Number.THREE, 3), (torch_type(), "bfloat16"),
        (Path("a/b"), "a/b"), ((1, Colour.RED), [1, "red"]),
        ({"a": {"b": Level.HIGH}, 3: None}, {"a": {"b": "high"}, "3": None}),
        (Settings(), {"size": 4, "colour": "red"}), ({5}, [5]), (frozenset(), []),
    ],
)  # fmt: skip
def test_option_values_become_plain_data(value: Any, expected: Any) -> None:
    made = plain(value)
    assert made == expected
    assert type(made) is type(expected)


def test_an_option_is_found_where_vllm_keeps_it() -> None:
    config = SimpleNamespace(
        quantization="top",
        model_config=SimpleNamespace(quantization="below", max_model_len=99),
        cache_config=SimpleNamespace(cache_dtype="fp8", enable_prefix_caching=False),
        scheduler_config=None,
    )
    assert find_option(config, "quantization") == (True, "top")
    assert find_option(config, "max_model_len") == (True, 99)
    assert find_option(config, "enable_prefix_caching") == (True, False)
    assert find_option(config, "kv_cache_dtype") == (True, "fp8")
    assert find_option(config, "max_num_seqs") == (False, None)


def nested(place: str, value: Any) -> Any:
    """Return an object in which `place`, a dotted name, has the value."""
    for name in reversed(place.split(".")):
        value = SimpleNamespace(**{name: value})
    return value


def test_each_part_of_the_configuration_is_searched() -> None:
    for part in PARTS:
        assert find_option(nested(f"{part}.some", 1), "some") == (True, 1)
    for option, kept in RENAMED.items():
        assert find_option(nested(kept, 1), option) == (True, 1)


def test_a_common_option_name_is_searched_in_its_part_only() -> None:
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(policy="priority"),
        compilation_config=SimpleNamespace(backend="inductor"),
        attention_config=SimpleNamespace(backend=None),
    )
    assert find_option(config, "attention_backend") == (True, None)
    assert find_option(config, "scheduling_policy") == (True, "priority")
    assert find_option(SimpleNamespace(backend="inductor"), "attention_backend") == (False, None)


@pytest.mark.vllm
def test_the_installed_vllm_configuration_has_each_option() -> None:
    """The places exist in the installed vLLM. Their names change between versions."""
    from vllm.config import (
        AttentionConfig,
        CacheConfig,
        DeviceConfig,
        KernelConfig,
        OffloadConfig,
        ParallelConfig,
        SchedulerConfig,
    )
    from vllm.config.offload import UVAOffloadConfig
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    config = SimpleNamespace(
        attention_config=AttentionConfig(backend=AttentionBackendEnum.TRITON_ATTN),
        cache_config=CacheConfig(cache_dtype="fp8"),
        device_config=DeviceConfig(device="cpu"),
        kernel_config=KernelConfig(),
        offload_config=OffloadConfig(uva=UVAOffloadConfig(cpu_offload_gb=1.5)),
        parallel_config=ParallelConfig(),
        scheduler_config=SchedulerConfig(max_model_len=64, is_encoder_decoder=False, policy="priority"),
    )
    for name in (*RENAMED, "offload_group_size", "moe_backend"):
        assert find_option(config, name)[0], name
    for name, value, changed in (
        ("cpu_offload_gb", 1.5, 2),
        ("attention_backend", "triton_attn", "FLASH_ATTN"),
        ("scheduling_policy", "priority", "fcfs"),
        ("kv_cache_dtype", "fp8", "bfloat16"),
        ("device", "cpu", "cuda"),
    ):
        _, in_force = find_option(config, name)
        assert not difference(value, in_force), name
        assert difference(changed, in_force), name


SAME = [
    (None, 5), ("auto", "float32"), (4, 4), (4, 4.0), (0.9, 0.9), ("4", 4), ("bfloat16", torch_type()),
    (True, True), ("red", Colour.RED), ("high", Level.HIGH), (Colour.RED, "red"), ([1, 2], (1, 2)),
    ({"size": 4}, Settings()),
    ({"a": {"b": None}}, {"a": {"b": 7}, "c": 1}), (Path("a"), "a"), ({}, {"a": 1}), (1, True), (True, 1),
    ("FLASH_ATTN", Backend.FLASH_ATTN), ("flash_attn", Backend.FLASH_ATTN), ("sdpa", Backend.SDPA),
    ("package.flash.Backend", Backend.FLASH_ATTN), ({"backend": "flash_attn"}, Attention(Backend.FLASH_ATTN)),
]  # fmt: skip
DIFFERENT = [
    (4, 8), (4, None), (False, None), (True, False), (True, 0), ("half", torch_type()),
    (0.9, 0.92), ({"size": 5}, Settings()), ({"other": 1}, Settings()), ({"size": 4}, None), ([1, 2], [2, 1]),
    (0, None), ("", None), ("SDPA", Backend.FLASH_ATTN), ("FLASH_ATTN", None),
    ({"backend": "SDPA"}, Attention(Backend.FLASH_ATTN)), ({"backend": "SDPA"}, Attention()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("requested", "in_force", "same"), [*((*value, True) for value in SAME), *((*value, False) for value in DIFFERENT)]
)
def test_requested_and_effective_values_are_compared_by_meaning(requested: Any, in_force: Any, same: bool) -> None:
    assert bool(difference(requested, in_force)) is not same
