"""What the manifest of a finished leg must hold: every part with its fields, of their types, finite.

A field that is left out must not switch off the check that reads it, so a finished leg's manifest is held against
these forms when it is written and whenever it is read (`runs.record.manifest`).
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from runs.record.layout import LOADGEN_LOGS

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
HASHED = (*LOADGEN_LOGS, "requests.jsonl")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


class _OpenPart(_Part):
    """A part with fields beside these, which differ from leg to leg."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, protected_namespaces=())


class SamplingPart(_Part):
    temperature: FiniteFloat
    top_p: FiniteFloat
    top_k: int
    seed: int
    min_tokens: Count
    max_tokens: AtLeastOne


class HarnessPart(_Part):
    version: Text
    git_commit: Text | None
    git_changed: bool | None


class LoadgenPart(_Part):
    version: Text
    extension: Text
    extension_sha256: Sha256


class HostPart(_OpenPart):
    hostname: Text
    system: Text
    cpu: str
    cores_usable: AtLeastOne
    memory_bytes: AtLeastOne


class DatasetPart(_OpenPart):
    path: Text
    sha256: Sha256
    rows_used: AtLeastOne
    longest_prompt_tokens: AtLeastOne


class WeightsPart(_Part):
    """What the files of a model's weights say of themselves (`qsl.weights` reads them).

    Attributes:
        files, tensors: of the safetensors files.
        parameters: numbers in the weights, packed ones counted each, scales left out.
        dtypes: numbers by the type that the headers have for them: BF16, F8_E4M3, U8, …
        precision: of most numbers: bfloat16, float16, float32; or how they are quantised: fp8_w8a8, int4_w4a16, …
        quantized: whether any weight is held in fewer bits, or the model's configuration says so.
        sparse: whether the configuration says that weights were left out.
        shape: keys of config.json that tell a model from others.
        headers_sha256: of all names, types and shapes.
    """

    files: Count
    tensors: Count
    parameters: Count
    dtypes: dict[str, Count]
    precision: Text
    quantized: bool
    sparse: bool
    shape: dict[str, int | None]
    headers_sha256: Sha256


class ModelPart(_OpenPart):
    name: Text
    folder: Text | None
    revision: Text | None
    sha256: dict[str, str]
    weights: WeightsPart | None = None  # None: an engine without a model, a server's, or of before there was this part


class EnginePart(_OpenPart):
    name: Text
    versions: dict[str, str]
    asked: dict[str, Any]
    in_force: dict[str, Any]
    configuration: dict[str, Any]
    prefix_caching: bool


class LoadgenSettingsPart(_OpenPart):
    mode: Text
    scenario: Text
    min_duration_ms: Count
    min_query_count: Count
    max_duration_ms: Count
    max_query_count: Count
    qsl_rng_seed: Count
    sample_index_rng_seed: Count
    schedule_rng_seed: Count


class LoopLagPart(_OpenPart):
    p99_ms: FiniteFloat
    worst_ms: FiniteFloat


class ObservedPart(_OpenPart):
    samples_issued: AtLeastOne
    samples_completed: AtLeastOne
    cached_prompt_tokens: Count
    contention: dict[str, FiniteFloat | int | None]
    loop_lag: LoopLagPart
    log_sha256: dict[str, Sha256]


class FinishedParts(_OpenPart):
    """The parts of a finished leg's manifest that are free-form while the leg runs."""

    harness: HarnessPart
    software: dict[str, Text]
    loadgen: LoadgenPart
    host: HostPart
    model: ModelPart
    dataset: DatasetPart
    loadgen_settings: LoadgenSettingsPart
    engine: EnginePart
    observed: ObservedPart
    pid: AtLeastOne
    start_time_ns: AtLeastOne
    end_time_ns: AtLeastOne
    exit_code: Count


def missing_hashes(log_sha256: dict[str, str]) -> list[str]:
    """Files of a leg whose hash a finished manifest must have and does not."""
    return [name for name in HASHED if name not in log_sha256]
