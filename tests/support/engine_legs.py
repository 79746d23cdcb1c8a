"""Legs as an engine's plan sees them."""

from dataclasses import replace
from typing import Any

from sut.engine_kind import LegFacts
from tests.support.official import DATACENTER, SAMPLING

_SERVER = LegFacts(
    scenario="Server",
    sampling=SAMPLING,
    official_model=DATACENTER.model,
    admission="off",
    longest_prompt_tokens=20,
    lead_tokens=2,
    model_folder=None,
    parameters=400_000,
)


def leg_facts(**changes: Any) -> LegFacts:
    """Those of a Server leg of a small model, with changes."""
    return replace(_SERVER, **changes)
