"""The requirements of a run's manifest, by the kind of its engine.

The code of each kind declares them (`EngineKind.record` in sut/engine_kind.py). Rules use this declaration instead of
the run's manifest, which may be forged.
"""

from dataclasses import dataclass
from functools import cache

from pydantic import BaseModel

from runs.errors import SetupError
from runs.extensions import ENGINE_GROUP, find_extension, load_object
from runs.files.fields import AtLeastOne, Text, strictly

# The engines of the harness: name → class of the kind. A new engine is a package in sut/ and a line here. `sut` imports
# this package, so the classes are imported by name, and each only when it is needed.
BUILT_IN_ENGINES = {
    "vllm": "sut.vllm.vllm_kind:VllmKind",
    "endpoint": "sut.http.http_kind:EndpointKind",
    "dummy": "sut.dummy.dummy_kind:DummyKind",
}
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


@cache
def engine_record(name: str) -> EngineRecord:
    """Return the requirements of a kind of engine; the strictest for an unknown or unusable kind."""
    try:
        target = BUILT_IN_ENGINES.get(name)
        kind = load_object(target) if target is not None else find_extension(ENGINE_GROUP, name).load()
    except SetupError:
        kind = None
    record = getattr(kind, "record", None)
    return record if isinstance(record, EngineRecord) else EngineRecord()
