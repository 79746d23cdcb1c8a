"""Rules on a declaration alone, compared with the registries."""

from collections.abc import Iterator, Mapping
from typing import Any

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, Severity, compared
from compliance.techniques.declaration import OF_TECHNIQUES, SUPPORT_STATUS, SUPPORT_STATUSES
from compliance.techniques.technique_registry import QUALITY_STATUSES, Registries
from runs.record.technique import BASELINE, NO_VARIANT, pair_of

_DECLARE = "correct the declaration, or repeat the runs with the technique that it names"


@decides(
    "gate",
    ("gate/pair_registered", "error", OURS, "technique and variant, compared with the registry", _DECLARE),
    ("gate/status_known", "error", OURS, "values of quality_eval_status and support_status", _DECLARE),
    ("gate/quality_evaluated", "error", OURS, "registered quality evaluation of a supported compression",
     "evaluate the quality of the technique and set quality_eval_id and quality_eval_status, or set support_status to "
     "reviewed_preview"),
    ("gate/draft_model_declared", "error", OURS, "draft model and acceptance rate of speculative decoding", _DECLARE),
    ("gate/review", "note", OURS, "parts of the declaration that need a review by a person", _DECLARE),
)  # fmt: skip
def check_declaration(declared: Mapping[str, Any], registries: Registries) -> Iterator[Finding]:
    """Check a declaration against the registries.

    Args:
        declared: the fields of a `Declaration`; missing fields count as None.
        registries: techniques and evaluations; nothing is registered if the files are unreadable.
    """
    mechanism, variant = pair_of(declared)
    entry = registries.variants.get((mechanism, variant))
    unread = f" ({registries.error})" if registries.error else ""
    if mechanism == BASELINE:
        for name in OF_TECHNIQUES:
            if declared.get(name) not in (None, NO_VARIANT):
                yield _field("gate/pair_registered", name, declared, f"no {name} (the row has no technique)", "error")
    elif entry is None:
        closest = registries.closest(mechanism, variant)
        required = f"a pair in the registry of techniques{unread}{f'; closest: {closest}' if closest else ''}"
        yield compared("gate/pair_registered", False, f"{mechanism}/{variant}", required, text="technique")
    for name in ("compression_method", "compression_scope"):
        if entry is not None and mechanism != BASELINE and declared.get(name) not in (None, getattr(entry, name)):
            required = f"{getattr(entry, name)}, as the registry states for {mechanism}/{variant}"
            yield _field("gate/review", name, declared, required, "note")
    for name, allowed in (("quality_eval_status", QUALITY_STATUSES), (SUPPORT_STATUS, SUPPORT_STATUSES)):
        if declared.get(name) is not None and declared[name] not in allowed:
            yield _field("gate/status_known", name, declared, ", ".join(allowed), "error")
    quality_id, status = declared.get("quality_eval_id"), declared.get("quality_eval_status")
    needed = claims_support(declared) and registries.compresses(mechanism)
    subject = f"supported {mechanism}"
    if needed and status != "completed":
        yield _field("gate/quality_evaluated", "quality_eval_status", declared, "completed", "error", subject)
    registered = f"an ID in the registry of quality evaluations{unread}"
    if needed and quality_id is None:
        yield _field("gate/quality_evaluated", "quality_eval_id", declared, registered, "error", subject)
    elif quality_id is not None and quality_id not in registries.quality_evals:
        rule = "gate/review" if mechanism == BASELINE else "gate/quality_evaluated"
        severity: Severity = "note" if mechanism == BASELINE else "error" if needed else "warning"
        yield _field(rule, "quality_eval_id", declared, registered, severity)
    for name in ("draft_model_id", "speculative_acceptance_rate"):
        if registries.drafts(mechanism) and declared.get(name) is None:
            yield _field("gate/draft_model_declared", name, declared, "a value", "error", mechanism)


def claims_support(declared: Mapping[str, Any]) -> bool:
    """Return True if the row declares its technique as supported, in any spelling."""
    return str(declared.get(SUPPORT_STATUS)).strip().lower() == "supported"


def _field(
    rule: str, name: str, declared: Mapping[str, Any], required: str, severity: Severity, subject: str = ""
) -> Finding:
    """Return the finding on a declared field."""
    value = declared.get(name)
    shown = "missing" if value is None else str(value)[:80]
    return compared(
        rule,
        False,
        shown,
        required,
        text=f"{name} of {subject}" if subject else name,
        severity=severity,
        field=name,
        value=value,
    )


VALIDATION = "mechanism_eval_validation"  # key in a row for the validation of its declaration


def validate(declared: Mapping[str, Any], registries: Registries) -> dict[str, Any]:
    """Return the findings on the declaration of a row in plain types. Never raise an error.

    Returns:
        `mechanism_eval_registered`, `quality_eval_registered` (None without an ID), `quality_eval_status_known` (None
        without a status) and `issues`. The first three are None if the registries are unreadable.
    """
    if registries.error:
        flags: tuple[bool | None, ...] = (None, None, None)
        issues = [registries.error]
    else:
        quality_id, status = declared.get("quality_eval_id"), declared.get("quality_eval_status")
        flags = (
            pair_of(declared) in registries.variants,
            None if quality_id is None else quality_id in registries.quality_evals,
            None if status is None else status in QUALITY_STATUSES,
        )
        issues = [finding.sentence for finding in check_declaration(declared, registries)]
    names = ("mechanism_eval_registered", "quality_eval_registered", "quality_eval_status_known")
    return {**dict(zip(names, flags, strict=True)), "issues": issues}
