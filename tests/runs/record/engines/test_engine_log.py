"""engine.log: the configuration that the engine printed, and the error of its process, for people."""

from pathlib import Path

import pytest

from runs.record.engines.engine_log import read_engine_log
from runs.record.engines.engine_stages import StageClock, last_error, start_stage

LOG = """INFO 11-22 12:00:00 [core.py:99] Initializing a V1 LLM engine
(EngineCore pid=7) ERROR 11-22 12:00:01 [core.py:1100] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-22 12:00:01 [core.py:1100] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-22 12:00:01 [core.py:1100]     raise ValueError(
(EngineCore pid=7) ERROR 11-22 12:00:01 [core.py:1100] ValueError: No available memory for the cache blocks.
RuntimeError: Engine core initialization failed. See root cause above.
"""


@pytest.mark.parametrize(
    "cause",
    [
        "ValueError: No available memory for the cache blocks.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "AssertionError",
    ],
)
def test_the_cause_is_the_last_error_of_the_engine_process(tmp_path: Path, cause: str) -> None:
    log = tmp_path / "engine.log"
    assert last_error(log) == ""
    log.write_text(LOG.replace("ValueError: No available memory for the cache blocks.", cause))
    assert last_error(log) == cause
    log.write_text(LOG.replace("EngineCore pid=7) ERROR", "EngineCore pid=7) INFO"))
    assert last_error(log) == ""


@pytest.mark.parametrize(("core", "copies"), [("EngineCore", 1), ("EngineCore_DP0", None)])
def test_the_number_of_ranks_is_unknown_from_the_log_of_one_rank(tmp_path: Path, core: str, copies: int | None) -> None:
    """The log is of vLLM 0.32 with data_parallel_size=2."""
    log = tmp_path / "engine.log"
    log.write_text(
        f"({core} pid=7) INFO 11-22 17:02:30 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
        "model='/m', speculative_config=None, dtype=torch.float32, data_parallel_size=1, quantization=None\n"
    )
    configuration = read_engine_log(log).configuration
    assert configuration["dtype"] == "float32"
    assert configuration.get("data_parallel_size") == copies


# Lines of vLLM 0.32.0 in their order. The last three are of the CUDA build.
START_LINES = [
    ("Resolved architecture: LlamaForCausalLM", ""),
    ("(Worker pid=9) INFO 11-21 12:26:10 [cpu_model_runner.py:68] Starting to load model /m...", "loading weights"),
    ("INFO [default_loader.py:501] Loading weights took 0.21 seconds", "profiling memory"),
    ("INFO [monitor.py:20] Dynamo bytecode transform time: 2.1 s", "compiling"),
    ("INFO [kv_cache_utils.py:2327] GPU KV cache size: 80,444 tokens", "making the KV cache"),
    ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  10%|", "capturing graphs"),
    ("INFO [core.py:402] init engine (profile, create kv cache, warmup model) took 0.91 s", "last preparations"),
]


@pytest.mark.parametrize("count", range(1, len(START_LINES) + 1))
def test_the_last_stage_of_the_start_is_found(tmp_path: Path, count: int) -> None:
    log = tmp_path / "engine.log"
    log.write_text("\n".join(line for line, _ in START_LINES[:count]))
    assert start_stage(log) == START_LINES[count - 1][1]

    assert start_stage(tmp_path / "none.log") == ""


@pytest.mark.parametrize(("then_s", "took_s"), [(100.0, 10.0), (80.0, 0.0)], ids=["forward", "the clock is put back"])
def test_the_seconds_of_each_stage_are_measured(then_s: float, took_s: float) -> None:
    now = [then_s]
    clock = StageClock("importing", 90.0, lambda: now[0])
    clock.enter("importing")
    clock.enter("weights")
    now[0] += 7.5
    clock.enter("running")
    assert clock.seconds == {"importing": took_s, "weights": 7.5}


ENGINE_LOG = """(MainProcess pid=71) INFO 11-21 12:00:00 [x.py:1] hello
(EngineCore pid=72) INFO [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/models/llama', \
speculative_config=None, dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=2, quantization=fp8, \
enforce_eager=False, kv_cache_dtype=fp8_e4m3, enable_prefix_caching=False, enable_chunked_prefill=True, seed=0
(EngineCore pid=72) INFO Using FLASH_ATTN backend.
(EngineCore pid=72) INFO GPU KV cache size: 1,234,567 tokens
"""


def test_the_engine_configuration_is_read_from_its_log(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_text(ENGINE_LOG)
    log = read_engine_log(path)
    assert log.configuration["dtype"] == "bfloat16"
    assert log.configuration["kv_cache_dtype"] == "fp8_e4m3"
    assert log.configuration["max_model_len"] == 4096
    assert log.configuration["enforce_eager"] is False
    assert log.configuration["speculative"] is False
    assert (log.kv_cache_tokens, log.attention_backend) == (1_234_567, "FLASH_ATTN")
    assert log.dead_line is None
    path.write_text(ENGINE_LOG + "ERROR EngineCore encountered a fatal error\n")
    assert read_engine_log(path).dead_line == 5
    path.write_text("")
    assert read_engine_log(path).configuration == {}
