"""Two real vLLM engines on two nodes of a real Ray cluster, alone on the host, because Ray gives up a late node."""

import os
from pathlib import Path

import pytest

from runs.errors import ExitCode
from tests.support.engines.ray_nodes import TwoNodes, needs_ray
from tests.vllm.vllm_runs import execute_run, run_command

pytestmark = [pytest.mark.vllm, needs_ray]


def test_vllm_runs_on_two_nodes(cluster: TwoNodes, tiny_model: Path, tmp_path: Path) -> None:
    conf = "*.Server.min_duration = 1000\n*.Server.target_qps = 20\n*.Server.min_query_count = 40\n"
    words = ["--scenario", "Server", "--cluster", cluster.address]
    run = execute_run(run_command(tiny_model, tmp_path / "run", conf, words), tmp_path / "run")
    assert run.exit_code in (ExitCode.OK, ExitCode.NEGATIVE), run
    replicas = run.manifest["replicas"]
    assert replicas[0]["weights_sha256"] == replicas[1]["weights_sha256"]
    assert any(name.endswith(".safetensors") for name in replicas[0]["weights_sha256"])
    assert set(run.requests.replica.tolist()) == {0, 1}
    cores = sorted(os.sched_getaffinity(0))
    assert [replica["cores"] for replica in replicas] == [cores[:1], cores[1:2] or cores[:1]]
    assert cluster.left() == []
