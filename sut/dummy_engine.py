"""A deterministic engine without a model, for logic and faults; the path from and to LoadGen is the real one.

Its answer to a prompt is a stretch of the prompt itself behind the words that all prompts share (the lead of the
article), of a length that depends on the prompt. Time is modelled as time to first token plus a constant time per
output token, without a limit on concurrency.
"""

import asyncio
import time
import zlib
from array import array
from dataclasses import dataclass
from typing import Literal, get_args

from runs.errors import ExecutionError, InputError, SetupError
from sut.engine import EngineReport, Request, SamplingPolicy

FaultKind = Literal["start", "raise", "fail", "die", "swallow", "twice", "empty", "freeze"]
FAULT_KINDS: dict[FaultKind, str] = {
    "start": "the engine does not come up",
    "raise": "submit raises at query N",
    "fail": "query N ends with an error",
    "die": "the engine is dead from query N on",
    "swallow": "query N is never answered",
    "twice": "query N is answered twice",
    "empty": "query N is answered with no tokens",
    "freeze": "the event loop blocks for ever at query N",
}
SHORTEST_OUTPUT = 32


@dataclass(frozen=True)
class Fault:
    """One fault on purpose, at the N-th timed query (from 0)."""

    kind: FaultKind
    at: int = 0

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Read `KIND` or `KIND@N`.

        Raises:
            InputError: another kind, or N is not a whole number.
        """
        kind, _, at = text.partition("@")
        if kind not in get_args(FaultKind):
            raise InputError(
                f"--dummy-fault {text}: unknown kind {kind!r}",
                f"use one of {', '.join(FAULT_KINDS)}, as KIND@N",
            )
        if at and not at.isdecimal():
            raise InputError(
                f"--dummy-fault {text}: {at!r} is not a whole number", "write KIND@N, for example swallow@10"
            )
        return cls(kind, int(at or 0))  # type: ignore[arg-type]  # membership was checked above


class DummyEngine:
    """See the module. `lead_tokens` are skipped at the start of each prompt."""

    def __init__(
        self,
        sampling: SamplingPolicy,
        *,
        lead_tokens: int = 0,
        ttft_ms: float = 2.0,
        tpot_ms: float = 0.05,
        faults: tuple[Fault, ...] = (),
    ) -> None:
        self._sampling = sampling
        self._lead_tokens = lead_tokens
        self._ttft_s = ttft_ms / 1e3
        self._tpot_s = tpot_ms / 1e3
        self._fault_at = {fault.at: fault.kind for fault in faults if fault.kind != "start"}
        self._start_fails = any(fault.kind == "start" for fault in faults)
        self._dead = False
        self._activity = 0

    async def start(self) -> EngineReport:
        if self._start_fails:
            raise SetupError("the dummy engine was asked not to start", "leave out --dummy-fault start")
        self._loop = asyncio.get_running_loop()
        options = {
            "ttft_ms": self._ttft_s * 1e3,
            "tpot_ms": self._tpot_s * 1e3,
            "lead_tokens": self._lead_tokens,
        }
        return EngineReport("dummy", asked=dict(options), in_force=options)

    def answer(self, prompt_ids: list[int]) -> list[int]:
        """The whole output for a prompt, max_tokens ids at most."""
        article = prompt_ids[self._lead_tokens :] or prompt_ids
        spread = max(1, self._sampling.max_tokens - SHORTEST_OUTPUT + 1)
        length = min(self._sampling.max_tokens, SHORTEST_OUTPUT + zlib.crc32(array("q", prompt_ids)) % spread)
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
        ids = [] if fault == "empty" else self.answer(request.prompt_ids)
        self._loop.call_later(self._ttft_s, self._first, request, ids)
        if fault == "twice":
            self._loop.call_later(self._ttft_s, self._finish, request, ids)

    def _first(self, request: Request, ids: list[int]) -> None:
        if self._dead:
            return
        self._activity += 1
        if ids:
            request.sink.first_token(request, ids[0])
        self._loop.call_later(self._tpot_s * max(0, len(ids) - 1), self._finish, request, ids)

    def _finish(self, request: Request, ids: list[int]) -> None:
        if self._dead:
            return
        self._activity += 1
        reason = "length" if len(ids) == self._sampling.max_tokens else "stop"
        request.sink.complete(request, ids, reason, 0)

    def check_alive(self) -> None:
        if self._dead:
            raise ExecutionError("the dummy engine died (dummy fault)")

    def activity(self) -> int:
        return self._activity

    async def stop(self) -> None:
        return None
