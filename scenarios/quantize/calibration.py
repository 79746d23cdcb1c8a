"""calibration.md: the description of a quantisation that the closed division's rules ask for."""

from collections.abc import Collection, Mapping
from typing import Literal

from qsl.dataset import Dataset
from qsl.model_files import ModelFacts
from runs.record.manifest_parts import WeightsPart

Scheme = Literal["fp8", "int8"]

_WHAT = {
    "fp8": "Weights and input activations of all linear layers but the head are held in FP8 (E4M3), one scale a "
    "tensor: of a weight by its largest magnitude, of an activation by the largest over the calibration prompts.",
    "int8": "Weights of all linear layers but the head are held in INT8, one scale an output channel, rounded by GPTQ "
    "with the second moments of the layer's inputs over the calibration prompts. Activations are quantised to INT8 as "
    "they come, one scale a token.",
}


def calibration_text(
    *,
    model: ModelFacts,
    hashes: Mapping[str, str],
    scheme: str,
    recipe: str,
    versions: Mapping[str, str],
    data: Dataset,
    official_sha256: Collection[str],
    used: int,
    weights: WeightsPart,
    made: Mapping[str, str],
) -> str:
    """The text of calibration.md.

    Args:
        hashes, made: files of the model before and after, with their SHA-256.
        official_sha256: of the calibration files that MLCommons distributes.
        used: prompts that calibration saw.
        weights: what the headers of the new files say.
    """
    official = data.sha256 in official_sha256
    whose = "the file that MLCommons distributes" if official else "not known to be MLCommons' file"
    rows = len(data)
    lines = [
        f"# Calibration of {model.name}, {scheme.upper()}",
        "",
        _WHAT[scheme],
        "The KV cache and everything else are as in the model. No weight was retrained, left out or added.",
        "",
        f"- calibration data: {data.path.name}, SHA-256 {data.sha256} ({whose}): {rows:,} prompts, "
        f"{len(set(map(tuple, data.prompts))):,} of them different; the first {used:,} different ones were used, whole "
        f"(the longest has {data.longest_prompt:,} tokens)",
        f"- made with {', '.join(f'{name} {version}' for name, version in versions.items())}",
        f"- result: {weights.precision}, {weights.parameters:,} weights in {weights.tensors} tensors",
        "",
        "The recipe:",
        "",
        "```yaml",
        recipe.rstrip(),
        "```",
        "",
        "| file | SHA-256 |",
        "|---|---|",
        *(f"| before: {name} | {digest} |" for name, digest in hashes.items() if name.endswith(".safetensors")),
        *(f"| after: {name} | {digest} |" for name, digest in made.items() if name.endswith(".safetensors")),
    ]
    return "\n".join(lines) + "\n"
