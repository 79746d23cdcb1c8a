"""Ranks, the devices of a rank, and the resources of each replica."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runs.errors import SetupError
from sut.vllm.machine import Machine, core_shares, numa_nodes, one_node
from sut.vllm.parallel import GIB, MEMORY_SHARE, WORKING_BYTES, Layout, MemoryNeed, choose_layout, copy_need
from sut.vllm.vllm_kind import VllmKind, VllmOptions
from tests.conftest import ROOT
from tests.support.runs.records import run_facts

LLAMA_8B = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
LLAMA_70B = {"num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 8192}
PARAMETERS = {"8B": 8_030_261_248, "70B": 68_976_648_192}
LONGEST_TOKENS = {"8B": 2668, "70B": 2048}


@pytest.fixture(params=["8B", "70B"])
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def needed_memory(size: str, folder: Path, *, weights: int = 2, cache: int = 2) -> MemoryNeed:
    (folder / "config.json").write_text(json.dumps(LLAMA_8B if size == "8B" else LLAMA_70B))
    return copy_need(folder, PARAMETERS[size], LONGEST_TOKENS[size], value_bytes=weights, cache_value_bytes=cache)


def test_memory_of_a_rank_follows_from_weights_and_cache(tmp_path: Path) -> None:
    assert needed_memory("8B", tmp_path) == MemoryNeed(16_060_522_496, 131_072 * 2668 * 32)
    assert needed_memory("8B", tmp_path, cache=1).cache_bytes == 65_536 * 2668 * 32
    available = int(2 * (24 * GIB * MEMORY_SHARE - WORKING_BYTES))
    assert MemoryNeed(available - 5, 5).fits(2, 24 * GIB)
    assert not MemoryNeed(available, 5).fits(2, 24 * GIB)


def test_quantized_weights_need_their_size_on_disk(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B | {"quantization_config": {"quant_method": "fp8"}}))
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 1000)
    memory_need = copy_need(tmp_path, 8_000_000_000, 10, value_bytes=2, cache_value_bytes=2)
    assert memory_need.weights_bytes == 1000


def test_memory_of_an_unknown_architecture_is_that_of_its_weights(tmp_path: Path) -> None:
    assert copy_need(None, 5, 10, value_bytes=2, cache_value_bytes=2) == MemoryNeed(0, 0)
    (tmp_path / "config.json").write_text("{}")
    assert copy_need(tmp_path, 5, 10, value_bytes=2, cache_value_bytes=2) == MemoryNeed(10, 0)


@pytest.mark.parametrize(
    ("size", "devices", "gib", "expected"),
    [
        ("8B", 8, 80, (8, 1)),  # H100
        ("8B", 3, 80, (3, 1)),
        ("8B", 8, 24, (4, 2)),  # L4: the weights fit on one device, the cache of a batch does not
        ("8B", 4, 40, (4, 1)),  # A100-40G
        ("70B", 8, 80, (2, 4)),
        ("70B", 8, 192, (8, 1)),  # MI300X
        ("70B", 2, 80, (1, 2)),  # hardly enough memory, and no better layout
        ("70B", 1, 80, (1, 1)),
    ],
    indirect=["size"],
)
def test_a_rank_uses_as_few_devices_as_possible(
    size: str, devices: int, gib: int, expected: tuple[int, int], tmp_path: Path
) -> None:
    layout = choose_layout(devices, gib * GIB, needed_memory(size, tmp_path), one_at_a_time=False)
    assert (layout.copies, layout.parts) == expected
    assert layout.copies * layout.parts <= devices
    assert bool(layout.why) == (devices > 1)


def test_a_single_stream_uses_all_devices(tmp_path: Path) -> None:
    for devices, parts in ((1, 1), (2, 2), (6, 4), (8, 8), (16, 8)):
        layout = choose_layout(devices, 80 * GIB, needed_memory("8B", tmp_path), one_at_a_time=True)
        assert (layout.copies, layout.parts) == (1, parts)


@pytest.mark.parametrize(
    ("copies", "parts", "expected"), [(2, None, (2, 4)), (None, 2, (4, 2)), (3, 2, (3, 2)), (None, 8, (1, 8))]
)
def test_requested_parallel_sizes_are_kept(
    copies: int | None, parts: int | None, expected: tuple[int, int], tmp_path: Path
) -> None:
    layout = choose_layout(8, 80 * GIB, needed_memory("8B", tmp_path), one_at_a_time=False, copies=copies, parts=parts)
    assert (layout.copies, layout.parts) == expected


def test_unknown_device_memory_is_reported(tmp_path: Path) -> None:
    layout = choose_layout(4, 0, needed_memory("70B", tmp_path), one_at_a_time=False)
    assert (layout.copies, layout.parts) == (4, 1)
    assert "memory of the devices is unknown" in layout.why


def test_pipeline_stages_count_as_one_larger_device(tmp_path: Path) -> None:
    needed_memory("70B", tmp_path)
    facts = run_facts(model_folder=tmp_path, parameters=PARAMETERS["70B"], longest_prompt_tokens=1920)
    kind = VllmKind(lambda: Machine("cuda", 8, [0], device_bytes=80 * GIB))
    assert kind.layout(VllmOptions(), facts).parts == 4
    piped = kind.layout(VllmOptions(engine_arg={"pipeline_parallel_size": 4}), facts)
    assert (piped.copies, piped.parts) == (2, 1)
    assert piped.why.startswith("2 pipelines: 2 copies")


def test_a_cpu_has_one_rank_by_default() -> None:
    kind = VllmKind(lambda: Machine("cpu", 0, [0, 1]))
    assert kind.layout(VllmOptions(), run_facts()) == Layout(1, 1)
    assert kind.layout(VllmOptions(engine_arg={"data_parallel_size": 2}), run_facts()) == Layout(2, 1)


TWO_NODES = {core: core % 2 for core in range(8)}  # interleaved, as some firmware numbers them


def test_numa_nodes_are_read_from_the_kernel(tmp_path: Path) -> None:
    for node, cores in (("node0", "0-2,6"), ("node1", "3-5\n"), ("node2", "\n")):
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(cores)
    assert numa_nodes(tmp_path) == {0: 0, 1: 0, 2: 0, 6: 0, 3: 1, 4: 1, 5: 1}


def test_cores_are_divided_within_numa_nodes() -> None:
    parts = core_shares(list(range(8)), 4, TWO_NODES)
    assert parts == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert [one_node(part, TWO_NODES) for part in parts] == [0, 0, 1, 1]


def test_a_single_numa_node_is_not_bound() -> None:
    assert one_node([0, 1], {0: 0, 1: 0}) is None
    assert one_node([0, 1], TWO_NODES) is None


def test_more_replicas_than_cores_are_refused() -> None:
    with pytest.raises(SetupError, match="--replicas 3: the machine has 2 cores"):
        core_shares([0, 1], 3, {})


def test_a_process_is_bound_to_its_cores() -> None:
    core = sorted(os.sched_getaffinity(0))[-1]
    code = f"import os; from sut.replicas.replica import bind; bind([{core}], 0); print(os.sched_getaffinity(0))"
    reported = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert reported.splitlines()[-1] == f"{{{core}}}"


def gpus(devices: int) -> VllmKind:
    return VllmKind(lambda: Machine("cuda", devices, [0, 1], visible_variable="CUDA_VISIBLE_DEVICES"))


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("options", "count", "expected"),
    [
        ({}, None, [["0"], ["1"], ["2"], ["3"]]),
        ({}, 2, [["0", "1"], ["2", "3"]]),
        ({"tensor_parallel_size": 1}, 2, [["0"], ["1"]]),
        ({"tensor_parallel_size": 2}, None, [["0", "1"], ["2", "3"]]),
        ({"engine_arg": {"tensor_parallel_size": 4}}, None, [["0", "1", "2", "3"]]),
    ],
)
def test_each_replica_has_its_devices(options: dict[str, object], count: int | None, expected: list[list[str]]) -> None:
    places = gpus(4).places(VllmOptions.model_validate(options), run_facts(), count)
    assert [place.devices for place in places] == expected
    assert [place.variables for place in places] == [{"CUDA_VISIBLE_DEVICES": ",".join(ids)} for ids in expected]


def test_devices_keep_the_names_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b, GPU-a")
    assert [place.devices for place in gpus(2).places(VllmOptions(), run_facts(), None)] == [["GPU-b"], ["GPU-a"]]


def test_more_replicas_than_devices_are_refused() -> None:
    with pytest.raises(SetupError, match="3 replicas on 2 device"):
        gpus(4).places(VllmOptions(tensor_parallel_size=2), run_facts(), 3)
    with pytest.raises(SetupError, match="the machine has 4 devices"):
        gpus(4).places(VllmOptions(), run_facts(), 5)


def test_a_replica_is_planned_for_its_devices_only() -> None:
    kind = gpus(4)
    options = VllmOptions()
    (first, _) = kind.places(options, run_facts(), 2)
    sizes = [
        math.prod(plan.options.get(f"{kind}_parallel_size", 1) for kind in ("tensor", "data"))
        for plan in (kind.at(first, 2).plan(options, run_facts()), kind.plan(options, run_facts()))
    ]
    assert sizes == [2, 4]


def test_cpu_replicas_have_separate_cores() -> None:
    kind = VllmKind(lambda: Machine("cpu", 0, [0, 1]))
    options = VllmOptions()
    places = kind.places(options, run_facts(), 2)
    assert [place.cores for place in places] == [[0], [1]]
    environments = [kind.at(place, 2).plan(options, run_facts()).environment for place in places]
    assert [environment["OMP_PLACES"] for environment in environments] == ["{0}", "{1}"]
