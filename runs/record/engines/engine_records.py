"""The requirements of a run's manifest, by the kind of its engine.

Rules use this table instead of the run's manifest, which may be forged.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from runs.files.fields import Amount, AtLeastOne, Count, Text, strictly

DEFAULT_ENGINE = "vllm"


class VllmConfiguration(BaseModel):
    """vLLM's configuration in a running engine, with each requested option."""

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
    """Facts that servers report, and that their operator declares."""

    model_config = strictly("allow")

    dialect: Text
    connections: AtLeastOne
    enable_prefix_caching: bool  # value that the server reports; False if it reports none
    declared: dict[str, Any] | None
    told_by_the_server: Annotated[dict[str, Any], Field(min_length=1)]
    probes: Annotated[dict[str, Any], Field(min_length=1)]


class DummyConfiguration(BaseModel):
    """The dummy engine's settings, and fields of tests."""

    model_config = strictly("allow")

    slots: Count
    prefill_us: Amount
    shortest_tokens: Count


@dataclass(frozen=True)
class EngineRecord:
    """Requirements of a kind of engine. The defaults are the strictest values; they apply to unknown engines."""

    runs_model: bool = True
    computes_here: bool = True  # True if the engine computes the model on the machine in the manifest
    prints_configuration: bool = True  # True if the engine prints its configuration to engine.log, like vLLM
    may_preempt: bool = True  # True if more requests than the batch size may be between their first and last token
    batch_field: str = "max_num_seqs"  # field of engine.configuration: maximum concurrent requests per rank, 0 = all
    configuration: type[BaseModel] = VllmConfiguration  # schema of engine.configuration
    option_prefix: str = ""  # prefix of its options on the command line
    named_options: tuple[str, ...] = ()  # options of the command line with the engine's own names

    @property
    def is_server(self) -> bool:
        """True if the engine is the client of a server with the model."""
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
            "api_omit",
            "api_rename",
            "extra_body",
            "header",
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
    """Return the requirements of a kind of engine; the strictest for an unknown kind."""
    return ENGINE_RECORDS.get(kind, EngineRecord())
