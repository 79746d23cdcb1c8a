"""The declaration of a technique by the submitter: fourteen fields and a support status.

A run of this harness without a declaration is a baseline. Logs of another harness name no technique; the gate treats
them as a baseline. A wrong value is an error in the declaration of a new run (`TechniqueBlock`). In existing rows and
manifests (`declare`) a wrong value is removed and reported as an issue.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, field_validator, model_validator

from runs.errors import InputError
from runs.files.reading import MIB
from runs.files.yaml_file import read_yaml
from runs.files.yaml_keys import with_underscores
from runs.record.technique import BASELINE, NO_TECHNIQUE

SupportStatus = Literal["supported", "reviewed_preview", "unsupported"]
SUPPORT_STATUSES: tuple[SupportStatus, ...] = get_args(SupportStatus)
# Fields in addition to the fourteen fields. They have no environment variables.
SUPPORT_STATUS, QUALITY_RESULTS, QUALITY_BASELINE = "support_status", "quality_results", "quality_baseline"


class DeclaredFields(BaseModel):
    """The fields of a declaration and their types. `check_declaration` compares names with the registries."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True, allow_inf_nan=False, defer_build=True)

    mechanism: str | None = Field(None, description="Name of the technique. Default: baseline.")
    mechanism_variant: str | None = Field(None, description="Variant of the technique, by its name in the registry.")
    compression_method: str | None = Field(None, description="Method of compression.")
    compression_scope: str | None = Field(None, description="Data that is compressed, such as kv_cache.")
    compression_ratio: float | None = Field(None, ge=0, description="Original size divided by compressed size.")
    compression_overhead_ms: float | None = Field(None, ge=0, description="Time to compress, in ms.")
    decompression_overhead_ms: float | None = Field(None, ge=0, description="Time to decompress, in ms.")
    quality_eval_id: str | None = Field(None, description="Quality evaluation, by its name in the registry.")
    quality_eval_status: str | None = Field(
        None, description="Status of the quality evaluation: pending, completed, failed or not_required."
    )
    quality_delta_summary: str | None = Field(None, description="Result of the evaluation compared with the baseline.")
    draft_model_id: str | None = Field(None, description="Draft model of speculative decoding.")
    speculative_acceptance_rate: float | None = Field(
        None, ge=0, le=1, description="Share of the drafted tokens that the model accepted, 0 to 1."
    )
    speculative_wasted_tokens: int | None = Field(
        None, ge=0, lt=2**63, description="Number of drafted tokens that the model rejected."
    )
    mechanism_notes: str | None = Field(None, description="Other notes, such as a citation.")
    support_status: SupportStatus | None = None
    quality_results: str | None = Field(None, description="JSON file with the results of the quality evaluation.")
    quality_baseline: float | None = Field(
        None,
        gt=0,
        le=100,
        description="Score without the technique, if the file of --quality-results does not contain it.",
    )

    @field_validator(
        "compression_ratio",
        "compression_overhead_ms",
        "decompression_overhead_ms",
        "speculative_acceptance_rate",
        "speculative_wasted_tokens",
        "quality_baseline",
        mode="before",
    )
    @classmethod
    def _number(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("Input should be a number")
        with contextlib.suppress(ValueError):  # accept 1e3 as a whole number
            return float(value) if isinstance(value, str) else value
        return value


MAX_RESULTS_BYTES = 8 * MIB  # a results file of lm-evaluation-harness has some kilobytes per task
_BESIDE = (SUPPORT_STATUS, QUALITY_RESULTS, QUALITY_BASELINE)
FIELD_NAMES = tuple(name for name in DeclaredFields.model_fields if name not in _BESIDE)
# Fields that only techniques have.
OF_TECHNIQUES = (
    "mechanism_variant", "compression_method", "compression_scope", "compression_ratio", "draft_model_id",
    "speculative_acceptance_rate", "speculative_wasted_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class Declaration:
    """The declared `fields`, and problems with their values (`issues`)."""

    fields: dict[str, Any]
    issues: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """All fourteen fields with their values; None for fields that are not declared."""
        return {name: self.fields.get(name) for name in FIELD_NAMES}

    @property
    def mechanism(self) -> str:
        """The declared technique, or `baseline` if none is declared."""
        return str(self.fields.get("mechanism", BASELINE))

    @property
    def support_status(self) -> str | None:
        """The declared support status, or the default status of the technique; None if no technique is declared."""
        default = "supported" if self.mechanism == BASELINE else "reviewed_preview"
        return self.fields.get(SUPPORT_STATUS, default if "mechanism" in self.fields else None)

    def over(self, recorded: Mapping[str, Any]) -> "Declaration":
        """Return this declaration with additional fields from the run's manifest.

        A manifest without a technique declares a baseline. A manifest with another technique is ignored and reported.
        """
        earlier = declaration_of(recorded, {"mechanism": BASELINE})
        if self.fields.get("mechanism", earlier.mechanism) != earlier.mechanism:
            issue = f"the declaration names {self.mechanism}, but the run's manifest declares {earlier.mechanism}"
            return Declaration(self.fields, (*self.issues, issue))
        return Declaration({**earlier.fields, **self.fields}, (*self.issues, *earlier.issues))


def declaration_of(*sources: Mapping[str, Any]) -> Declaration:
    """Return a declaration from mappings; earlier mappings win. Ignore empty values. Never raise an error."""
    stated: dict[str, Any] = {}
    for source in reversed(sources):
        stated |= {name: source[name] for name in DeclaredFields.model_fields if not is_empty(source.get(name))}
        names = [part.strip() for part in str(source.get("mechanism", "")).split("/")]
        if len(names) == 2 and all(names):
            stated |= zip(("mechanism", "mechanism_variant"), names, strict=True)
    issues: list[str] = []
    while True:  # check again after invalid values were replaced
        try:
            fields = DeclaredFields.model_validate(stated)
            return Declaration(fields.model_dump(exclude_unset=True), tuple(issues))
        except ValidationError as error:
            for problem in error.errors():
                name = str(problem["loc"][0])
                value = stated.pop(name)
                done = "ignored"
                if problem["type"] in ("string_type", "string_unicode"):
                    stated[name] = str(value).encode("utf-8", "backslashreplace").decode()
                    done = f"read as {stated[name]!r}"
                elif problem["type"] == "int_from_float":
                    stated[name] = int(float(value))
                    done = f"read as {stated[name]}"
                issues.append(f"{name} {value!r:.80}: {problem['msg'].removeprefix('Value error, ')}; {done}")


def is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that environment variables set. A variable has the name of its field in capital letters."""
    return {name: environment.get(name.upper(), "") for name in FIELD_NAMES}


def read_declaration_file(path: Path, option: str = "--declaration") -> dict[str, Any]:
    """Read the fields of a YAML declaration.

    Args:
        option: the option that names the file, for messages.

    Raises:
        InputError: If the file is unreadable, or has an unknown key or support_status.
    """
    fields = with_underscores(read_yaml(path, option))
    if unknown := [key for key in fields if key not in DeclaredFields.model_fields]:
        raise InputError(f"{option} {path}: unknown field {unknown[0]!r}", f"choose from {_names()}")
    status = fields.get(SUPPORT_STATUS)
    if status is not None and status not in SUPPORT_STATUSES:
        raise InputError(
            f"{option} {path}: unknown support_status {status!r}", f"choose from {', '.join(SUPPORT_STATUSES)}"
        )
    if isinstance(results := fields.get(QUALITY_RESULTS), str):
        fields[QUALITY_RESULTS] = str(path.resolve().parent / results)
    return dict(fields)


class TechniqueBlock(RootModel):  # type: ignore[type-arg]  # a type argument makes pydantic build a schema at import
    """The block `mechanism` of a run configuration. `mechanism` and `mechanism_variant` are always set.

    It is built from a mapping of fields, from `MECHANISM` or `MECHANISM/VARIANT`, or from the path of a YAML file.

    Raises:
        ValidationError: If a field is unknown or a value is wrong.
        InputError: If the YAML file cannot be read.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    root: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _read(cls, block: object) -> object:
        if isinstance(block, str) and block.endswith((".yaml", ".yml")):
            block = read_declaration_file(Path(block), "--mechanism")
        elif isinstance(block, str):
            names = [part.strip() for part in block.split("/")]
            if len(names) > 2 or not all(names):
                raise ValueError("must be MECHANISM/VARIANT, or a file that ends in .yaml or .yml")
            block = {"mechanism": names[0] if len(names) == 1 else block}
        if isinstance(block, TechniqueBlock):
            return block.root
        if not isinstance(block, dict):
            raise ValueError("must be MECHANISM/VARIANT, a YAML file, or a block of fields")
        fields = {str(key).replace("-", "_"): value for key, value in block.items()}
        if isinstance(results := fields.get(QUALITY_RESULTS), str):
            fields[QUALITY_RESULTS] = str(Path(results).resolve())
        if unknown := [name for name in fields if name not in DeclaredFields.model_fields]:
            raise ValueError(f"unknown field {unknown[0]!r}; fields: {_names()}")
        declared = declaration_of(fields)
        if declared.issues:
            raise ValueError(declared.issues[0].rpartition(";")[0])
        return {**NO_TECHNIQUE, **declared.fields}


def _names() -> str:
    return ", ".join(DeclaredFields.model_fields)
