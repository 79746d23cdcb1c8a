"""A short look at an engine's speed before LoadGen starts, and the rate that follows from it.

Only for legs that nobody named a rate for: those of the embedded model and articles (scenarios/leg/trial.py).
"""

import asyncio
import time
from dataclasses import dataclass, field

from runs.benchmark import LatencyLimits
from runs.errors import SetupError
from runs.record.manifest import ChosenRate, RateChoice
from scenarios.leg.warmup import random_prompts
from sut.engine import Engine, Request

ALONE = 2  # prompts run one at a time
TOGETHER = 16  # and then so many at once


@dataclass
class _Answer:
    """When one request was sent and answered, by `time.perf_counter`, in seconds."""

    done: "asyncio.Future[None]"
    tokens: int = 0
    sent_s: float = field(default_factory=time.perf_counter)
    first_token_s: float = 0.0
    complete_s: float = 0.0

    def first_token(self, request: Request, token_id: int) -> None:
        self.first_token_s = time.perf_counter()

    def complete(self, request: Request, token_ids: list[int], finish_reason: str, cached_tokens: int) -> None:
        self.complete_s, self.tokens = time.perf_counter(), len(token_ids)
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, request: Request, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    @property
    def ttft_ms(self) -> float:
        return 1e3 * (self.first_token_s - self.sent_s)

    @property
    def tpot_ms(self) -> float:
        return 1e3 * (self.complete_s - self.first_token_s) / max(1, self.tokens - 1)


async def choose_rate(
    engine: Engine, choice: RateChoice, limits: LatencyLimits, prompts: list[list[int]], vocab_size: int | None
) -> ChosenRate:
    """Run a few prompts that are not in the data set, alone and together, and choose target_qps.

    Raises:
        SetupError: not even a query that has the engine for itself keeps the limits.
    """
    made = random_prompts(prompts, ALONE + TOGETHER, vocab_size)
    alone = [(await _answers(engine, [prompt]))[0] for prompt in made[:ALONE]]
    for name, unit, value_ms, limit_ms in (
        ("TTFT", "first token", min(answer.ttft_ms for answer in alone), limits.ttft_ms),
        ("TPOT", "output token", min(answer.tpot_ms for answer in alone), limits.tpot_ms),
    ):
        if value_ms > limit_ms:
            raise SetupError(
                f"no rate can be VALID on this machine as it is now: a query that has the engine for itself takes "
                f"{value_ms:.1f} ms for its {unit}, the {name} limit is {limit_ms} ms",
                "end what else keeps the machine busy, or run a scenario with wider limits (Server) or none (Offline)",
            )
    together = await _answers(engine, made[ALONE:])
    seconds = max(answer.complete_s for answer in together) - min(answer.sent_s for answer in together)
    speed = len(together) / seconds
    return ChosenRate(
        target_qps=round(min(choice.share * speed, choice.highest_qps), 4),
        samples_per_second=speed,
        share=choice.share,
        highest_qps=choice.highest_qps,
        prompts=len(together),
    )


async def _answers(engine: Engine, prompts: list[list[int]]) -> list[_Answer]:
    loop = asyncio.get_running_loop()
    answers = [_Answer(loop.create_future()) for _ in prompts]
    for answer, prompt in zip(answers, prompts, strict=True):
        engine.submit(Request(answer, prompt))
    await asyncio.gather(*(answer.done for answer in answers))
    return answers
