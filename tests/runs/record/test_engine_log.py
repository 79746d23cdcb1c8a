"""engine.log: what the engine's own process failed with, for people."""

from pathlib import Path

from runs.record.engine_log import last_error

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
