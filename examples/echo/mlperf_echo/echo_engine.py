"""An engine whose response is its prompt, repeated up to the maximum length."""

import asyncio
from itertools import cycle, islice

from runs.benchmark import SamplingPolicy
from runs.record.manifest import RunPlan
from sut.engine import Engine, EngineReport, Request


class EchoEngine(Engine):
    def __init__(self, sampling: SamplingPolicy, delay_ms: float) -> None:
        self._sampling = sampling
        self._delay_ms = delay_ms
        self._timers: dict[Request, asyncio.TimerHandle] = {}
        self._activity = 0

    async def start(self) -> EngineReport:
        self._loop = asyncio.get_running_loop()
        # 0 slots: all requests are computed at once.
        return EngineReport("echo", configuration={"delay_ms": self._delay_ms, "slots": 0})

    async def begin(self, plan: RunPlan) -> None:
        self._sampling = plan.sampling

    def submit(self, request: Request) -> None:
        ids = list(islice(cycle(request.prompt_ids), request.sampling(self._sampling).max_tokens))
        self._timers[request] = self._loop.call_later(self._delay_ms / 1e3, self._begin_response, request, ids)

    def _begin_response(self, request: Request, ids: list[int]) -> None:
        self._activity += 1
        request.sink.first_token(request, ids[0])
        self._timers[request] = self._loop.call_later(self._delay_ms / 1e3, self._end_response, request, ids)

    def _end_response(self, request: Request, ids: list[int]) -> None:
        self._activity += 1
        del self._timers[request]
        request.sink.complete(request, ids, "length", 0)

    def check_alive(self) -> None:
        """Do nothing: the engine lives as long as the event loop."""

    def activity(self) -> int:
        return self._activity

    async def abandon(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def stop(self) -> None:
        await self.abandon()
