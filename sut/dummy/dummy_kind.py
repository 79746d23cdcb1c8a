"""The dummy engine as a kind of engine."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from runs.errors import InputError
from runs.files.fields import Amount, Count, strictly
from runs.record.engines.engine_records import EngineRecord
from sut.dummy.dummy_options import SHORTEST_OUTPUT, DummyOptions
from sut.dummy.fault import Fault
from sut.engine_kind import EngineKind, EnginePlan, RunFacts

if TYPE_CHECKING:
    from runs.record.manifest import RunPlan
    from sut.dummy.dummy_engine import DummyEngine


class DummyConfiguration(BaseModel):
    """The dummy engine's settings, and fields of tests."""

    model_config = strictly("allow")

    slots: Count
    prefill_us: Amount
    shortest_tokens: Count


class DummyKind(EngineKind[DummyOptions]):
    """The engine without a model."""

    name = "dummy"
    help = "no model"
    options = DummyOptions
    own_model = "bytes"  # name of the tokenizer without files
    record = EngineRecord(
        runs_model=False,
        computes_here=False,
        prints_configuration=False,
        may_preempt=False,
        batch_field="slots",
        configuration=DummyConfiguration,
        option_prefix="dummy_",
    )
    # Half of the bundled articles then take long enough to be measured.
    audit_pace: ClassVar[Mapping[str, Any]] = {"dummy_ttft_ms": 80.0, "dummy_slots": 1}

    def plan(self, dummy_options: DummyOptions, run: RunFacts) -> EnginePlan:
        for text in dummy_options.dummy_fault:
            Fault.parse(text)
        if dummy_options.dummy_shortest_tokens > max(SHORTEST_OUTPUT, run.sampling.max_tokens):
            most = run.sampling.max_tokens
            raise InputError(
                f"--dummy-shortest-tokens {dummy_options.dummy_shortest_tokens}: must be at most {most}, the limit "
                "of the benchmark",
                f"give 1 to {most}",
            )
        options = {
            "ttft_ms": dummy_options.dummy_ttft_ms,
            "tpot_ms": dummy_options.dummy_tpot_ms,
            "prefill_us": dummy_options.dummy_prefill_us,
            "slots": dummy_options.dummy_slots,
            "shortest_tokens": dummy_options.dummy_shortest_tokens,
            "noise": dummy_options.dummy_noise,
            "seed": dummy_options.dummy_seed,
            "faults": list(dummy_options.dummy_fault),
            "lead_tokens": run.lead_tokens,
        }
        return EnginePlan(options, unofficial_reasons=["the dummy engine runs no model"])

    def search_values(self, options: DummyOptions) -> dict[str, tuple[Any, ...]]:
        return {"admission": ("fcfs", "deadline", "shortest", "off"), "admission_tokens": (1024, 2048, 4096, 8192)}

    def make(self, plan: "RunPlan") -> "DummyEngine":
        from sut.dummy.dummy_engine import DummyEngine

        options = dict(plan.engine_options)
        options["faults"] = tuple(Fault.parse(fault) for fault in options["faults"])
        return DummyEngine(plan.sampling, **options)
