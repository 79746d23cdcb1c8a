"""The declaration of a technique: fourteen fields and a support status.

A run of this harness without a declaration is a baseline. Logs of others that come without one name no technique; the
gate judges them as a baseline. In what a run declares before it starts (`MechanismBlock`) a wrong value
is an error. In existing rows and records (`declare`) it is left out, and becomes an issue.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, field_validator, model_validator

from compliance.mechanisms.technique import BASELINE, NO_VARIANT
from runs.errors import InputError
from runs.yaml_file import read_yaml, with_underscores

SupportStatus = Literal["supported", "reviewed_preview", "unsupported"]
SUPPORT_STATUSES: tuple[SupportStatus, ...] = get_args(SupportStatus)
SUPPORT_STATUS = "support_status"  # not one of the fourteen fields; it has no environment variable


class DeclaredFields(BaseModel):
    """The fields and their types; `check_declaration` checks whether names are registered."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True, allow_inf_nan=False, defer_build=True)

    mechanism: str | None = Field(None, description="Name of the technique. Default: baseline.")
    mechanism_variant: str | None = Field(None, description="Variant of the technique, as in the registry.")
    compression_method: str | None = Field(None, description="Method of compression.")
    compression_scope: str | None = Field(None, description="Compressed data, such as kv_cache.")
    compression_ratio: float | None = Field(None, ge=0, description="Original size divided by compressed size.")
    compression_overhead_ms: float | None = Field(None, ge=0, description="Time to compress, in ms.")
    decompression_overhead_ms: float | None = Field(None, ge=0, description="Time to decompress, in ms.")
    quality_eval_id: str | None = Field(None, description="Name of the quality evaluation, as in the registry.")
    quality_eval_status: str | None = Field(None, description="pending, completed, failed or not_required.")
    quality_delta_summary: str | None = Field(None, description="Result of the evaluation compared with the baseline.")
    draft_model_id: str | None = Field(None, description="Draft model of speculative decoding.")
    speculative_acceptance_rate: float | None = Field(
        None, ge=0, le=1, description="Accepted share of drafted tokens, 0 to 1."
    )
    speculative_wasted_tokens: int | None = Field(
        None, ge=0, lt=2**63, description="Number of rejected drafted tokens."
    )
    mechanism_notes: str | None = Field(None, description="Other notes, such as a citation.")
    support_status: SupportStatus | None = None

    @field_validator(
        "compression_ratio",
        "compression_overhead_ms",
        "decompression_overhead_ms",
        "speculative_acceptance_rate",
        "speculative_wasted_tokens",
        mode="before",
    )
    @classmethod
    def _number(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("Input should be a number")
        with contextlib.suppress(ValueError):  # also 1e3 for a whole number
            return float(value) if isinstance(value, str) else value
        return value


FIELD_NAMES = tuple(name for name in DeclaredFields.model_fields if name != SUPPORT_STATUS)
# Fields that a baseline does not have.
OF_TECHNIQUES = (
    "mechanism_variant", "compression_method", "compression_scope", "compression_ratio", "draft_model_id",
    "speculative_acceptance_rate", "speculative_wasted_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class Declaration:
    """The fields that were given, and problems with their values (`issues`)."""

    given: dict[str, Any]
    issues: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """All fourteen fields; None for those that nobody gave."""
        return {name: self.given.get(name) for name in FIELD_NAMES}

    @property
    def mechanism(self) -> str:
        """The technique as the gate judges it: a baseline if none is named."""
        return str(self.given.get("mechanism", BASELINE))

    @property
    def support_status(self) -> str | None:
        """As declared, else the default of the technique; None if none is named."""
        default = "supported" if self.mechanism == BASELINE else "reviewed_preview"
        return self.given.get(SUPPORT_STATUS, default if "mechanism" in self.given else None)

    def over(self, recorded: Mapping[str, Any]) -> "Declaration":
        """This declaration, with further fields of the run's manifest, which without a technique is a baseline's.

        A record that names another technique is ignored, and becomes an issue.
        """
        theirs = declare(recorded, {"mechanism": BASELINE})
        if self.given.get("mechanism", theirs.mechanism) != theirs.mechanism:
            issue = f"declared {self.mechanism} here, the run's manifest declares {theirs.mechanism}"
            return Declaration(self.given, (*self.issues, issue))
        return Declaration({**theirs.given, **self.given}, (*self.issues, *theirs.issues))


def declare(*sources: Mapping[str, Any]) -> Declaration:
    """A declaration from mappings of field names; earlier ones win, empty values count as not given. Never raises."""
    given: dict[str, Any] = {}
    for source in reversed(sources):
        given |= {name: source[name] for name in DeclaredFields.model_fields if not is_empty(source.get(name))}
    issues: list[str] = []
    while True:  # corrected values are checked again
        try:
            fields = DeclaredFields.model_validate(given)
            return Declaration(fields.model_dump(exclude_unset=True), tuple(issues))
        except ValidationError as error:
            for problem in error.errors():
                name = str(problem["loc"][0])
                value = given.pop(name)
                done = "left out"
                if problem["type"] in ("string_type", "string_unicode"):
                    given[name] = str(value).encode("utf-8", "backslashreplace").decode()
                    done = f"taken as {given[name]!r}"
                elif problem["type"] == "int_from_float":
                    given[name] = int(float(value))
                    done = f"taken as {given[name]}"
                issues.append(f"{name} {value!r:.80}: {problem['msg'].removeprefix('Value error, ')}; {done}")


def is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The fields that environment variables set: the name in capitals."""
    return {name: environment.get(name.upper(), "") for name in FIELD_NAMES}


def read_declaration_file(path: Path, option: str = "--declaration") -> dict[str, Any]:
    """The fields of a YAML declaration.

    Args:
        option: the option that named it, for messages.

    Raises:
        InputError: unreadable, an unknown key or an unknown support_status.
    """
    given = with_underscores(read_yaml(path, option))
    if unknown := [key for key in given if key not in DeclaredFields.model_fields]:
        raise InputError(f"{option} {path}: unknown field {unknown[0]!r}", f"fields: {_names()}")
    status = given.get(SUPPORT_STATUS)
    if status is not None and status not in SUPPORT_STATUSES:
        raise InputError(
            f"{option} {path}: support_status {status!r} is unknown", f"choose from {', '.join(SUPPORT_STATUSES)}"
        )
    return dict(given)


class MechanismBlock(RootModel):  # type: ignore[type-arg]  # with it, pydantic builds a schema at import
    """The block `mechanism` of a run: the fields that were given, `mechanism` and `mechanism_variant` always.

    Made from a mapping of fields, from `MECHANISM` or `MECHANISM/VARIANT`, or from the path of a YAML declaration.

    Raises:
        ValidationError: an unknown field or a wrong value.
        InputError: the YAML file cannot be read.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    root: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: object) -> object:
        if isinstance(given, str) and given.endswith((".yaml", ".yml")):
            given = read_declaration_file(Path(given), "--mechanism")
        elif isinstance(given, str):
            names = [part.strip() for part in given.split("/")]
            if len(names) > 2 or not all(names):
                raise ValueError("neither MECHANISM/VARIANT nor a file that ends in .yaml or .yml")
            given = dict(zip(("mechanism", "mechanism_variant"), names, strict=False))
        if isinstance(given, MechanismBlock):
            return given.root
        if not isinstance(given, dict):
            raise ValueError("give MECHANISM/VARIANT, a YAML file, or a block of fields")
        fields = {str(key).replace("-", "_"): value for key, value in given.items()}
        if unknown := [name for name in fields if name not in DeclaredFields.model_fields]:
            raise ValueError(f"unknown field {unknown[0]!r}; fields: {_names()}")
        declared = declare(fields)
        if declared.issues:
            raise ValueError(declared.issues[0].rpartition(";")[0])
        return {"mechanism": BASELINE, "mechanism_variant": NO_VARIANT, **declared.given}


def _names() -> str:
    return ", ".join(DeclaredFields.model_fields)
