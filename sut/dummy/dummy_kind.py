"""The dummy engine as a kind of engine."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from runs.benchmark import SamplingPolicy
from runs.errors import InputError
from runs.files.fields import options_in
from sut.dummy.fault import Fault
from sut.engine_kind import EngineKind, EnginePlan, RunFacts

if TYPE_CHECKING:
    from runs.record.manifest import RunPlan
    from sut.dummy.dummy_engine import DummyEngine

LONGEST = 1e9  # ms or µs, for an option's maximum
SHORTEST_OUTPUT = 32
_dummy = options_in("dummy")


class DummyOptions(BaseModel):
    """Options of the dummy engine."""

    model_config = ConfigDict(defer_build=True)

    dummy_ttft_ms: float = _dummy(
        "Time to first token, in ms. Default: 2; 80 in an audit that compares rates.", "MS", 2.0, ge=0, le=LONGEST
    )
    dummy_tpot_ms: float = _dummy("Time per output token, in ms. Default: 0.05.", "MS", 0.05, ge=0, le=LONGEST)
    dummy_prefill_us: float = _dummy(
        "Time per prompt token, in µs, added to the time to first token. Default: 0.", "US", 0.0, ge=0, le=LONGEST
    )
    dummy_slots: int = _dummy(
        "Maximum number of requests that are computed concurrently; 0 = all. Default: 0; 1 in an audit that compares "
        "rates.",
        "N",
        0,
        ge=0,
    )
    dummy_shortest_tokens: int = _dummy(
        f"Shortest output, in tokens. The prompt decides the length. Default: {SHORTEST_OUTPUT}.",
        "N",
        SHORTEST_OUTPUT,
        ge=1,
    )
    dummy_noise: float = _dummy(
        "Random variation of the speed, per run and per request: relative standard deviation. Default: 0.",
        "SHARE",
        0.0,
        ge=0,
        le=0.5,
    )
    dummy_seed: int | None = _dummy(
        "Random seed of --dummy-noise. Default: a new seed at each start of the engine.", "N", ge=0
    )
    dummy_fault: list[str] = _dummy(
        "Inject a fault at query N. Repeatable. KIND is start, raise, fail, die, swallow, twice, empty or freeze.",
        "KIND[@N]",
        [],
    )


class DummyKind(EngineKind[DummyOptions]):
    """The engine without a model."""

    name = "dummy"
    help = "no model"
    options = DummyOptions
    own_model = "bytes"  # name of the tokenizer without files
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
        return DummyEngine(SamplingPolicy(**plan.sampling), **options)
