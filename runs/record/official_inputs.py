"""Reasons why a run's dataset or model is not official."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runs.benchmark import Benchmark, OfficialModel

if TYPE_CHECKING:
    from runs.record.observed import Weights

# Engine arguments that change the model or the end of a response.
MODEL_CHANGING = (
    *("hf_overrides", "hf_config_path", "generation_config", "override_generation_config", "logits_processors"),
    *("enable_lora", "skip_tokenizer_init", "model_weights", "model_class_overrides"),
)
# Load formats for which an engine loads other files than the safetensors in the manifest. [vLLM 0.32,
# vllm/config/load.py]
OTHER_WEIGHTS = frozenset(
    {"dummy", "pt", "npcache", "gguf", "mistral", "tensorizer", "sharded_state", "runai_streamer_sharded"}
)


def option_reasons(options: Mapping[str, Any]) -> list[str]:
    """Return the reasons that the engine's options give."""
    reasons = [
        f"engine argument {name} changes the model or its stop IDs" for name in MODEL_CHANGING if options.get(name)
    ]
    loaded = str(options.get("load_format", "auto")).lower()
    if loaded in OTHER_WEIGHTS:
        reasons.append(f"load_format {loaded} loads other weights than those in the manifest")
    return reasons


def dataset_reasons(benchmark: Benchmark, sha256: str) -> list[str]:
    """Return the reason that the hash of the dataset gives, if MLCommons' file has a known hash."""
    if benchmark.data_sha256 in (None, sha256):
        return []
    return [
        f"the dataset's SHA-256 is {sha256}, not {benchmark.data_sha256} of the file that MLCommons distributes "
        f"for {benchmark.submission_name}"
    ]


def model_reasons(
    official: OfficialModel,
    config: Mapping[str, Any],
    weights: "Weights | None" = None,
    hashes: Mapping[str, str] | None = None,
) -> list[str]:
    """Return reasons from the model's shape, its number of parameters, and the published hashes of unquantized weights.

    Args:
        config: content of config.json, at least the keys of `official.shape`.
        weights: facts about the weights; None = only the shape is known.
        hashes: file name → SHA-256; None = not known yet.
    """
    if differences := [f"{key} {config.get(key)}" for key, value in official.shape.items() if config.get(key) != value]:
        return [f"the model is not {official.name} ({', '.join(differences)})"]
    if weights is None:
        return []
    if weights.parameters != official.parameters:
        return [f"the weights have {weights.parameters:,} parameters, {official.name} has {official.parameters:,}"]
    if weights.sparse:
        return ["the model's configuration has a sparsity_config: weights are missing"]
    published = set(official.weights_sha256.values())
    digests = {digest for name, digest in (hashes or {}).items() if name.endswith(".safetensors")}
    if hashes is not None and published and not weights.quantized and digests != published:
        return [f"the weights are in {weights.precision}, and their files differ from those of {official.name}"]
    return []
