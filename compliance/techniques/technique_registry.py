"""The registries of techniques and quality evaluations, and the divisions that allow a technique.

Each of the two registries has a file and an extension. The files also define which techniques compress or draft.
"""

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from runs.errors import HarnessError, InputError
from runs.files.reading import read_as
from runs.record.technique import BASELINE

REGISTRY_DIR = Path(__file__).parent / "registry"
VARIANTS_FILE = "mechanism_variant_registry.json"
VARIANTS_EXTENSION_FILE = "mechanism_variant_registry_ext.json"
QUALITY_FILE = "quality_eval_registry.json"
QUALITY_EXTENSION_FILE = "quality_eval_registry_ext.json"

QUALITY_STATUSES = ("pending", "completed", "failed", "not_required")
GateDivision = Literal["closed", "open"]
GATE_DIVISIONS: tuple[GateDivision, ...] = ("closed", "open")


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
    """The registered techniques and quality evaluations, in the order of their files."""

    variants: Mapping[tuple[str, str], Variant] = field(default_factory=dict)  # (mechanism, variant) → entry
    speculative: tuple[str, ...] = ()
    quality_evals: Mapping[str, QualityEval] = field(default_factory=dict)  # ID → entry
    error: str | None = None  # reason why the files are unreadable

    def compresses(self, mechanism: str) -> bool:
        """Return True if the technique needs a quality evaluation. A technique that is not registered needs one too."""
        return mechanism not in (BASELINE, *self.speculative)

    def drafts(self, mechanism: str) -> bool:
        return mechanism == "speculative_decoding" if self.error else mechanism in self.speculative

    def closest(self, mechanism: str, variant: str) -> str:
        """Return the registered technique and variant with the most similar names; "" if no registry is readable."""
        pairs = [f"{technique}/{variant}" for technique, variant in self.variants if technique == mechanism]
        pairs = pairs or [f"{technique}/{variant}" for technique, variant in self.variants if technique != BASELINE]
        return next(iter(difflib.get_close_matches(f"{mechanism}/{variant}".lower(), pairs, 1, cutoff=0)), "")


def registries_or_error(folder: Path = REGISTRY_DIR) -> Registries:
    """Return the registries. If they are unreadable, set `error` and continue, because results are stored anyway."""
    try:
        return load_registries(folder)
    except HarnessError as error:
        return Registries(error=f"registry_load_error: {error.message}")


def load_registries(folder: Path = REGISTRY_DIR) -> Registries:
    """Read the four files of the registries.

    Raises:
        InputError: If a file is missing, damaged or of another schema, has duplicates, or does not state the kind of a
            technique.
    """
    fix = "restore the registry file"
    lists = [read_as(folder / name, _VariantsFile, fix) for name in (VARIANTS_FILE, VARIANTS_EXTENSION_FILE)]
    eval_lists = [read_as(folder / name, _QualityFile, fix) for name in (QUALITY_FILE, QUALITY_EXTENSION_FILE)]
    variants = [entry for file in lists for entry in file.variants]
    compression = tuple(name for file in lists for name in file.compression_mechanisms)
    speculative = tuple(name for file in lists for name in file.speculative_mechanisms)
    evals = [entry for file in eval_lists for entry in file.eval_harnesses]
    pairs = [f"{entry.mechanism}/{entry.mechanism_variant}" for entry in variants]
    for name, ids in (
        (VARIANTS_FILE, pairs), (VARIANTS_FILE, [*compression, *speculative, BASELINE]),
        (QUALITY_FILE, [entry.quality_eval_id for entry in evals]),
    ):  # fmt: skip
        if twice := [name for name, count in Counter(map(str.casefold, ids)).items() if count > 1]:
            raise InputError(f"{folder / name}: {', '.join(twice)} is listed twice", "keep one entry of each")
    if unmatched := {BASELINE, *compression, *speculative} ^ {entry.mechanism for entry in variants}:
        text = f"{folder / VARIANTS_FILE}: {', '.join(sorted(unmatched))}: needs a variant and a kind"
        raise InputError(
            text, "list each technique in variants and in compression_mechanisms or speculative_mechanisms"
        )
    by_name = {(entry.mechanism, entry.mechanism_variant): entry for entry in variants}
    return Registries(by_name, speculative, {entry.quality_eval_id: entry for entry in evals})


# Source: mlcommons/inference_policies, inference_rules.adoc, sections on the model and on optimizations. The closed
# division allows quantization that meets the accuracy target, but no pruning or sparsity. It allows speculative
# decoding only for benchmarks with a draft model, and runs/benchmarks contains no such benchmark.
_CLOSED_IF_ACCURATE = frozenset({"kv_quantization", "weight_quantization"})
_NOT_CLOSED = {
    "kv_compression": "compression of the KV cache other than quantization changes the model",
    "compressed_attention": "attention that skips positions changes the model",
    "speculative_decoding": "speculative decoding needs a draft model of the benchmark, and this benchmark has none",
}


def eligibility(
    mechanism: str, accuracy_passed: bool | None, lossy_in_force: set[str], *, recorded: bool = True
) -> dict[str, dict[str, Any]]:
    """Return the divisions in which a result with a technique may be submitted.

    Args:
        accuracy_passed: True if the rescored accuracy run meets the targets; None if unknown.
        lossy_in_force: techniques in the recorded engine configuration; they count like the declared technique.
        recorded: True if the recorded engine configuration is complete.

    Returns:
        `eligible` and `reason` for "closed" and "open". `eligible` is None if the configuration is incomplete.
    """
    refused = []
    for name in sorted({mechanism, *lossy_in_force} - {BASELINE}):
        if name not in _CLOSED_IF_ACCURATE:
            unknown = f"the rules of the closed division do not mention {name}"
            refused.append(_NOT_CLOSED.get(name, unknown))
        elif not accuracy_passed:
            state = "does not meet them" if accuracy_passed is False else "was not rescored"
            refused.append(f"{name} is allowed if the accuracy targets are met; the accuracy run {state}")
    allowed, reason = (
        (True, "the technique is allowed") if recorded else (None, "the recorded engine configuration is incomplete")
    )
    return {
        "closed": {"eligible": False if refused else allowed, "reason": "; ".join(refused) or reason},
        "open": {"eligible": True, "reason": "any technique is allowed, if the submission describes it"},
    }
