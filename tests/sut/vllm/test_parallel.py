"""Copies of the model and devices a copy, for models and devices that there are."""

import json
from pathlib import Path

import pytest

from sut.vllm.kind import VllmKind, VllmOptions
from sut.vllm.machine import Machine
from sut.vllm.parallel import GIB, Layout, Need, choose_layout, copy_need
from tests.support.engine_legs import leg_facts

LLAMA_8B = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
LLAMA_70B = {"num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 8192}
PARAMETERS = {"8B": 8_030_261_248, "70B": 68_976_648_192}
LONGEST_TOKENS = {"8B": 2668, "70B": 2048}


@pytest.fixture(params=["8B", "70B"])
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def need(size: str, folder: Path, *, weights: int = 2, cache: int = 2) -> Need:
    (folder / "config.json").write_text(json.dumps(LLAMA_8B if size == "8B" else LLAMA_70B))
    return copy_need(folder, PARAMETERS[size], LONGEST_TOKENS[size], value_bytes=weights, cache_value_bytes=cache)


def test_what_a_copy_needs(tmp_path: Path) -> None:
    assert need("8B", tmp_path) == Need(16_060_522_496, 131_072 * 2668 * 32)
    assert need("8B", tmp_path, cache=1).cache_bytes == 65_536 * 2668 * 32


def test_weights_that_are_stored_quantised_need_what_they_take_on_disk(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B | {"quantization_config": {"quant_method": "fp8"}}))
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 1000)
    found = copy_need(tmp_path, 8_000_000_000, 10, value_bytes=2, cache_value_bytes=2)
    assert found.weights_bytes == 1000


def test_a_model_of_another_make_is_told_by_its_weights_alone(tmp_path: Path) -> None:
    assert copy_need(None, 5, 10, value_bytes=2, cache_value_bytes=2) == Need(0, 0)
    (tmp_path / "config.json").write_text("{}")
    assert copy_need(tmp_path, 5, 10, value_bytes=2, cache_value_bytes=2) == Need(10, 0)


@pytest.mark.parametrize(
    ("size", "devices", "gib", "expected"),
    [
        ("8B", 8, 80, (8, 1)),  # H100
        ("8B", 3, 80, (3, 1)),
        ("8B", 8, 24, (4, 2)),  # L4: the weights fit on one, a batch's cache does not
        ("8B", 4, 40, (4, 1)),  # A100-40G
        ("70B", 8, 80, (2, 4)),
        ("70B", 8, 192, (8, 1)),  # MI300X
        ("70B", 2, 80, (1, 2)),  # hardly room, and nothing better
        ("70B", 1, 80, (1, 1)),
    ],
    indirect=["size"],
)
def test_a_copy_gets_as_few_devices_as_it_fits_on(
    size: str, devices: int, gib: int, expected: tuple[int, int], tmp_path: Path
) -> None:
    layout = choose_layout(devices, gib * GIB, need(size, tmp_path), one_at_a_time=False)
    assert (layout.copies, layout.parts) == expected
    assert layout.copies * layout.parts <= devices
    assert bool(layout.why) == (devices > 1)


def test_one_query_at_a_time_is_computed_by_all(tmp_path: Path) -> None:
    for devices, parts in ((1, 1), (2, 2), (6, 4), (8, 8), (16, 8)):
        layout = choose_layout(devices, 80 * GIB, need("8B", tmp_path), one_at_a_time=True)
        assert (layout.copies, layout.parts) == (1, parts)


@pytest.mark.parametrize(
    ("copies", "parts", "expected"), [(2, None, (2, 4)), (None, 2, (4, 2)), (3, 2, (3, 2)), (None, 8, (1, 8))]
)
def test_what_is_asked_for_holds(
    copies: int | None, parts: int | None, expected: tuple[int, int], tmp_path: Path
) -> None:
    layout = choose_layout(8, 80 * GIB, need("8B", tmp_path), one_at_a_time=False, copies=copies, parts=parts)
    assert (layout.copies, layout.parts) == expected


def test_memory_that_is_not_told_is_said(tmp_path: Path) -> None:
    layout = choose_layout(4, 0, need("70B", tmp_path), one_at_a_time=False)
    assert (layout.copies, layout.parts) == (4, 1)
    assert "memory is not reported" in layout.why


def test_stages_of_a_pipeline_are_one_larger_device(tmp_path: Path) -> None:
    need("70B", tmp_path)
    facts = leg_facts(model_folder=tmp_path, parameters=PARAMETERS["70B"], longest_prompt_tokens=1920)
    kind = VllmKind(lambda: Machine("cuda", 8, [0], device_bytes=80 * GIB))
    assert kind.layout(VllmOptions(), facts).parts == 4
    piped = kind.layout(VllmOptions(engine_arg={"pipeline_parallel_size": 4}), facts)
    assert (piped.copies, piped.parts) == (2, 1)
    assert piped.why.startswith("2 pipelines: 2 copies")


def test_on_a_cpu_nothing_is_chosen() -> None:
    kind = VllmKind(lambda: Machine("cpu", 0, [0, 1]))
    assert kind.layout(VllmOptions(), leg_facts()) == Layout(1, 1)
    assert kind.layout(VllmOptions(engine_arg={"data_parallel_size": 2}), leg_facts()) == Layout(2, 1)
