"""vLLM's scheduler and front end around a model that is not computed: executor classes for vLLM.

Named to vLLM by `--engine-arg distributed_executor_backend=scripts.bench.tools.instant_executor.InstantExecutor`. vLLM
loads the model and makes its cache as ever; only the steps are answered without it.
"""

import os
import time
from concurrent.futures import Future
from typing import Any

from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

from .step_model import STEP_MODEL, StepModel, StepReader

TOKEN_ID = 11  # of every output; ends nothing


class InstantExecutor(UniProcExecutor):  # type: ignore[misc]
    """Answers each step at once, with a token for every request whose prompt is computed."""

    def _init_executor(self) -> None:
        super()._init_executor()
        self._lengths: dict[str, int] = {}  # of each request: prompt and the tokens so far
        self._next: Any = EMPTY_MODEL_RUNNER_OUTPUT

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """vLLM asks for the tokens by `sample_tokens`, behind this."""
        self._next = self._tokens(scheduler_output)
        nothing_scheduled = not scheduler_output.total_num_scheduled_tokens
        return _given(self._next if nothing_scheduled else None, non_block)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        return _given(self._next, non_block)

    def _tokens(self, step: Any) -> Any:
        scheduled, lengths = step.num_scheduled_tokens, self._lengths
        for name in step.finished_req_ids:
            lengths.pop(name, None)
        computed = dict(
            zip(step.scheduled_cached_reqs.req_ids, step.scheduled_cached_reqs.num_computed_tokens, strict=True)
        )
        for new in step.scheduled_new_reqs:
            computed[new.req_id] = new.num_computed_tokens
            lengths.setdefault(new.req_id, new.prompt_len)  # one that was preempted keeps what it had
        tokens: list[list[int]] = []
        for name, count in scheduled.items():
            whole = computed[name] + count >= lengths[name]
            lengths[name] += whole
            tokens.append([TOKEN_ID] if whole else [])
        names = list(scheduled)
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=tokens,
        )


class PacedExecutor(InstantExecutor):
    """Each step takes what a `StepModel` says, without a core's work: an engine as on a device of its own."""

    def _init_executor(self) -> None:
        super()._init_executor()
        self._reader = StepReader()
        self._model = StepModel(*map(float, os.environ[STEP_MODEL].split()))

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        ends = time.perf_counter()
        content = self._reader.read(scheduler_output)
        if any(content):
            ends += self._model.seconds(*content)
        answer = super().execute_model(scheduler_output, non_block)
        time.sleep(max(0.0, ends - time.perf_counter()))
        return answer


def _given(output: Any, non_block: bool) -> Any:
    if not non_block:
        return output
    future: Future[Any] = Future()
    future.set_result(output)
    return future
