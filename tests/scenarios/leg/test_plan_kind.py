"""A leg of a kind of engine that nobody knows: its plan, its words and its engine are all that a leg needs of it."""

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from runs.record.manifest import LegPlan
from scenarios.leg.config import make_config
from scenarios.leg.plan import prepare
from sut.dummy.engine import DummyEngine
from sut.engine_kind import EngineKind, EnginePlan, LegFacts
from tests.support.official import SAMPLING


class EchoOptions(BaseModel):
    """None of its own."""


class Echo(EngineKind[EchoOptions]):
    name = "echo"
    help = "says what it hears"
    options = EchoOptions
    own_model = "air"

    def plan(self, asked: EchoOptions, leg: LegFacts) -> EnginePlan:
        return EnginePlan(
            {"longest": leg.longest_prompt_tokens, "lead": leg.lead_tokens},
            {"ECHO": "1"},
            compiles=True,
            unofficial_reasons=["an echo runs no model"],
            notes=["the walls are far"],
        )

    def longest_sequence(self, asked: EchoOptions) -> int:
        return 1000

    def make(self, plan: LegPlan) -> DummyEngine:
        return DummyEngine(SAMPLING)


def test_a_leg_of_a_new_kind(make_dataset: Callable[..., Path]) -> None:
    config = make_config({"scenario": "Offline", "engine": "dummy", "dataset_path": make_dataset([1, 2, 3], [1, 4])})
    leg = prepare(config, lambda text: None, Echo())
    assert leg.plan.engine == "echo"
    assert leg.plan.model_path == "air"
    assert leg.plan.engine_options == {"longest": 3, "lead": 1}
    assert leg.plan.environment == {"ECHO": "1"}
    assert leg.plan.warmup_prompts > prepare(config, lambda text: None).plan.warmup_prompts  # it compiles
    assert leg.notes[0] == "the walls are far"
    assert leg.unofficial_reasons[0] == "an echo runs no model"
    assert leg.plan.engine_record.runs_model  # judges do not know it, and ask for the most
