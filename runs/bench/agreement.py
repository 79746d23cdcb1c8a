"""Equality of a stated number and a computed number, and their text."""

import math
from typing import Any

ROUNDING = 1e-9  # relative difference of two equal numbers


def agree(stated: Any, computed: Any) -> bool:
    if isinstance(stated, float) and isinstance(computed, int | float):
        return math.isclose(stated, computed, rel_tol=ROUNDING)
    return bool(stated == computed)


def shown(value: Any) -> str:
    return "not stated" if value is None else f"{value:,.6g}" if isinstance(value, float) else str(value)
