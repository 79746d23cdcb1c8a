"""The assignment of queries to systems in an interleaved run.

LoadGen's queries form groups in the order of issue, with one query for each system. All queries of a group have the
same prompt. A seeded draw assigns them to the systems, so each query has its twins within moments.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_BLOCK = 4096  # groups whose assignment is drawn at once


def system_of(seed: int, systems: int, seq: int) -> int:
    """Return the system of a query.

    Args:
        seq: Number of the query in the order of issue, from 0.
    """
    group, place = divmod(seq, systems)
    block, row = divmod(group, _BLOCK)
    return int(_assigned(seed, systems, block)[row, place])


def assignment(seed: int, systems: int, queries: int) -> NDArray[np.int64]:
    """Return the system of each query, in the order of issue."""
    groups = -(-queries // systems)
    blocks = [_assigned(seed, systems, block) for block in range(-(-groups // _BLOCK))]
    return np.concatenate(blocks).reshape(-1)[:queries]


@lru_cache(maxsize=64)
def _assigned(seed: int, systems: int, block: int) -> NDArray[np.int64]:
    generator = np.random.default_rng([seed, block])
    rows = np.tile(np.arange(systems, dtype=np.int64), (_BLOCK, 1))
    return generator.permuted(rows, axis=1)
