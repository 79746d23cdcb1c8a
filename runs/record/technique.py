"""The names of a technique: mechanism and variant."""

from collections.abc import Mapping
from typing import Any

BASELINE = "baseline"
NO_VARIANT = "none"  # stands for a missing variant
# Declaration of a run without a technique.
NO_TECHNIQUE = {"mechanism": BASELINE, "mechanism_variant": NO_VARIANT}


def pair_of(declared: Mapping[str, Any]) -> tuple[str, str]:
    """Return mechanism and variant of a declaration or row."""
    return str(declared.get("mechanism") or BASELINE), str(declared.get("mechanism_variant") or NO_VARIANT)
