"""engine.log: the configuration that the engine printed, and what its own process failed with, for people."""

from pathlib import Path

import pytest

from runs.record.engine_log import last_error, read_engine_log

LOG = """INFO 11-22 12:00:00 [core.py:99] Initializing a V1 LLM engine
(EngineCore pid=7) ERROR 11-22 12:00:01 [core.py:1100] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-22 12:00:01 [core.py:1100] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-22 12:00:01 [core.py:1100]     raise ValueError(
(EngineCore pid=7) ERROR 11-22 12:00:01 [core.py:1100] ValueError: No available memory for the cache blocks.
RuntimeError: Engine core initialization failed. See root cause above.
"""


def test_the_cause_is_that_of_the_engines_own_process(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    assert last_error(log) == ""
    log.write_text(LOG)
    assert last_error(log) == "ValueError: No available memory for the cache blocks."
    log.write_text(LOG.replace("EngineCore pid=7) ERROR", "EngineCore pid=7) INFO"))
    assert last_error(log) == ""


@pytest.mark.parametrize(("core", "copies"), [("EngineCore", 1), ("EngineCore_DP0", None)])
def test_a_copy_of_several_does_not_tell_how_many_there_are(tmp_path: Path, core: str, copies: int | None) -> None:
    """vLLM 0.32, with data_parallel_size=2."""
    log = tmp_path / "engine.log"
    log.write_text(
        f"({core} pid=7) INFO 11-22 17:02:30 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
        "model='/m', speculative_config=None, dtype=torch.float32, data_parallel_size=1, quantization=None\n"
    )
    configuration = read_engine_log(log).configuration
    assert configuration["dtype"] == "float32"
    assert configuration.get("data_parallel_size") == copies
