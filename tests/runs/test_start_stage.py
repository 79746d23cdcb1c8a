"""What an engine's log says of its start."""

from pathlib import Path

import pytest

from runs.record.engine_log import StageClock, start_stage

# Lines of vLLM 0.32.0, in their order; the last three of the CUDA build.
LINES = [
    ("Resolved architecture: LlamaForCausalLM", ""),
    ("(Worker pid=9) INFO 11-21 12:26:10 [cpu_model_runner.py:68] Starting to load model /m...", "loading weights"),
    ("INFO [default_loader.py:501] Loading weights took 0.21 seconds", "profiling memory"),
    ("INFO [monitor.py:20] Dynamo bytecode transform time: 2.1 s", "compiling"),
    ("INFO [kv_cache_utils.py:2327] GPU KV cache size: 80,444 tokens", "making the KV cache"),
    ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  10%|", "capturing graphs"),
    ("INFO [core.py:402] init engine (profile, create kv cache, warmup model) took 0.91 s", "last preparations"),
]


@pytest.mark.parametrize("count", range(1, len(LINES) + 1))
def test_the_last_stage_counts(tmp_path: Path, count: int) -> None:
    log = tmp_path / "engine.log"
    log.write_text("\n".join(line for line, _ in LINES[:count]))
    assert start_stage(log) == LINES[count - 1][1]


def test_no_log(tmp_path: Path) -> None:
    assert start_stage(tmp_path / "engine.log") == ""


def test_clock() -> None:
    now = [100.0]
    clock = StageClock("importing", 90.0, lambda: now[0])
    clock.enter("importing")
    clock.enter("weights")
    now[0] = 107.5
    clock.enter("running")
    assert clock.seconds == {"importing": 10.0, "weights": 7.5}


def test_a_clock_that_is_put_back_gives_no_negative_time() -> None:
    now = [100.0]
    clock = StageClock("importing", 90.0, lambda: now[0])
    now[0] = 80.0
    clock.enter("weights")
    now[0] = 82.5
    clock.enter("running")
    assert clock.seconds == {"importing": 0.0, "weights": 2.5}
