"""A deterministic engine without a model, for tests of logic and faults. It has the path to LoadGen of a real engine.

Its response is a part of the prompt, taken after the words that all prompts share; its length depends on the prompt.
The first output token takes a constant time and a time per prompt token; each further output token takes a constant
time. The number of slots limits the requests computed at a time; the others wait in order.
"""

import asyncio
import heapq
import random
import time
import zlib
from array import array
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from runs.benchmark import SamplingPolicy
from runs.errors import ExecutionError, SetupError
from sut.dummy.dummy_options import SHORTEST_OUTPUT
from sut.dummy.fault import Fault
from sut.engine import Engine, EngineLimits, EngineReport, Request

if TYPE_CHECKING:
    from runs.record.manifest import RunPlan


@dataclass(eq=False)
class DummyEngine(Engine):
    sampling: SamplingPolicy  # only the longest output matters
    _: KW_ONLY
    lead_tokens: int = 0  # tokens at the start of each prompt that a response skips
    ttft_ms: float = 2.0  # constant part of the time to the first token
    tpot_ms: float = 0.05  # per output token after the first
    prefill_us: float = 0.0  # per prompt token, before the first output token
    slots: int = 0  # maximum number of concurrently computed requests; 0 = all
    shortest_tokens: int = SHORTEST_OUTPUT  # output lengths are between this value and the longest output
    noise: float = 0.0  # standard deviation of the speed of a run and of a request, as a share
    seed: int | None = None  # seed of the noise; None = a new seed at each start
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        # Time at which each slot in use becomes free, on the loop's clock. It is computed in advance, so that timers
        # that fire late do not add up.
        self._slots_free_s: list[float] = []
        self._fault_at = {fault.at: fault.kind for fault in self.faults if fault.kind != "start"}
        self._random = random.Random(self.seed)
        self._of_the_run = self._factor()
        self._dead = False
        self._activity = 0
        self._generated_tokens = 0

    async def start(self) -> EngineReport:
        if any(fault.kind == "start" for fault in self.faults):
            raise SetupError("the dummy engine was asked not to start", "remove --dummy-fault start")
        self._loop = asyncio.get_running_loop()
        model = {"prefill_us": self.prefill_us, "slots": self.slots, "shortest_tokens": self.shortest_tokens}
        model |= {"noise": self.noise}
        options = {"ttft_ms": self.ttft_ms, "tpot_ms": self.tpot_ms, "lead_tokens": self.lead_tokens, **model}
        return EngineReport("dummy", configuration=options, limits=EngineLimits(queries=self.slots or None))

    async def begin(self, plan: "RunPlan") -> None:
        self.sampling = plan.sampling
        self._slots_free_s = []
        self._of_the_run = self._factor()

    def slowness(self) -> float:
        """Return the factor on the times of the next request."""
        return self._of_the_run * self._factor()

    def _factor(self) -> float:
        """Return a random factor on times; its median is 1."""
        return self._random.lognormvariate(0, self.noise) if self.noise else 1.0

    def response(self, prompt_ids: list[int], sampling: SamplingPolicy | None = None) -> list[int]:
        """Return the output for a prompt, at most max_tokens IDs."""
        sampling = sampling or self.sampling
        article = prompt_ids[self.lead_tokens :] or prompt_ids
        shortest = max(self.shortest_tokens, sampling.min_tokens)
        spread = max(1, sampling.max_tokens - shortest + 1)
        length = min(sampling.max_tokens, shortest + zlib.crc32(array("q", prompt_ids)) % spread)
        repeats = -(-length // len(article))
        return (article * repeats)[:length]

    def submit(self, request: Request) -> None:
        fault = self._fault_at.get(request.seq)
        if fault == "raise":
            raise RuntimeError(f"dummy fault: submit raised at query {request.seq}")
        if fault == "die":
            self._dead = True
        if self._dead or fault == "swallow":
            return
        if fault == "freeze":
            time.sleep(1e9)
        if fault == "fail":
            request.sink.failed(request, ExecutionError(f"dummy fault: query {request.seq} failed in the engine"))
            return
        ids = [] if fault == "empty" else self.response(request.prompt_ids, request.sampling(self.sampling))
        self._serve(request, ids)
        if fault == "twice":
            self._loop.call_later(self.ttft_ms / 1e3, self._finish, request, ids)

    def _serve(self, request: Request, ids: list[int]) -> None:
        """Schedule a request's first token and its completion."""
        prefill_s = self.ttft_ms / 1e3 + self.prefill_us / 1e6 * len(request.prompt_ids)
        factor = self.slowness()
        first_s, end_s = self._book(factor * prefill_s, factor * self.tpot_ms / 1e3 * max(0, len(ids) - 1))
        self._loop.call_at(first_s, self._first, request, ids, end_s)

    def _book(self, prefill_s: float, decode_s: float) -> tuple[float, float]:
        """Reserve the slot that becomes free first. Return the times of the first token and of the completion."""
        start_s = self._loop.time()
        if self.slots and len(self._slots_free_s) == self.slots:
            start_s = max(start_s, heapq.heappop(self._slots_free_s))
        first_s = start_s + prefill_s
        end_s = first_s + decode_s
        if self.slots:
            heapq.heappush(self._slots_free_s, end_s)
        return first_s, end_s

    def _first(self, request: Request, ids: list[int], end_s: float) -> None:
        if self._dead:
            return
        self._activity += 1
        self._generated_tokens += bool(ids)
        if ids:
            request.sink.first_token(request, ids[0])
        self._loop.call_at(end_s, self._finish, request, ids)

    def _finish(self, request: Request, ids: list[int]) -> None:
        if self._dead:
            return
        self._activity += 1
        self._generated_tokens += max(0, len(ids) - 1)
        reason = "length" if len(ids) == request.sampling(self.sampling).max_tokens else "stop"
        request.sink.complete(request, ids, reason, 0)

    def check_alive(self) -> None:
        if self._dead:
            raise ExecutionError("the dummy engine died (dummy fault)", "remove --dummy-fault die")

    def activity(self) -> int:
        return self._activity

    def generated_tokens(self) -> int:
        return self._generated_tokens

    async def stop(self) -> None:
        return None
