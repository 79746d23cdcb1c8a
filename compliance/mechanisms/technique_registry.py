"""The registries of techniques and quality evaluations, and the divisions that allow a technique.

Each of the two registries has a file and an extension. The files also define which techniques compress or draft.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from compliance.mechanisms.technique import BASELINE
from runs.errors import HarnessError, InputError
from runs.reading import read_as

REGISTRY_DIR = Path(__file__).parent / "registry"
VARIANTS_FILE = "mechanism_variant_registry.json"
VARIANTS_EXTENSION_FILE = "mechanism_variant_registry_ext.json"
QUALITY_FILE = "quality_eval_registry.json"
QUALITY_EXTENSION_FILE = "quality_eval_registry_ext.json"

QUALITY_STATUSES = ("pending", "completed", "failed", "not_required")
Division = Literal["closed", "open"]
DIVISIONS: tuple[Division, ...] = ("closed", "open")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


_Id = Annotated[str, Field(pattern="^[!-~]+$")]  # visible ASCII characters


class Variant(_Entry):
    mechanism: _Id
    mechanism_variant: _Id
    compression_method: str | None
    compression_scope: str | None
    description: str


class QualityEval(_Entry):
    quality_eval_id: _Id
    harness: str
    version: str
    scope: str
    metric_keys: Annotated[list[str], Field(min_length=1)]
    baseline_required: bool
    description: str


class _VariantsFile(_Entry):
    schema_version: str = Field(pattern=r"^1\.")
    description: str
    compression_mechanisms: list[_Id]
    speculative_mechanisms: list[_Id]
    variants: list[Variant]


class _QualityFile(_Entry):
    schema_version: str = Field(pattern=r"^1\.")
    description: str
    eval_harnesses: list[QualityEval]


@dataclass(frozen=True)
class Registries:
    """The registered techniques and evaluations, in the order of the files."""

    variants: Mapping[tuple[str, str], Variant] = field(default_factory=dict)  # (mechanism, variant) → its entry
    compression: tuple[str, ...] = ()
    speculative: tuple[str, ...] = ()
    quality_evals: tuple[str, ...] = ()  # IDs
    error: str | None = None  # why the files could not be read

    def compresses(self, mechanism: str) -> bool:
        """Whether the technique needs a quality evaluation; without registries all but a baseline do."""
        return mechanism != BASELINE if self.error else mechanism in self.compression

    def drafts(self, mechanism: str) -> bool:
        return mechanism == "speculative_decoding" if self.error else mechanism in self.speculative


def registries_or_error(folder: Path = REGISTRY_DIR) -> Registries:
    """The registries, with `error` if they cannot be read: results are stored all the same."""
    try:
        return load_registries(folder)
    except HarnessError as error:
        return Registries(error=f"registry_load_error: {error.message}")


def load_registries(folder: Path = REGISTRY_DIR) -> Registries:
    """Read the four files.

    Raises:
        InputError: one is missing, damaged or of another schema, has duplicates, or does not name the kind of each
            technique.
    """
    fix = "restore the registry file"
    lists = [read_as(folder / name, _VariantsFile, fix) for name in (VARIANTS_FILE, VARIANTS_EXTENSION_FILE)]
    eval_lists = [read_as(folder / name, _QualityFile, fix) for name in (QUALITY_FILE, QUALITY_EXTENSION_FILE)]
    variants = [entry for one in lists for entry in one.variants]
    compression = tuple(name for one in lists for name in one.compression_mechanisms)
    speculative = tuple(name for one in lists for name in one.speculative_mechanisms)
    evals = tuple(entry.quality_eval_id for one in eval_lists for entry in one.eval_harnesses)
    pairs = [f"{entry.mechanism}/{entry.mechanism_variant}" for entry in variants]
    for name, ids in (
        (VARIANTS_FILE, pairs), (VARIANTS_FILE, [*compression, *speculative, BASELINE]), (QUALITY_FILE, evals)
    ):  # fmt: skip
        if twice := [one for one, count in Counter(map(str.casefold, ids)).items() if count > 1]:
            raise InputError(f"{folder / name}: {', '.join(twice)} is listed twice", "keep one entry of each")
    if odd := {BASELINE, *compression, *speculative} ^ {entry.mechanism for entry in variants}:
        text = f"{folder / VARIANTS_FILE}: {', '.join(sorted(odd))}: no variant, or of neither kind"
        raise InputError(text, "name each technique among compression_mechanisms or speculative_mechanisms")
    by_name = {(entry.mechanism, entry.mechanism_variant): entry for entry in variants}
    return Registries(by_name, compression, speculative, evals)


# Source: mlcommons/inference_policies, inference_rules.adoc, the sections on model and on what optimizations are
# allowed. Closed-division models are mathematically equivalent to the reference; quantization is allowed while the
# accuracy target is met, pruning and sparsifying are not. Speculative decoding is in the closed division only for
# benchmarks that name a draft model, which those of runs/benchmarks do not.
_CLOSED_IF_ACCURATE = frozenset({"kv_quantization", "weight_quantization"})
_NOT_CLOSED = {
    "kv_compression": "compressing the KV cache otherwise than by quantizing it changes the model",
    "compressed_attention": "attention that leaves positions out changes the model",
    "speculative_decoding": "the benchmark names no draft model: speculative decoding is for the open division",
}


def eligibility(
    mechanism: str, accuracy_passed: bool | None, lossy_in_force: set[str], *, recorded: bool = True
) -> dict[str, dict[str, Any]]:
    """The divisions in which a result may be submitted, by its technique.

    Args:
        accuracy_passed: whether its own accuracy run meets the targets when derived again; None = not known.
        lossy_in_force: techniques that the recorded engine configuration shows; they count as the declared one does.
        recorded: whether there is a whole record of what the engine ran with.

    Returns:
        For "closed" and "open": `eligible` (None: not known without a record), and `reason`.
    """
    refused = []
    for name in sorted({mechanism, *lossy_in_force} - {BASELINE}):
        if name not in _CLOSED_IF_ACCURATE:
            unknown = f"{name} is not known to be allowed in the closed division"
            refused.append(_NOT_CLOSED.get(name, unknown))
        elif not accuracy_passed:
            known = "misses its targets" if accuracy_passed is False else "was not derived again"
            refused.append(f"{name} is allowed if the accuracy targets are met; the accuracy {known}")
    allowed, reason = (
        (True, "the technique is allowed") if recorded else (None, "there is no record of what the engine ran with")
    )
    return {
        "closed": {"eligible": False if refused else allowed, "reason": "; ".join(refused) or reason},
        "open": {"eligible": True, "reason": "any technique, if it is described"},
    }
