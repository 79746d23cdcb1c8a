"""Warming an engine up with prompts that are not in the data set.

The prompts have the data set's lengths, shortest to longest, and random ids, so that whatever the engine compiles or
allocates for these shapes is there before the clock starts. Nothing of a warm-up reaches LoadGen.
"""

import asyncio
import random
import time
from typing import Any

from runs.record.manifest import LegPlan
from sut.engine import Engine, Request

WARMUP_SEED = 20_240_101
LOWEST_ID = 10  # below lie the special ids of many vocabularies; any others are as good as text for a warm-up


class _WarmupSink:
    """Collects the end of each warm-up request in a future."""

    def __init__(self) -> None:
        self.futures: dict[int, asyncio.Future[int]] = {}

    def first_token(self, request: Request, token_id: int) -> None:
        """Nothing to report."""

    def complete(self, request: Request, token_ids: list[int], finish_reason: str, cached_tokens: int) -> None:
        if not (future := self.futures[id(request)]).done():
            future.set_result(len(token_ids))

    def failed(self, request: Request, error: BaseException) -> None:
        if not (future := self.futures[id(request)]).done():
            future.set_exception(error)


def random_prompts(prompts: list[list[int]], count: int, vocab_size: int | None) -> list[list[int]]:
    """Random prompts with lengths spread over those of the data set; none of them is in the data set."""
    chooser = random.Random(WARMUP_SEED)
    lengths = sorted(len(prompt) for prompt in prompts)
    picked = [lengths[round(i * (len(lengths) - 1) / max(1, count - 1))] for i in range(count)]
    vocab_size = vocab_size or 1 + max(max(prompt) for prompt in prompts)
    low = min(LOWEST_ID, vocab_size - 1)
    made = [[chooser.randrange(low, vocab_size) for _ in range(length)] for length in picked]
    # Only prompts of the same length can be equal; there are a few of each.
    return [prompt for prompt in made if not any(len(other) == len(prompt) and other == prompt for other in prompts)]


async def warm_up(engine: Engine, plan: LegPlan, vocab_size: int | None, prompts: list[list[int]]) -> dict[str, Any]:
    """Run the warm-up: one prompt alone, then all at once.

    Returns:
        Facts for the manifest: prompts, tokens, seconds.
    """
    started = time.monotonic()
    made = random_prompts(prompts, plan.warmup_prompts, vocab_size)
    tokens = 0
    for group in (made[:1], made[1:]):
        sink = _WarmupSink()
        requests = [Request(sink, prompt) for prompt in group]
        for request in requests:
            sink.futures[id(request)] = asyncio.get_running_loop().create_future()
            engine.submit(request)
        tokens += sum(await asyncio.gather(*sink.futures.values()))
    return {"prompts": len(made), "output_tokens": tokens, "seconds": round(time.monotonic() - started, 3)}
