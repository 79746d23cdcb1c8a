"""After the warm-up, a real vLLM that compiles creates nothing more, up to its largest batch and full prompt steps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runs.harness import HARNESS_ROOT
from tests.support.engines.engine_turn import engine_turn
from tests.support.processes.patience import finish
from tests.vllm.warm_up_program import LIMITS

pytestmark = pytest.mark.vllm


# Dynamo decides which shapes occur; inductor only compiles them, which takes a minute
@pytest.mark.parametrize("inductor", [False, pytest.param(True, marks=pytest.mark.long)], ids=["traced", "compiled"])
def test_the_warm_up_leaves_nothing_to_compile(inductor: bool, tmp_path: Path) -> None:
    with engine_turn:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.vllm.warm_up_program", str(tmp_path)],
            cwd=HARNESS_ROOT,
            env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", **({} if inductor else {"VLLM_CPU_CI_ENV": "1"})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            stdout, stderr = finish(process)
        finally:
            process.kill()
    assert process.returncode == 0, stderr[-3000:]
    reported = json.loads(stdout.splitlines()[-1])
    # The counters count: the start compiled the model or took it from vLLM's cache. If it traces, the warm-up did.
    counted = reported["started"] if inductor else reported["warm"]["torch"]["stats"]
    assert {"num_aot_compiles", "num_aot_artifacts_loaded", "unique_graphs"} & counted.keys()
    assert reported["ended"] == reported["warm"]
    assert reported["largest_batch"] == reported["warm_up"]["queries_at_once"] == LIMITS["max_num_seqs"]
    assert reported["warm_up"]["prompt_tokens_at_once"] > LIMITS["max_num_batched_tokens"]
