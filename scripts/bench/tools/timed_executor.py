"""How long each step of vLLM takes, and what was in it: an executor class for vLLM.

Named to vLLM by `--engine-arg distributed_executor_backend=scripts.bench.tools.timed_executor.TimedExecutor`; it
computes as vLLM's own does, and writes a line a step into a file of its process in the folder that STEPS_FOLDER names.
"""

import os
import time
from pathlib import Path
from typing import Any

from vllm.v1.executor.uniproc_executor import UniProcExecutor

from .step_model import STEPS_FOLDER, StepReader


class TimedExecutor(UniProcExecutor):  # type: ignore[misc]
    """A line a step: its begin (s), prompt tokens, and queries that got a token of their answer besides."""

    def _init_executor(self) -> None:
        super()._init_executor()
        folder = Path(os.environ[STEPS_FOLDER])
        self._steps = (folder / f"{os.getpid()}.steps").open("w", buffering=1 << 16)
        self._reader = StepReader()

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        began = time.perf_counter()
        decoding, prompts = self._reader.read(scheduler_output)
        self._steps.write(f"{began:.6f} {prompts} {decoding}\n")
        return super().execute_model(scheduler_output, non_block)

    def shutdown(self) -> None:
        self._steps.close()
        super().shutdown()
