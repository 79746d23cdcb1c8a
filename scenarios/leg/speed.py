"""A short look at an engine's speed before LoadGen starts, and the rate that follows from it.

Only for legs that nobody named a rate for: those of the embedded model and articles (scenarios/leg/trial.py).
"""

from runs.benchmark import LatencyLimits
from runs.errors import SetupError
from runs.record.manifest import ChosenRate, RateChoice
from scenarios.leg.warmup import Answer, RequestGroup, random_prompts
from sut.engine import Engine

ALONE = 2  # prompts run one at a time
TOGETHER = 16  # and then so many at once


async def choose_rate(
    engine: Engine, choice: RateChoice, limits: LatencyLimits, prompts: list[list[int]], vocab_size: int | None
) -> ChosenRate:
    """Run a few prompts that are not in the data set, alone and together, and choose target_qps.

    Raises:
        SetupError: not even a query that has the engine for itself keeps the limits.
    """
    made = random_prompts(prompts, ALONE + TOGETHER, vocab_size)
    alone = [(await _answers(engine, [prompt]))[0] for prompt in made[:ALONE]]
    ttft_s = min(answer.first_token_s - answer.sent_s for answer in alone)
    tpot_s = min((answer.complete_s - answer.first_token_s) / max(1, answer.tokens - 1) for answer in alone)
    for name, unit, value_ms, limit_ms in (
        ("TTFT", "first token", 1e3 * ttft_s, limits.ttft_ms),
        ("TPOT", "output token", 1e3 * tpot_s, limits.tpot_ms),
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


async def _answers(engine: Engine, prompts: list[list[int]]) -> list[Answer]:
    group = RequestGroup(engine)
    group.submit(prompts)
    await group.end()
    return group.answers
