"""Devices of replicas on a Ray cluster: nodes with claimed GPUs, whose number Ray does not check.

The dummy engine takes the places of vLLM for such a host, and reports the devices of its process.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from tests.conftest import ROOT, StartedMain
from tests.support.engines.ray_nodes import TwoNodes, needs_ray
from tests.support.runs.run_commands import arguments

pytestmark = [pytest.mark.vllm, needs_ray]

GPUS = 2  # of each node
# Variables that begin with VLLM_ are set on all nodes
WITH_DEVICES = f"""
import os, sys
if {{"sut.replicas.replica", "default_worker.py"}} & {{word.rpartition("/")[2] for word in sys.orig_argv}}:
    from sut.dummy.dummy_engine import DummyEngine
    from sut.dummy.dummy_kind import DummyKind
    from sut.vllm.machine import Machine
    from sut.vllm.machine import replica_places
    machine = Machine("cuda", {GPUS}, [0], visible_variable="CUDA_VISIBLE_DEVICES")
    each = int(os.environ.get("VLLM_DEVICES_EACH", "1"))
    DummyKind.places = lambda self, asked, run, count: replica_places(machine, count, each)
    start = DummyEngine.start
    async def tell_devices(self):
        report = await start(self)
        report.configuration["environment"] = {{"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "")}}
        return report
    DummyEngine.start = tell_devices
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    folder = tmp_path_factory.mktemp("on-nodes")
    (folder / "sitecustomize.py").write_text(WITH_DEVICES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT)]))  # inherited by the processes of the nodes
        nodes = TwoNodes(GPUS)
    yield nodes
    nodes.shutdown()


@pytest.mark.parametrize(
    ("each", "more", "devices"),
    [
        (1, (), [["0"], ["1"], ["0"], ["1"]]),
        (1, ("--replicas", 2), [["0"], ["0"]]),
        (2, (), [["0", "1"], ["0", "1"]]),  # as tensor parallel takes them
    ],
)
def test_each_replica_has_separate_devices(
    each: int, more: tuple[object, ...], devices: list[list[str]], cluster: TwoNodes, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = arguments("Offline", out, "--cluster", cluster.address, *more)
    finished = StartedMain(tuple(words), tmp_path, {"VLLM_DEVICES_EACH": str(each)}).wait()
    assert finished.code == ExitCode.OK, finished.stderr
    manifest = read_manifest(RunDir(out).manifest)
    assert [place.node for place in manifest.plan.replicas.places] == [
        node for node in (0, 1) for _ in range(len(devices) // 2)
    ]
    seen = [record.environment["CUDA_VISIBLE_DEVICES"].split(",") for record in manifest.replicas]
    assert [record.devices for record in manifest.replicas] == seen
    assert sorted(map(tuple, seen)) == sorted(map(tuple, devices))
    assert [{"GPU": each, "CPU": 1}] * len(devices) in cluster.bundles()
    assert cluster.left() == []


def test_more_devices_than_the_nodes_offer_are_refused(cluster: TwoNodes, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = arguments("Offline", out, "--cluster", cluster.address, "--replicas", 5)
    finished = StartedMain(tuple(words), tmp_path, {}).wait()
    assert finished.code == ExitCode.REFUSED, finished.stderr
    assert "3 replicas on 1 device(s) each: the machine has 2" in finished.stderr
    assert not out.exists()
