"""How many copies of the model, over how many devices each."""

import math
from typing import Any

from runs.errors import InputError

MOST_PARTS = 8  # the key-value heads of the official models divide by it


def parallel_size(options: dict[str, Any], name: str) -> int:
    """A parallel size among the engine options, 1 where it is not given.

    Raises:
        InputError: no whole number from 1.
    """
    value = options.get(name, 1)
    if type(value) is not int or value < 1:
        raise InputError(f"--engine-arg {name}={value}: not a whole number from 1", "give a whole number")
    return value


def tensor_parallel(devices: int) -> int:
    """The largest power of two of one copy's devices."""
    return min(MOST_PARTS, 1 << int(math.log2(max(1, devices))))
