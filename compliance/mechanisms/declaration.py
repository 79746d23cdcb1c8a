"""The declaration of a technique: fourteen fields, from the command line, the environment, a file or the run's record.

A result that declares nothing is a baseline. A number that cannot be read becomes None, and an issue says so.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from compliance.mechanisms.technique_registry import BASELINE
from runs.errors import InputError
from runs.yaml_file import read_yaml, with_underscores

Kind = Literal["str", "float", "int"]


@dataclass(frozen=True)
class Field:
    """One field of the declaration. The environment variable is the name in capitals.

    `low` and `high` bound a number, both included; None = no bound.
    """

    name: str
    kind: Kind
    help: str
    low: float | None = None
    high: float | None = None

    @property
    def variable(self) -> str:
        return self.name.upper()


FIELDS: tuple[Field, ...] = (
    Field("mechanism", "str", "Technique. Default: baseline."),
    Field("mechanism_variant", "str", "Its variant, as in the registry."),
    Field("compression_method", "str", "What compresses."),
    Field("compression_scope", "str", "What is compressed."),
    Field("compression_ratio", "float", "Size before over size after.", low=0),
    Field("compression_overhead_ms", "float", "Time to compress, in ms.", low=0),
    Field("decompression_overhead_ms", "float", "Time to decompress, in ms.", low=0),
    Field("quality_eval_id", "str", "Quality evaluation, as in the registry."),
    Field("quality_eval_status", "str", "pending, completed, failed or not_required."),
    Field("quality_delta_summary", "str", "What the evaluation showed against the baseline."),
    Field("draft_model_id", "str", "Draft model of speculative decoding."),
    Field("speculative_acceptance_rate", "float", "Share of drafted tokens accepted, 0 to 1.", low=0, high=1),
    Field("speculative_wasted_tokens", "int", "Drafted tokens that were thrown away.", low=0),
    Field("mechanism_notes", "str", "Anything else; the citation of a family."),
)
FIELD_NAMES = tuple(entry.name for entry in FIELDS)
# What only something that compresses or drafts has.
OF_TECHNIQUES = (
    "mechanism_variant", "compression_method", "compression_scope", "compression_ratio", "draft_model_id",
    "speculative_acceptance_rate", "speculative_wasted_tokens",
)  # fmt: skip

QUALITY_STATUSES = ("pending", "completed", "failed", "not_required")
SUPPORT_STATUSES = ("supported", "reviewed_preview", "unsupported")
SUPPORT_STATUS = "support_status"  # not one of the fourteen: how far the result is vouched for


@dataclass(frozen=True)
class Declaration:
    """What was declared. `values` has all fourteen fields; `issues` what could not be read as it stands.

    `named` is False where no technique was named and baseline is only assumed.
    """

    values: dict[str, Any]
    support_status: str | None = None
    issues: tuple[str, ...] = field(default=())
    named: bool = True

    def over(self, recorded: Mapping[str, Any]) -> "Declaration":
        """This declaration, with what a run's own record declares in the fields that it leaves open.

        Where the two name different techniques, this one stands alone, and an issue says so. Without a support_status
        in either, a baseline is supported and anything else in preview.
        """
        mine = self.values
        theirs = declare(recorded, support_status=known_status(recorded.get(SUPPORT_STATUS)))
        if self.named and mine["mechanism"] != theirs.values["mechanism"]:
            issue = f"declared {mine['mechanism']} here, the run's own record declares {theirs.values['mechanism']}"
            values, status, issues = mine, self.support_status, (*self.issues, issue)
        else:
            both = mine if self.named else {**mine, "mechanism": None}
            values = {name: both[name] if both[name] is not None else theirs.values[name] for name in FIELD_NAMES}
            status, issues = self.support_status or theirs.support_status, (*self.issues, *theirs.issues)
        default = "supported" if values["mechanism"] == BASELINE else "reviewed_preview"
        return Declaration(values, status or default, issues)


def known_status(status: Any) -> str | None:
    """A support_status that there is; None for any other."""
    return status if status in SUPPORT_STATUSES else None


def declare(*sources: Mapping[str, Any], support_status: str | None = None) -> Declaration:
    """A declaration from mappings of field names; earlier ones win, empty values count as not given."""
    values: dict[str, Any] = {}
    issues: list[str] = []
    for entry in FIELDS:
        given = next((source[entry.name] for source in sources if not is_empty(source.get(entry.name))), None)
        values[entry.name], issue = coerced(entry, given)
        issues += [issue] if issue else []
    named = values["mechanism"] is not None
    values["mechanism"] = values["mechanism"] or BASELINE
    return Declaration(values, support_status, tuple(issues), named)


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The fields that environment variables set."""
    given = {entry.name: environment.get(entry.variable, "") for entry in FIELDS}
    return {name: text.encode("utf-8", "backslashreplace").decode() for name, text in given.items() if text}


def read_declaration_file(path: Path, option: str = "--declaration") -> tuple[dict[str, Any], str | None]:
    """Read a YAML declaration.

    Args:
        option: the option that named it, for messages.

    Returns:
        (fields, support_status); only what the file sets.

    Raises:
        InputError: unreadable, an unknown key or an unknown support_status.
    """
    given = with_underscores(read_yaml(path, option))
    known = (*FIELD_NAMES, SUPPORT_STATUS)
    if unknown := [key for key in given if key not in known]:
        raise InputError(f"{option} {path}: there is no field {unknown[0]!r}", f"fields: {', '.join(known)}")
    status = given.pop(SUPPORT_STATUS, None)
    if status is not None and status not in SUPPORT_STATUSES:
        raise InputError(
            f"{option} {path}: support_status {status!r} is unknown", f"choose from {', '.join(SUPPORT_STATUSES)}"
        )
    return given, status


def is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def coerced(entry: Field, value: Any) -> tuple[Any, str | None]:
    """A value as its field holds it.

    Returns:
        (value or None, what was wrong with it or None). Never raises.
    """
    if is_empty(value):
        return None, None
    if entry.kind == "str":
        if isinstance(value, str):
            return value.strip(), None
        return str(value), f"{entry.name} {value!r} is no text; taken as {str(value)!r}"
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None, f"{entry.name} {value!r} is no number; left out"
    if not math.isfinite(number):
        return None, f"{entry.name} {value!r} is not finite; left out"
    if (entry.low is not None and number < entry.low) or (entry.high is not None and number > entry.high):
        upper = "" if entry.high is None else f" to {entry.high:g}"
        return None, f"{entry.name} {value!r} is out of range (from {entry.low or 0:g}{upper}); left out"
    if entry.kind == "float":
        return number, None
    whole = int(number)
    return whole, None if whole == number else f"{entry.name} {value!r} is no whole number; taken as {whole}"
