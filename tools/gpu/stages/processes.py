"""The processes of a run."""

import time
from collections.abc import Callable

import psutil

from runs.errors import ExecutionError
from runs.record.progress import Progress, read_progress
from tools.gpu.harness import StartedCommand
from tools.gpu.stage import GpuStage

POLL_S = 0.2


def until_running(stage: GpuStage, started: StartedCommand, far_enough: Callable[[Progress], bool]) -> Progress:
    """Wait until LoadGen has run for a time or issued queries; return the progress.

    Raises:
        ExecutionError: If the run or the stage's time ended before.
    """
    while started.process.poll() is None and stage.left_s > 0:
        progress = read_progress(started.run.progress)
        if progress is not None and progress.phase == "running" and far_enough(progress):
            return progress
        time.sleep(POLL_S)
    raise ExecutionError(f"the run ended too early; {started.error()}")


def engine_core(pid: int) -> psutil.Process | None:
    """Return the process in which vLLM computes, a descendant of a run's process."""
    for process in psutil.Process(pid).children(recursive=True):
        if "EngineCore" in " ".join(process.cmdline()):
            return process
    return None
