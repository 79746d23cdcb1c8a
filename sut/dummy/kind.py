"""The dummy engine as a kind of engine."""

import math
from typing import Any

from pydantic import BaseModel

from runs.benchmark import SamplingPolicy
from runs.benchmarks import BENCHMARKS
from runs.errors import InputError, SetupError
from runs.option_field import option_field
from runs.record.manifest import LegPlan
from sut.dummy.cheats import CHEAT_KINDS, CheatContext, OvercountingSut, make_cheats, parse_cheat
from sut.dummy.engine import SHORTEST_OUTPUT, Cheat, DummyEngine, Fault
from sut.engine_kind import EngineKind, EnginePlan, LegFacts, TextFacts
from sut.loadgen_sut import LoadgenSut

LONGEST = 1e9  # ms, or µs: days


class DummyOptions(BaseModel):
    """What a user may ask of the dummy engine."""

    dummy_ttft_ms: float = option_field(2.0, "Time to first token.", "dummy", "MS", ge=0, le=LONGEST)
    dummy_tpot_ms: float = option_field(0.05, "Time per output token.", "dummy", "MS", ge=0, le=LONGEST)
    dummy_prefill_us: float = option_field(
        0.0, "Time per prompt token, added to the time to first token.", "dummy", "US", ge=0, le=LONGEST
    )
    dummy_slots: int = option_field(0, "Requests computed at a time; 0 = all of them.", "dummy", "N", ge=0)
    dummy_shortest_tokens: int = option_field(
        SHORTEST_OUTPUT, "Shortest output; its length depends on the prompt.", "dummy", "N", ge=1
    )
    dummy_fault: list[str] = option_field(
        [],
        "One fault on purpose at query N (start, raise, fail, die, swallow, twice, empty, freeze).",
        "dummy",
        "KIND[@N]",
    )
    dummy_cheat: list[str] = option_field(
        [], f"Cheat on purpose; repeatable (docs/red-team.md): {', '.join(CHEAT_KINDS)}.", "dummy", "KIND"
    )


class DummyKind(EngineKind[DummyOptions]):
    """The engine without a model."""

    name = "dummy"
    help = "no model"
    options = DummyOptions
    own_model = "bytes"  # the tokenizer without files

    def plan(self, asked: DummyOptions, leg: LegFacts) -> EnginePlan:
        for text in asked.dummy_fault:
            Fault.parse(text)
        if asked.dummy_shortest_tokens > max(SHORTEST_OUTPUT, leg.sampling.max_tokens):
            most = leg.sampling.max_tokens
            raise InputError(
                f"--dummy-shortest-tokens {asked.dummy_shortest_tokens}: an output has {most} at most",
                f"give 1 to {most}",
            )
        if asked.dummy_cheat and leg.model_folder is not None:
            raise InputError("--dummy-cheat needs the dummy engine with its own tokenizer", "leave --model-path out")
        options = {
            "ttft_ms": asked.dummy_ttft_ms,
            "tpot_ms": asked.dummy_tpot_ms,
            "prefill_us": asked.dummy_prefill_us,
            "slots": asked.dummy_slots,
            "shortest_tokens": asked.dummy_shortest_tokens,
            "faults": list(asked.dummy_fault),
            "cheats": [parse_cheat(text) for text in asked.dummy_cheat],
            "lead_tokens": leg.lead_tokens,
        }
        return EnginePlan(options, unofficial_reasons=["the dummy engine runs no model"])

    def search_values(self, asked: DummyOptions) -> dict[str, tuple[Any, ...]]:
        return {
            "admission": ("fcfs", "deadline", "shortest", "off"),
            "admission_tokens": (1024, 2048, 4096, 8192),
        }

    def make(self, plan: LegPlan, text: TextFacts | None = None) -> DummyEngine:
        options = dict(plan.engine_options)
        sampling = SamplingPolicy(**plan.sampling)
        options["faults"] = tuple(Fault.parse(fault) for fault in options["faults"])
        options["cheats"] = _cheats(plan, sampling, text) if options["cheats"] else ()
        return DummyEngine(sampling, **options)

    def sut_class(self, plan: LegPlan) -> type[LoadgenSut]:
        """Another one only where it is asked to miscount."""
        return OvercountingSut if "overcount" in plan.engine_options["cheats"] else LoadgenSut


def _cheats(plan: LegPlan, sampling: SamplingPolicy, text: TextFacts | None) -> tuple[Cheat, ...]:
    if text is None:
        raise SetupError("the dummy engine cheats in the leg's own process only", "leave --dummy-cheat out")
    kinds = plan.engine_options["cheats"]
    references = text.references() if "reference" in kinds else []
    limits = BENCHMARKS[plan.loadgen_key].limits
    context = CheatContext(
        plan.mode == "performance",
        text.bos_id,
        text.eos_id,
        text.space_id,
        sampling.max_tokens,
        references,
        ttft_limit_s=limits.ttft_ms / 1e3 if limits else math.inf,
    )
    return make_cheats(kinds, context)
