"""The registries of techniques and quality evaluations: two lists, and this project's extension of each.

The sets of compression and speculative techniques come from the files; nothing of them is repeated in code.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from runs.errors import InputError
from runs.reading import read_as

REGISTRY_DIR = Path(__file__).parent / "registry"
VARIANTS_FILE = "mechanism_variant_registry.json"
VARIANTS_EXTENSION_FILE = "mechanism_variant_registry_ext.json"
QUALITY_FILE = "quality_eval_registry.json"
QUALITY_EXTENSION_FILE = "quality_eval_registry_ext.json"

BASELINE = "baseline"
NO_VARIANT = "none"  # what a missing variant counts as


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


_Id = Annotated[str, Field(pattern="^[!-~]+$")]  # no blanks, and nothing that only looks like it


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


_File = TypeVar("_File", _VariantsFile, _QualityFile)


@dataclass(frozen=True)
class Registries:
    """What may be declared. `variants` and `quality_evals` keep the order of the files."""

    variants: tuple[Variant, ...]
    compression: frozenset[str]
    speculative: frozenset[str]
    quality_evals: tuple[QualityEval, ...]

    def variant(self, mechanism: str, variant: str | None) -> Variant | None:
        """The entry of a pair; a missing variant counts as "none"."""
        wanted = (mechanism, variant or NO_VARIANT)
        return next((entry for entry in self.variants if (entry.mechanism, entry.mechanism_variant) == wanted), None)

    def quality_eval(self, quality_eval_id: str) -> QualityEval | None:
        return next((entry for entry in self.quality_evals if entry.quality_eval_id == quality_eval_id), None)


def load_registries(folder: Path = REGISTRY_DIR) -> Registries:
    """Read the four files.

    Raises:
        InputError: one is missing, damaged, of another schema, lists something twice, or does not say of each
            technique which kind it is.
    """
    lists = [_read(folder / name, _VariantsFile) for name in (VARIANTS_FILE, VARIANTS_EXTENSION_FILE)]
    variants = [entry for one in lists for entry in one.variants]
    evals = [
        entry
        for name in (QUALITY_FILE, QUALITY_EXTENSION_FILE)
        for entry in _read(folder / name, _QualityFile).eval_harnesses
    ]
    compression = [name for one in lists for name in one.compression_mechanisms]
    speculative = [name for one in lists for name in one.speculative_mechanisms]
    _unique([f"{entry.mechanism}/{entry.mechanism_variant}" for entry in variants], folder / VARIANTS_FILE)
    _unique([*compression, *speculative, BASELINE], folder / VARIANTS_FILE)
    _unique([entry.quality_eval_id for entry in evals], folder / QUALITY_FILE)
    if odd := {BASELINE, *compression, *speculative} ^ {entry.mechanism for entry in variants}:
        text = f"{folder / VARIANTS_FILE}: {', '.join(sorted(odd))}: has no variant, or is of neither kind"
        raise InputError(text, "name each technique among compression_mechanisms or speculative_mechanisms")
    return Registries(tuple(variants), frozenset(compression), frozenset(speculative), tuple(evals))


def _read(path: Path, schema: type[_File]) -> _File:
    return read_as(path, schema, "restore the registry file")


def _unique(names: list[str], path: Path) -> None:
    plain = [name.casefold() for name in names]
    twice = sorted({name for name in names if plain.count(name.casefold()) > 1})
    if twice:
        raise InputError(f"{path}: {', '.join(twice)} stands there twice", "keep one entry of each")
