"""The echo engine as a kind of engine: its options, its record and its plan."""

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from runs.files.fields import Amount, Count, options_in, strictly
from runs.record.engines.engine_records import EngineRecord
from sut.engine_kind import EngineKind, EnginePlan, RunFacts

if TYPE_CHECKING:
    from mlperf_echo.echo_engine import EchoEngine
    from runs.record.manifest import RunPlan

_echo = options_in("echo", "Echo engine")


class EchoOptions(BaseModel):
    """The options of the command line and of YAML files. Their names begin with the name of the engine."""

    model_config = ConfigDict(defer_build=True)

    echo_delay_ms: float = _echo("Time to first token, and from there to the end, in ms. Default: 2.", "MS", 2.0, ge=0)


class EchoConfiguration(BaseModel):
    """The fields that the manifest of a finished run must have in `engine.configuration`."""

    model_config = strictly("allow")

    delay_ms: Amount
    slots: Count


class EchoKind(EngineKind[EchoOptions]):
    name = "echo"
    help = "repeats the prompt"
    options = EchoOptions
    own_model = "bytes"  # name of the tokenizer without files
    record = EngineRecord(
        runs_model=False,
        computes_here=False,
        prints_configuration=False,
        batch_field="slots",
        configuration=EchoConfiguration,
        option_prefix="echo_",
    )

    def plan(self, options: EchoOptions, run: RunFacts) -> EnginePlan:
        return EnginePlan({"delay_ms": options.echo_delay_ms}, unofficial_reasons=["the echo engine runs no model"])

    def make(self, plan: "RunPlan") -> "EchoEngine":
        from mlperf_echo.echo_engine import EchoEngine

        return EchoEngine(plan.sampling, **plan.engine_options)
