"""The warm-up of an engine, with random prompts that are not in the dataset.

An engine that compiles kernels or captures graphs for new shapes does so here, before the timed run. It gets prompts of
the dataset's lengths for more than one step, and then batches of short queries that double up to its maximum. An engine
that compiles nothing (on a CPU) gets only a few prompts, because large batches take long there. LoadGen does not take
part in the warm-up.

In a trial, the last prompts measure the engine's speed with prompts of the dataset's lengths.
"""

import asyncio
import math
import random
from collections import defaultdict
from typing import Any

from runs.record.manifest import RunPlan
from scenarios.launch.trial import AT_A_TIME, Measured, at_a_time
from sut.engine import Engine, EngineLimits, EngineReport, OneResponse, Request

WARMUP_SEED = 20_240_101
LOWEST_ID = 10  # lowest token ID of a prompt; many vocabularies have special IDs below it
FULL_STEPS = 2  # engine steps that prompts of the dataset's lengths fill
SHORT_PROMPT_TOKENS = 8
# Maximum duration of a batch; it stops growing if its responses would take longer.
LONGEST_BATCH_S = 60.0
POLL_S = 0.001


class RequestGroup:
    """Concurrent requests in the engine, and their responses."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.responses: list[OneResponse] = []

    def submit(self, prompts: list[list[int]]) -> None:
        for prompt in prompts:
            response = OneResponse()
            self.responses.append(response)
            self._engine.submit(Request(response, prompt))

    async def end(self) -> int:
        """Wait for all responses; return their number of tokens."""
        await asyncio.gather(*(response.done for response in self.responses))
        return sum(len(response.ids) for response in self.responses)


def random_prompts(
    prompts: list[list[int]], count: int, vocab_size: int | None, seed: int = WARMUP_SEED
) -> list[list[int]]:
    """Return random prompts that are not in the dataset, with the lengths of its prompts (for one: the median)."""
    lengths = sorted(len(prompt) for prompt in prompts)
    last = len(lengths) - 1
    picked = [lengths[round(i * last / (count - 1)) if count > 1 else last // 2] for i in range(count)]
    return _unknown_prompts(prompts, picked, vocab_size, seed)


def _unknown_prompts(
    prompts: list[list[int]], lengths: list[int], vocab_size: int | None, seed: int = WARMUP_SEED
) -> list[list[int]]:
    """Return random prompts of these lengths that are not in the dataset."""
    chooser = random.Random(seed)
    vocab_size = vocab_size or 1 + max(max(prompt) for prompt in prompts)
    ids = range(min(LOWEST_ID, vocab_size - 1), vocab_size)
    by_length: dict[int, list[list[int]]] = defaultdict(list)
    for prompt in prompts:
        by_length[len(prompt)].append(prompt)
    made = (chooser.choices(ids, k=length) for length in lengths)
    return [prompt for prompt in made if prompt not in by_length[len(prompt)]]


def prompts_for_full_steps(prompts: list[list[int]], limits: EngineLimits) -> int:
    """Return the number of prompts of the dataset's lengths that fill `FULL_STEPS` steps."""
    mean_tokens = sum(map(len, prompts)) / len(prompts)
    return math.ceil(FULL_STEPS * (limits.step_tokens or 0) / mean_tokens)


async def warm_up(
    engine: Engine,
    plan: RunPlan,
    report: EngineReport,
    prompts: list[list[int]],
    *,
    longest_batch_s: float = LONGEST_BATCH_S,
) -> tuple[dict[str, Any], Measured | None]:
    """Run the warm-up: one prompt, then many prompts, then the largest batch, then the measurement of a trial.

    Args:
        longest_batch_s: Maximum duration of a batch, which limits its growth.

    Returns:
        Facts for the manifest (prompts, tokens, seconds, maximum of concurrent prompt tokens and queries), and the
        measurement of a trial.
    """
    clock = asyncio.get_running_loop().time
    started = clock()
    compiles = plan.compiles and not plan.is_warm
    count = 0 if plan.is_warm else plan.warmup_prompts
    if compiles:
        count = max(count, 1 + prompts_for_full_steps(prompts, report.limits))
    made = random_prompts(prompts, count, report.vocab_size)
    groups = [made[:1], made[1:]]
    if plan.trial and not plan.compiles:
        # The measured prompts warm up too. In SingleStream, the first query is slower than the others.
        groups = [made[:1]] if plan.scenario == "SingleStream" else []
    output_tokens = 0
    for group in groups:
        alike = RequestGroup(engine)
        alike.submit(group)
        output_tokens += await alike.end()
    if compiles and report.limits.queries:
        short = _unknown_prompts(prompts, [SHORT_PROMPT_TOKENS] * report.limits.queries, report.vocab_size)
        batch = RequestGroup(engine)
        groups.append(await _grow(engine, batch, short, longest_batch_s / plan.sampling.max_tokens))
        output_tokens += await batch.end()
    measured = None
    if plan.trial:
        count = min(at_a_time(plan.scenario), plan.concurrency or AT_A_TIME)
        groups.append(random_prompts(prompts, count, report.vocab_size, seed=WARMUP_SEED + 1))
        measured = await _measure(engine, groups[-1])
        output_tokens += measured.output_tokens
    facts = {
        "prompts": sum(map(len, groups)),
        "output_tokens": output_tokens,
        "prompt_tokens_at_once": max(sum(map(len, group)) for group in groups),
        "queries_at_once": max(map(len, groups)),
        "seconds": round(clock() - started, 3),
    }
    return facts, measured


async def _measure(engine: Engine, prompts: list[list[int]]) -> Measured:
    clock = asyncio.get_running_loop().time
    began = clock()
    group = RequestGroup(engine)
    group.submit(prompts)
    output_tokens = await group.end()
    return Measured(len(prompts), clock() - began, output_tokens)


async def _grow(
    engine: Engine, batch: RequestGroup, prompts: list[list[int]], longest_step_s: float
) -> list[list[int]]:
    """Double a batch after each engine step, so that the engine computes batches of every size.

    Returns:
        The submitted prompts: all prompts, or fewer if the engine is too slow.
    """
    clock = asyncio.get_running_loop().time
    handed_over = 0
    while handed_over < len(prompts):
        began, before = clock(), engine.activity()
        more = prompts[handed_over : 2 * handed_over or 1]
        batch.submit(more)
        handed_over += len(more)
        while engine.activity() == before and not any(response.done.done() for response in batch.responses):
            engine.check_alive()
            await asyncio.sleep(POLL_S)
        if clock() - began > longest_step_s:
            break
    return prompts[:handed_over]
