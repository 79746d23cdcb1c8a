"""What the record of a leg must hold by the kind of its engine.

A judge knows engines by this table alone: what is told of an engine by the leg's own record could be told by a forger.
"""

from dataclasses import dataclass

DEFAULT_ENGINE = "vllm"
# Distributions that no leg runs without, of those whose versions are on record.
_OF_EVERY_LEG = ("python", "mlcommons-loadgen", "numpy", "pydantic", "orjson", "rouge-score", "nltk")


@dataclass(frozen=True)
class EngineRecord:
    """What a kind of engine leaves behind. The defaults ask for the most: they hold for a name that is not known."""

    runs_model: bool = True
    computes_here: bool = True  # the model, on the machine of the record
    prints_configuration: bool = True  # into engine.log, in vLLM's form
    may_preempt: bool = True  # so that more requests than its batch holds may be between first and last token
    batch_field: str = "max_num_seqs"  # of engine.configuration: requests that one copy computes at a time, 0 = all
    shows_in_force: bool = True  # of each option that was asked for, in engine.in_force, but these:
    hidden_options: tuple[str, ...] = ()
    # What engine.configuration must hold.
    configuration: tuple[str, ...] = (
        "dtype", "quantization", "kv_cache_dtype", "enable_prefix_caching", "speculative", "max_model_len",
        "enforce_eager", "max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill", "async_scheduling",
        "tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size", "device", "environment",
    )  # fmt: skip
    software: tuple[str, ...] = (*_OF_EVERY_LEG, "torch", "transformers", "tokenizers")  # whose versions are on record
    variable_prefix: str = "VLLM_"  # of the variables that engine.configuration tells
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
        variable_prefix="",
        shows_in_force=False,
        configuration=("connections",),
        software=_OF_EVERY_LEG,
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
        variable_prefix="",
        configuration=("slots", "prefill_us", "shortest_tokens"),
        hidden_options=("faults", "cheats"),
        software=_OF_EVERY_LEG,
        option_prefix="dummy_",
    ),
}


def engine_record(kind: str) -> EngineRecord:
    """Of a kind of engine by its name; of an unknown one the record that asks for the most."""
    return ENGINE_RECORDS.get(kind, EngineRecord())
