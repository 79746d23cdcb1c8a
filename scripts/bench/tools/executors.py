"""Executor classes for vLLM: its scheduler and front end around steps that are timed, or not computed.

Named to vLLM by `--engine-arg distributed_executor_backend=scripts.bench.tools.executors.TimedExecutor`, say. vLLM
loads the model and makes its cache as ever.
"""

import os
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

from .step_model import STEP_MODEL, STEPS_FOLDER, StepModel, StepReader

TOKEN_ID = 11  # of every output; ends nothing


class TimedExecutor(UniProcExecutor):  # type: ignore[misc]
    """Computes as vLLM's own does, and writes a line a step into a file of its process in the folder that STEPS_FOLDER
    names: its begin (s), prompt tokens, and queries that got a token of their answer besides."""

    def _init_executor(self) -> None:
        super()._init_executor()
        folder = Path(os.environ[STEPS_FOLDER])
        self._steps = (folder / f"{os.getpid()}.steps").open("w", buffering=1 << 16)
        self._reader = StepReader()

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        began = time.perf_counter()
        step = self._reader.read(scheduler_output)
        self._steps.write(f"{began:.6f} {step.prompt_tokens} {step.decoding}\n")
        return super().execute_model(scheduler_output, non_block)

    def shutdown(self) -> None:
        self._steps.close()
        super().shutdown()


class InstantExecutor(UniProcExecutor):  # type: ignore[misc]
    """Answers each step at once, with a token for every request whose prompt is computed."""

    def _init_executor(self) -> None:
        super()._init_executor()
        self._reader = StepReader()
        self._next: Any = EMPTY_MODEL_RUNNER_OUTPUT

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """vLLM asks for the tokens by `sample_tokens`, behind this."""
        self._step = self._reader.read(scheduler_output)
        names = list(self._step.computed)
        self._next = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[[TOKEN_ID] if whole else [] for whole in self._step.computed.values()],
        )
        return _given(None if names else self._next, non_block)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        return _given(self._next, non_block)


class PacedExecutor(InstantExecutor):
    """Each step takes what a `StepModel` says, without a core's work: an engine as on a device of its own."""

    def _init_executor(self) -> None:
        super()._init_executor()
        self._model = StepModel(*map(float, os.environ[STEP_MODEL].split()))

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        began = time.perf_counter()
        answer = super().execute_model(scheduler_output, non_block)
        step = self._step
        ends = began + (self._model.seconds(step.decoding, step.prompt_tokens) if step.computed else 0.0)
        time.sleep(max(0.0, ends - time.perf_counter()))
        return answer


def _given(output: Any, non_block: bool) -> Any:
    if not non_block:
        return output
    future: Future[Any] = Future()
    future.set_result(output)
    return future
