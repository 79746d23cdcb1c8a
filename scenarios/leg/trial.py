"""A trial: a Server or Interactive leg of the embedded model and articles for which nobody named a rate.

It is what `python main.py --scenario Server --vllm` runs on a machine that the harness knows nothing of. A rate written
down here would be too high for one machine and a waste of time on the next, so it is found after the warm-up, by a
short look at the engine's speed. Everything that is chosen is said, is on record, and makes the leg unofficial.
"""

from runs.benchmark import LOADGEN_SCENARIO, LatencyLimits
from runs.environment import usable_cores
from runs.errors import SetupError
from runs.loadgen.early_stopping import PERCENTILE, min_queries
from runs.record.manifest import ChosenRate, RateChoice
from scenarios.leg.config import RunConfig
from scenarios.leg.warmup import RequestGroup, random_prompts
from sut.engine import Engine, OneAnswer
from sut.engines import engine_kind

# Every query of a leg this short has to keep the limits, so the rate stays far from what the engine can do at most.
SHARE = 0.2
SHORTEST_S = 60
QUERIES = min_queries(late=0, percentile=PERCENTILE["Server"])  # 459: the fewest that early stopping takes
HIGHEST_QPS = QUERIES / SHORTEST_S

# On a CPU, whole articles and answers would not be done within ten minutes: 380 tokens a prompt take 0.65 s on two
# cores, and none of 459 queries may wait for 2 s. Where some come together, each prompt keeps the others from their
# next token: with 90 tokens a prompt and 1.2 queries/s, 7 of 459 answers were beyond 100 ms a token.
OPENING_WORDS = 15
ANSWER_TOKENS = 16
ARTICLES = QUERIES // 9  # LoadGen issues every sample equally often: 9 x 51 queries, and not 8 x 64

WHY_UNOFFICIAL = "the harness chose target_qps for this machine"

ALONE = 2  # prompts of the short look that run one at a time
TOGETHER = 16  # and then so many at once


def is_trial(config: RunConfig) -> bool:
    """Whether the harness is to choose the rate."""
    return (
        LOADGEN_SCENARIO[config.scenario] == "Server"
        and not config.accuracy
        and config.target_qps is None
        and (config.dataset_path or config.user_conf or config.audit_conf) is None
    )


def is_cut(config: RunConfig) -> bool:
    """Whether a trial takes the openings of the articles only."""
    return config.total_sample_count is None and engine_kind(config.engine).computes_on_cpu()


def spared_core(config: RunConfig) -> dict[str, str]:
    """OpenMP's variables with which a cut trial leaves a core to whatever else runs on the machine.

    The threads of a step wait for each other: with one on every core, a second program slows all of them down. While
    one kept a core busy for 3 s of every 20, a leg on two cores had a p99 TPOT of 220 ms, and of 57 ms with a thread
    less, which lengthens no token of a lone query.
    """
    cores = len(usable_cores())
    if cores == 1 or not (is_trial(config) and is_cut(config)):
        return {}
    return {"OMP_NUM_THREADS": str(cores - 1), "OMP_PROC_BIND": "false"}


def rate_choice() -> RateChoice:
    """How the rate is to be chosen."""
    return RateChoice(share=SHARE, highest_qps=HIGHEST_QPS)


def notes(*, cut: bool) -> list[str]:
    """What a person is told at the start."""
    said = [
        f"target_qps is chosen after the warm-up, as {SHARE} of the engine's speed then; "
        f"{QUERIES} queries are the fewest that early stopping takes (--target-qps or --user-conf names a rate)"
    ]
    if cut:
        said.append(
            f"on a CPU this trial takes the first {OPENING_WORDS} words of {ARTICLES} articles and answers of at most "
            f"{ANSWER_TOKENS} tokens, to be done in ten minutes, and leaves a core to other programs"
        )
    return said


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
    tpot_s = min((answer.complete_s - answer.first_token_s) / max(1, len(answer.ids) - 1) for answer in alone)
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


async def _answers(engine: Engine, prompts: list[list[int]]) -> list[OneAnswer]:
    group = RequestGroup(engine)
    group.submit(prompts)
    await group.end()
    return group.answers
