"""How much of prompts and answers a CPU engine computes in one step, where nothing else is asked for.

vLLM's own limits for a CPU do not look at the model: 2,048 tokens a step take a small model 20 ms and a larger one
seconds, for which everybody in the engine waits.
"""

from typing import Any

from runs.benchmark import Scenario

QUERIES = 512  # in the engine at a time (vLLM's servers on a CPU: 128); with 256 a small model's wait for a place
FEWEST_TOKENS, UNIT = 512, 128
# A small model's step costs more than its multiplications: attention, and what is done once a query.
MOST_TOKENS: dict[Scenario, int] = {"Server": 2048, "Interactive": 1024}
# What a step full of prompts may take: the scenario's limit for an output token.
LONGEST_STEP_S: dict[Scenario, float] = {"Server": 0.1, "Interactive": 0.03}
MULTIPLY_ADDS_PER_S = 40e9  # of a core, in float32 with AVX2: a model of 9.5 M parameters takes 0.11 ms a token on two


def cpu_batch_limits(asked: dict[str, Any], scenario: Scenario, *, parameters: int, cores: int) -> dict[str, int]:
    """`max_num_seqs` and `max_num_batched_tokens` for a scenario whose answers are streamed.

    Args:
        asked: engine options that are given.
        scenario: Server or Interactive.
        parameters: of the model.
        cores: of one copy.
    """
    in_time = int(LONGEST_STEP_S[scenario] * cores * MULTIPLY_ADDS_PER_S / parameters)
    tokens = min(MOST_TOKENS[scenario], max(FEWEST_TOKENS, in_time // UNIT * UNIT))
    queries = asked.get("max_num_seqs", QUERIES)
    if isinstance(queries, int) and queries > tokens:
        tokens = queries  # a step has room for a token of each
    return {"max_num_seqs": QUERIES, "max_num_batched_tokens": tokens}
