"""The validation record of a row: is what it declares registered? It never raises, it only flags."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compliance.mechanisms.declaration import QUALITY_STATUSES, is_empty
from compliance.mechanisms.technique_registry import BASELINE, REGISTRY_DIR, Registries, load_registries
from runs.errors import HarnessError

RECORD = "mechanism_eval_validation"  # the record's key in a row


def registries_or_error(folder: Path = REGISTRY_DIR) -> tuple[Registries | None, str | None]:
    """The registries, or why they cannot be read: a broken list must not stop results from being recorded."""
    try:
        return load_registries(folder), None
    except HarnessError as error:
        return None, f"registry_load_error: {error.message}"


def validate(row: Mapping[str, Any], registries: Registries | None, load_error: str | None = None) -> dict[str, Any]:
    """Build the record.

    Args:
        row: the fourteen fields; missing ones count as None.
        registries: None when they could not be read, then `load_error` says why.

    Returns:
        `mechanism_eval_registered`, `quality_eval_registered` (None without an id), `quality_eval_status_known`
        (None without a status) and `issues`. The first three are None without registries.
    """
    if registries is None:
        return {
            "mechanism_eval_registered": None,
            "quality_eval_registered": None,
            "quality_eval_status_known": None,
            "issues": [load_error or "registry_load_error: no registries"],
        }
    mechanism = _text(row, "mechanism") or BASELINE
    variant, quality_id = _text(row, "mechanism_variant"), _text(row, "quality_eval_id")
    status = _text(row, "quality_eval_status")
    entry = registries.variant(mechanism, variant)
    quality_registered = None if quality_id is None else registries.quality_eval(quality_id) is not None
    status_known = None if status is None else status in QUALITY_STATUSES
    issues = []
    if entry is None:
        issues.append(f"{mechanism}/{variant or 'none'} is not in the registry of mechanisms")
    else:
        for name, registered in (("method", entry.compression_method), ("scope", entry.compression_scope)):
            declared = _text(row, f"compression_{name}")
            if declared is not None and declared != registered:
                issues.append(f"compression_{name} {declared!r} is not that of {mechanism}/{entry.mechanism_variant}")
    if quality_registered is False:
        issues.append(f"quality_eval_id {quality_id!r} is not in the registry of quality evaluations")
    if status_known is False:
        issues.append(f"quality_eval_status {status!r} is unknown; known are {', '.join(QUALITY_STATUSES)}")
    if mechanism in registries.speculative and _text(row, "draft_model_id") is None:
        issues.append(f"{mechanism} without draft_model_id")
    return {
        "mechanism_eval_registered": entry is not None,
        "quality_eval_registered": quality_registered,
        "quality_eval_status_known": status_known,
        "issues": issues,
    }


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return None if is_empty(value) else str(value).strip()
