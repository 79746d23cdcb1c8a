"""What the manifest of a finished leg holds: every part with all of its fields, of their types, finite, and no others.

A field that is left out must not switch off the check that reads it, so a finished leg's manifest is held against
these forms when it is written and whenever it is read (`runs.record.manifest`). What is another's to name (options of
an engine, LoadGen's settings) is a mapping; its values are JSON.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from runs.accelerators import FACTS
from runs.errors import ExitCode
from runs.record.layout import LOADGEN_LOGS
from runs.record.observed import LoopLag, query_times_of

HASHED = (*LOADGEN_LOGS, "requests.jsonl")
_SOMETIMES = {"visible_by", "untold", "host"}  # of an accelerator: why it was chosen or not known; its cluster node


def _is_accelerator(row: dict[str, str | None]) -> dict[str, str | None]:
    wrong = {"vendor", *FACTS} ^ (row.keys() - _SOMETIMES)
    if wrong:
        raise ValueError(f"{', '.join(sorted(wrong))}: absent, or no fact of an accelerator")
    return row


def _has_whole_times(seen: dict[str, Any]) -> dict[str, Any]:
    query_times_of(seen)
    return seen


def _are_hashed(log_sha256: dict[str, str]) -> dict[str, str]:
    if absent := [name for name in HASHED if name not in log_sha256]:
        raise ValueError(f"lacks {', '.join(absent)}")
    return log_sha256


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, Field(pattern=r"\S")]
Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Pid = Annotated[int, Field(ge=1, lt=2**31)]
Nanoseconds = Annotated[int, Field(ge=0, lt=2**62)]  # since 1970, to the year 2116
Amount = Annotated[FiniteFloat, Field(ge=0)]
Seconds = Amount
Versions = dict[str, Text]
OurExitCode = Annotated[int, AfterValidator(lambda code: int(ExitCode(code)))]
Accelerator = Annotated[dict[str, str | None], AfterValidator(_is_accelerator)]


def strictly(extra: Literal["forbid", "allow"] = "forbid") -> ConfigDict:
    """How parts of a finished leg's record are read."""
    return ConfigDict(extra=extra, frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())


class _Part(BaseModel):
    model_config = strictly()


class SamplingPart(_Part):
    temperature: FiniteFloat
    top_p: FiniteFloat
    top_k: int
    seed: int
    min_tokens: Count
    max_tokens: AtLeastOne


class HarnessPart(_Part):
    version: Text
    # git_commit, git_changed: both None outside of a checkout
    git_commit: Annotated[str, Field(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")] | None
    git_changed: bool | None


class LoadgenPart(_Part):
    version: Text
    extension: Text
    extension_sha256: Sha256


class HostPart(_Part):
    hostname: Text
    boot_id: Text | None
    system: Text
    cpu: str
    cores_usable: AtLeastOne
    cores_logical: AtLeastOne | None
    memory_bytes: AtLeastOne


class DatasetPart(_Part):
    path: Text
    sha256: Sha256
    rows_used: AtLeastOne
    longest_prompt_tokens: AtLeastOne


class WeightsPart(_Part):
    """What the files of a model's weights say of themselves (`qsl.weights` reads them)."""

    # files, tensors: of the safetensors files
    files: Count
    tensors: Count
    parameters: Count  # numbers in the weights, packed ones counted each, scales left out
    dtypes: dict[str, Count]  # numbers by the type that the headers have for them: BF16, F8_E4M3, U8, …
    precision: Text  # of most numbers: bfloat16, float16, float32; or how they are quantised: fp8_w8a8, int4_w4a16, …
    quantized: bool  # whether any weight is held in fewer bits, or the model's configuration says so
    sparse: bool  # whether the configuration says that weights were left out
    shape: dict[str, int | None]  # keys of config.json that tell a model from others
    headers_sha256: Sha256  # of all names, types and shapes


class ModelPart(_Part):
    name: Text
    folder: Text | None
    revision: Text | None
    sha256: dict[Text, Sha256]
    weights: WeightsPart | None  # None: an engine without a model, or a server's


class WarmUpPart(_Part):
    prompts: Count
    output_tokens: Count
    # prompt_tokens_at_once, queries_at_once: the most that were in the engine at a time
    prompt_tokens_at_once: Count
    queries_at_once: Count
    seconds: Seconds


class EnginePart(_Part):
    name: Text
    versions: Versions
    asked: dict[str, Any]
    in_force: dict[str, Any]
    configuration: dict[str, Any]
    prefix_caching: bool
    warm_up: WarmUpPart


class LoadgenSettingsPart(_Part):
    """Those that checks read; what other settings there are, LoadGen's version decides."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, bool | int | FiniteFloat | str]

    mode: Text
    scenario: Text
    min_duration_ms: Count
    min_query_count: Count
    max_duration_ms: Count
    max_query_count: Count
    performance_sample_count_override: Count
    qsl_rng_seed: Count
    sample_index_rng_seed: Count
    schedule_rng_seed: Count
    ttft_latency: Count
    tpot_latency: Count
    server_target_qps: FiniteFloat
    offline_expected_qps: FiniteFloat
    use_token_latencies: bool
    infer_token_latencies: bool
    test05: bool


class NotRecordedPart(_Part):
    not_recorded: Text


class ContentionPart(_Part):
    """The fields of `runs.record.observed.Contention`; the sign-off says what a null among them means."""

    window_s: Seconds | None
    usable_cores: AtLeastOne | None
    busy_cpu_s: Seconds | None
    stolen_cpu_s: Seconds | None
    own_cpu_s: Seconds | None
    foreign_cpu_s: Seconds | None
    load_average_start: Seconds | None
    load_average_end: Seconds | None


class ObservedPart(_Part):
    samples_issued: AtLeastOne
    samples_completed: AtLeastOne
    cached_prompt_tokens: Count
    contention: ContentionPart | NotRecordedPart
    loop_lag: LoopLag
    start_stages: dict[str, Seconds]
    # What it saw of itself, where its kind looks.
    engine: Annotated[dict[str, Any], AfterValidator(_has_whole_times)] | None
    rejected_connections: Count | None  # of a leg with replicas
    log_sha256: Annotated[dict[str, Sha256], AfterValidator(_are_hashed)]

    @model_validator(mode="after")
    def _all_answered(self) -> Self:
        if self.samples_completed != self.samples_issued:
            raise ValueError(f"{self.samples_issued} samples were issued, {self.samples_completed} completed")
        return self


class _ServerClientPart(_Part):
    """What the client of a server saw."""

    model_config = ConfigDict(extra="allow")

    server: Text
    on_this_machine: bool
    counts_reuse: bool
    answers: Count
    tokens: Count
    cached_tokens: Count
    answers_with_cached_count: Count
    answers_with_their_prompt: Count
    answers_with_their_id: Count
    answers_read_at_once: Count
    answers_in_one_chunk: Count
    first_tokens_with_others: Count
    cached_tokens_by_metrics: Count | None
    tokens_by_metrics: Count | None
    tokens_that_came: Count


def servers_are_whole(observed: ObservedPart) -> None:
    """Hold what the clients of a finished leg's servers saw against its form.

    Raises:
        ValidationError: a field is absent or of another type.
    """
    seen = observed.engine or {}
    for client in seen.get("replicas") or [seen]:
        _ServerClientPart.model_validate(client)


class ReplicaPart(_Part):
    replica: Count
    host: Text
    pid: AtLeastOne
    devices: list[str]
    cores: list[int]
    start_s: Seconds
    software: Versions
    weights_sha256: dict[Text, Sha256]
    versions: Versions
    in_force: dict[str, Any]
    environment: dict[str, str]
    queries: Count
    cached_prompt_tokens: Count
    cpu_s: Seconds
    output_tokens: Count
    ttft_p99_ms: FiniteFloat | None
    tpot_p99_ms: FiniteFloat | None


class FinishedParts(_Part):
    """The parts of a finished leg's manifest that are free-form while the leg runs."""

    official: bool
    unofficial_reasons: list[Text]
    notes: Annotated[list[Text], Field(min_length=1)]  # the first: where LoadGen's settings are from
    harness: HarnessPart
    software: Annotated[Versions, Field(min_length=1)]
    loadgen: LoadgenPart
    host: HostPart
    accelerator: list[Accelerator]
    model: ModelPart
    dataset: DatasetPart
    loadgen_settings: LoadgenSettingsPart
    engine: EnginePart
    replicas: list[ReplicaPart]
    observed: ObservedPart
    pid: Pid
    parent_pid: Pid
    start_time_ns: Nanoseconds
    end_time_ns: Nanoseconds
    exit_code: OurExitCode
    error: None

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        if self.official == bool(self.unofficial_reasons):
            raise ValueError("unofficial_reasons: some of an official leg, or none of one that is not")
        return self


def absent_fields(model: BaseModel, place: str = "") -> Iterator[str]:
    """Fields of a record that was read that the file does not have, at any depth: there, a default is a guess."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if name not in model.model_fields_set:
            yield f"{place}{name}"
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, BaseModel):
                yield from absent_fields(one, f"{place}{name}.")
