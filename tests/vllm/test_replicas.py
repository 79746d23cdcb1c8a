"""Two real vLLM engines behind one LoadGen, each in its own process on its own cores."""

import os
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from runs.errors import ExitCode
from tests.support.engines.greedy import TIE, GreedyResponse
from tests.vllm.vllm_runs import execute_run, run_command

pytestmark = pytest.mark.vllm

SERVER = "*.Server.min_duration = 1000\n*.Server.target_qps = 40\n*.Server.min_query_count = 128\n"
TWO = ["--scenario", "Server", "--replicas", "2"]


def test_two_replicas_give_the_responses_of_one_engine(
    tiny_model: Path, responses: list[GreedyResponse], tmp_path: Path
) -> None:
    """The responses of one engine are those of greedy decoding (tests/vllm/test_vllm_runs.py). Ties are omitted."""
    run = execute_run(run_command(tiny_model, tmp_path / "run", SERVER, TWO), tmp_path / "run")
    assert run.exit_code in (ExitCode.OK, ExitCode.NEGATIVE), run
    clear = {index for index, response in enumerate(responses) if min(response.margins) >= TIE}
    compared = [0, 0]
    requests = run.requests
    rows = zip(requests.sample_index.tolist(), requests.replica.tolist(), requests.output_sha256, strict=True)
    for index, replica, digest in rows:
        if index in clear:
            compared[replica] += 1
            assert digest == sha256(np.array(responses[index].ids, "<i4").tobytes()).hexdigest(), f"sample {index}"
    assert sum(compared) >= len(requests) / 2
    assert min(compared) > 0
    replicas = run.manifest["replicas"]
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // 2
    assert [replica["cores"] for replica in replicas] == [cores[:share], cores[share : 2 * share]]
    assert replicas[0]["weights_sha256"] == replicas[1]["weights_sha256"]
    assert any(name.endswith(".safetensors") for name in replicas[0]["weights_sha256"])
