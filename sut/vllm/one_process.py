"""vLLM with nothing beside it: the scheduler and the model run on the event loop of the leg's process.

For SingleStream on a CPU. With one query at a time there is nothing to overlap, and the message that AsyncLLM's core
sends for every token is received on a core that the model's threads are waiting for.
"""

import asyncio
from typing import Any

from sut.engine import Request
from sut.vllm.engine import VllmEngine, engine_died, explain


class OneProcessVllmEngine(VllmEngine):
    """One LLMEngine, stepped by the event loop, which hears nothing else during a step.

    Needs VLLM_ENABLE_V1_MULTIPROCESSING=0, vLLM's own switch, in the environment it is imported with.
    """

    one_process = True

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        self._open: dict[str, tuple[Request, list[int]]] = {}
        self._stepping = False
        self._dead = False

    def _count_core_outputs(self) -> None:
        """Nothing to do: each step is counted here."""

    def generated_tokens(self) -> None:
        """Not counted: one query at a time, and each is answered soon."""

    def submit(self, request: Request) -> None:
        self._request_number += 1
        name = str(self._request_number)
        prompt = self._tokens_input(request.prompt_ids)
        try:
            self._llm.add_request(name, prompt, self._parameters, priority=request.priority)
        except Exception as error:
            request.sink.failed(request, explain(error))
            return
        self._open[name] = (request, [])
        if not self._stepping:
            self._stepping = True
            asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        try:
            outputs = self._llm.step()
        except Exception as error:
            self._dead = True
            for request, _ in self._open.values():
                request.sink.failed(request, explain(error))
            return
        self._core_outputs += 1
        for output in outputs:
            request, ids = self._open[output.request_id]
            if output.finished:
                del self._open[output.request_id]
            self._tell(request, ids, output)
        self._stepping = bool(self._open)
        if self._stepping:
            asyncio.get_running_loop().call_soon(self._step)

    def check_alive(self) -> None:
        if self._dead:
            raise engine_died()

    async def stop(self) -> None:
        if self._llm is not None:
            self._llm.engine_core.shutdown()
