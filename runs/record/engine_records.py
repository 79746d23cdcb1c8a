"""What the record of a leg must hold by the kind of its engine.

A judge knows engines by this table alone: what is told of an engine by the leg's own record could be told by a forger.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from runs.fields import Amount, AtLeastOne, Count, Text, strictly

DEFAULT_ENGINE = "vllm"


class VllmConfiguration(BaseModel):
    """As vLLM's own configuration has it, once the engine runs; with each option that was given."""

    model_config = strictly("allow")

    dtype: Text
    quantization: Text | None
    kv_cache_dtype: Text
    enable_prefix_caching: bool
    speculative: bool
    max_model_len: AtLeastOne
    enforce_eager: bool
    max_num_seqs: AtLeastOne
    max_num_batched_tokens: AtLeastOne
    enable_chunked_prefill: bool | None
    async_scheduling: bool | None
    tensor_parallel_size: AtLeastOne
    data_parallel_size: AtLeastOne
    pipeline_parallel_size: AtLeastOne
    device: Text | None
    environment: dict[str, str]


class ServersConfiguration(BaseModel):
    """What servers told of themselves, and what their operator declares."""

    model_config = strictly("allow")

    dialect: Text
    connections: AtLeastOne
    enable_prefix_caching: bool  # told by the server; False where it does not tell
    declared: dict[str, Any] | None
    told_by_the_server: Annotated[dict[str, Any], Field(min_length=1)]
    probes: Annotated[dict[str, Any], Field(min_length=1)]


class DummyConfiguration(BaseModel):
    """What the dummy engine computes with, beside what a test makes it say."""

    model_config = strictly("allow")

    slots: Count
    prefill_us: Amount
    shortest_tokens: Count


@dataclass(frozen=True)
class EngineRecord:
    """What a kind of engine leaves behind. The defaults ask for the most: they hold for a name that is not known."""

    runs_model: bool = True
    computes_here: bool = True  # the model, on the machine of the record
    prints_configuration: bool = True  # into engine.log, in vLLM's form
    may_preempt: bool = True  # so that more requests than its batch holds may be between first and last token
    batch_field: str = "max_num_seqs"  # of engine.configuration: requests that one copy computes at a time, 0 = all
    configuration: type[BaseModel] = VllmConfiguration  # the form of engine.configuration
    option_prefix: str = ""  # of the command line's names of its options, which the engine's own names lack
    named_options: tuple[str, ...] = ()  # options of the command line that go by the engine's own names

    @property
    def is_server(self) -> bool:
        """Whether the model runs elsewhere, and this is its client."""
        return self.runs_model and not self.computes_here


ENGINE_RECORDS: dict[str, EngineRecord] = {
    "vllm": EngineRecord(named_options=("dtype", "tensor_parallel_size")),
    "endpoint": EngineRecord(
        computes_here=False,
        prints_configuration=False,
        batch_field="connections",
        configuration=ServersConfiguration,
        named_options=(
            "api_server",
            "api_model_name",
            "api_dialect",
            "api_key_env",
            "api_connections",
            "serve",
        ),
    ),
    "dummy": EngineRecord(
        runs_model=False,
        computes_here=False,
        prints_configuration=False,
        may_preempt=False,
        batch_field="slots",
        configuration=DummyConfiguration,
        option_prefix="dummy_",
    ),
}


def engine_record(kind: str) -> EngineRecord:
    """Of a kind of engine by its name; of an unknown one the record that asks for the most."""
    return ENGINE_RECORDS.get(kind, EngineRecord())
