"""How much of prompts and answers a CPU engine computes in one step, where nothing else is asked for.

vLLM's own limits for a CPU do not look at the model: 2,048 tokens a step take a small model 20 ms and a larger one
seconds, for which everybody in the engine waits.
"""

from typing import Any

QUERIES = 256  # in the engine at a time, in every scenario; vLLM's servers have half of LLM.generate's on a CPU
FEWEST_TOKENS, MOST_TOKENS, UNIT = 512, 4096, 128
# What a step full of prompts may take: Server's limit for an output token, and a fifth of Interactive's for the first,
# which has to wait for the step under way and for the prompts before its own.
LONGEST_STEP_S = 0.1
MULTIPLY_ADDS_PER_S = 40e9  # of a core, in float32 with AVX2: a model of 9.5 M parameters takes 0.11 ms a token on two


def cpu_batch_limits(asked: dict[str, Any], *, parameters: int, cores: int) -> dict[str, int]:
    """`max_num_seqs` and `max_num_batched_tokens` for a scenario whose answers are streamed.

    Args:
        asked: engine options that are given.
        parameters: of the model.
        cores: of one copy.
    """
    in_time = int(LONGEST_STEP_S * cores * MULTIPLY_ADDS_PER_S / parameters)
    tokens = min(MOST_TOKENS, max(FEWEST_TOKENS, in_time // UNIT * UNIT))
    queries = asked.get("max_num_seqs", QUERIES)
    if isinstance(queries, int) and queries > tokens:
        tokens = queries  # a step has room for a token of each
    return {"max_num_seqs": QUERIES, "max_num_batched_tokens": tokens}
