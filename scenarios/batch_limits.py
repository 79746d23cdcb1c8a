"""How much of prompts and answers a CPU engine computes in one step, where nothing else is asked for.

vLLM's own limits for a CPU do not look at the model: 2,048 tokens a step take a small model 20 ms and a larger one
seconds, for which everybody in the engine waits.
"""

from typing import Any

QUERIES = 256  # in the engine at a time, in every scenario; vLLM's servers have half of LLM.generate's on a CPU
FEWEST_TOKENS, MOST_TOKENS = 512, 4096
# Of the TTFT limit that a step full of prompts may take: a query waits for the step under way and those before it.
SHARE_OF_TTFT = 0.2
MULTIPLY_ADDS_PER_S = 25e9  # of a core, in float32 with AVX2: about half of what two cores here come to


def cpu_batch_limits(asked: dict[str, Any], *, ttft_limit_ms: int, parameters: int, cores: int) -> dict[str, int]:
    """`max_num_seqs` and `max_num_batched_tokens` for a scenario with a TTFT limit.

    Args:
        asked: engine options that are given.
        ttft_limit_ms: the scenario's.
        parameters: of the model.
        cores: of one copy.
    """
    in_time = ttft_limit_ms / 1e3 * SHARE_OF_TTFT * cores * MULTIPLY_ADDS_PER_S / parameters
    tokens = FEWEST_TOKENS
    while tokens < MOST_TOKENS and 2 * tokens <= in_time:
        tokens *= 2
    queries = asked.get("max_num_seqs", QUERIES)
    if isinstance(queries, int) and queries > tokens:
        tokens = queries  # a step has room for a token of each
    return {"max_num_seqs": QUERIES, "max_num_batched_tokens": tokens}
