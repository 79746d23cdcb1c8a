"""Rules on a declaration alone, compared with the registries."""

from collections.abc import Iterator, Mapping
from typing import Any

from compliance.judge.check import decides
from compliance.judge.finding import Finding, note, warn
from compliance.judge.rule import OURS
from compliance.mechanisms.declaration import OF_TECHNIQUES, SUPPORT_STATUS, SUPPORT_STATUSES
from compliance.mechanisms.technique import BASELINE, NO_VARIANT, pair_of
from compliance.mechanisms.technique_registry import QUALITY_STATUSES, Registries

_DECLARE = "correct the declaration, or repeat the runs with the technique that it names"


@decides(
    "gate",
    ("gate/pair_registered", "warning", OURS, "technique and variant, compared with the registry", _DECLARE),
    ("gate/status_known", "warning", OURS, "values of quality_eval_status and support_status", _DECLARE),
    ("gate/quality_evaluated", "warning", OURS, "registered quality evaluation of a supported compression",
     "evaluate the quality of the technique, and set quality_eval_id and quality_eval_status"),
    ("gate/draft_model_declared", "warning", OURS, "draft model and acceptance rate of speculative decoding", _DECLARE),
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
                yield warn("gate/pair_registered", f"{name} is {declared[name]!r}, but a baseline has no {name}")
    elif entry is None:
        near = registries.closest(mechanism, variant)
        closest = f"; closest: {near}" if near else ""
        yield warn(
            "gate/pair_registered", f"{mechanism}/{variant} is not in the registry of techniques{unread}{closest}"
        )
    for name in ("compression_method", "compression_scope"):
        if entry is not None and mechanism != BASELINE and declared.get(name) not in (None, getattr(entry, name)):
            yield note(
                "gate/review",
                f"{name} is {declared[name]!r}, for {mechanism}/{variant} the registry has {getattr(entry, name)!r}",
            )
    status, support = declared.get("quality_eval_status"), declared.get(SUPPORT_STATUS)
    for name, value, known in (
        ("quality_eval_status", status, QUALITY_STATUSES), (SUPPORT_STATUS, support, SUPPORT_STATUSES)
    ):  # fmt: skip
        if value is not None and value not in known:
            yield warn("gate/status_known", f"{name} is {value!r}, required: {', '.join(known)}")
    quality_id, needed = declared.get("quality_eval_id"), support == "supported" and registries.compresses(mechanism)
    if needed and status != "completed":
        sentence = f"quality_eval_status of supported {mechanism}: {status or 'missing'}, required: completed"
        yield warn("gate/quality_evaluated", sentence)
    if needed and quality_id is None:
        yield warn("gate/quality_evaluated", f"quality_eval_id of supported {mechanism} is missing")
    elif quality_id is not None and quality_id not in registries.quality_evals:
        sentence = f"quality_eval_id {quality_id!r} is not in the registry of quality evaluations{unread}"
        yield note("gate/review", sentence) if mechanism == BASELINE else warn("gate/quality_evaluated", sentence)
    for name in ("draft_model_id", "speculative_acceptance_rate"):
        if registries.drafts(mechanism) and declared.get(name) is None:
            yield warn("gate/draft_model_declared", f"{name} of {mechanism} is missing")


VALIDATION = "mechanism_eval_validation"  # key of the validation in a row


def validate(declared: Mapping[str, Any], registries: Registries) -> dict[str, Any]:
    """Return the validation of a row's declaration. Never raises.

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
