"""What each replica has to itself."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runs.errors import SetupError
from sut.vllm.kind import VllmKind, VllmOptions
from sut.vllm.machine import Machine, numa_nodes, one_node, shares
from tests.conftest import ROOT
from tests.support.engine_legs import leg_facts

TWO_NODES = {core: core % 2 for core in range(8)}  # interleaved, as some firmware numbers them


def test_nodes_as_the_kernel_tells_them(tmp_path: Path) -> None:
    for node, cores in (("node0", "0-2,6"), ("node1", "3-5\n"), ("node2", "\n")):
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(cores)
    assert numa_nodes(tmp_path) == {0: 0, 1: 0, 2: 0, 6: 0, 3: 1, 4: 1, 5: 1}


def test_equal_shares_from_one_node_each() -> None:
    parts = shares(list(range(8)), 4, TWO_NODES)
    assert parts == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert [one_node(part, TWO_NODES) for part in parts] == [0, 0, 1, 1]


def test_one_node_is_no_choice() -> None:
    assert one_node([0, 1], {0: 0, 1: 0}) is None
    assert one_node([0, 1], TWO_NODES) is None


def test_more_replicas_than_cores() -> None:
    with pytest.raises(SetupError, match="--replicas 3: there are 2 cores"):
        shares([0, 1], 3, {})


def test_a_process_is_kept_on_its_cores() -> None:
    core = sorted(os.sched_getaffinity(0))[-1]
    code = f"import os; from sut.replicas.replica import bind; bind([{core}], 0); print(os.sched_getaffinity(0))"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == f"{{{core}}}"


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
def test_devices_of_each_replica(options: dict[str, object], count: int | None, expected: list[list[str]]) -> None:
    places = gpus(4).places(VllmOptions.model_validate(options), leg_facts(), count)
    assert [place.devices for place in places] == expected
    assert [place.variables for place in places] == [{"CUDA_VISIBLE_DEVICES": ",".join(ids)} for ids in expected]


def test_devices_by_the_names_that_the_user_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b, GPU-a")
    assert [place.devices for place in gpus(2).places(VllmOptions(), leg_facts(), None)] == [["GPU-b"], ["GPU-a"]]


def test_more_replicas_than_devices() -> None:
    with pytest.raises(SetupError, match="3 replicas on 2 device"):
        gpus(4).places(VllmOptions(tensor_parallel_size=2), leg_facts(), 3)
    with pytest.raises(SetupError, match="there are 4"):
        gpus(4).places(VllmOptions(), leg_facts(), 5)


def test_a_replica_is_planned_for_its_place_only() -> None:
    kind = gpus(4)
    options = VllmOptions()
    (first, _) = kind.places(options, leg_facts(), 2)
    sizes = [
        math.prod(plan.options.get(f"{kind}_parallel_size", 1) for kind in ("tensor", "data"))
        for plan in (kind.at(first, 2).plan(options, leg_facts()), kind.plan(options, leg_facts()))
    ]
    assert sizes == [2, 4]


def test_replicas_on_the_cpu_have_cores_of_their_own() -> None:
    kind = VllmKind(lambda: Machine("cpu", 0, [0, 1]))
    options = VllmOptions()
    places = kind.places(options, leg_facts(), 2)
    assert [place.cores for place in places] == [[0], [1]]
    environments = [kind.at(place, 2).plan(options, leg_facts()).environment for place in places]
    assert [environment["OMP_PLACES"] for environment in environments] == ["{0}", "{1}"]
