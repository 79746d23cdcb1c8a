"""The verdict of a sign-off with its action, its JSON (audit_verdict.json), and its text."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from compliance.judge.record import finding_record, not_applied_record, record
from compliance.judge.text import TextLayout, by_severity, text
from compliance.judge.verdict import Finding, Outcome, Verdict, not_applied
from runs.wording import shortened_list

SignOffScope = Literal["baseline", "profile", "harness", "patch", "bundle"]
SCOPES: tuple[SignOffScope, ...] = ("baseline", "profile", "harness", "patch", "bundle")
OnFailure = Literal["open", "closed"]
Consequence = Literal[
    "pass", "eject", "downgrade_headline", "replace_headline_with_e2e", "correct_headline", "flag", "remeasure"
]

# Default noise band in percent, for spread, drift and gain; --noise-band sets it.
NOISE_BAND_PCT = 0.5
MAX_ROUNDS = 3  # maximum number of repetitions that are added to a side

# Action of a FLAG → rules that cause it, most important action first. All other rules cause the action `flag`.
_ACTIONS: dict[Consequence, frozenset[str]] = {
    "replace_headline_with_e2e": frozenset({"G-11/isolated_headline"}),
    "downgrade_headline": frozenset({"G-8/not_a_kernel_gain"}),
    "correct_headline": frozenset({"G-2/overstated"}),
    "remeasure": frozenset(
        {"B-1/noisy_baseline", "B-2/warmup_outlier", "B-2/outlier", "B-4/contended", "B-6/baseline_imperfect"}
    ),
}
# Attributes that become fields of audit_verdict.json.
_RECORDED = (
    *("short_name", "policy", "noise_band_pct", "levers", "lever_class"),
    *("lever_evidence", "e2e_delta_pct", "lever_decomposition", "class_a", "non_overlapping", "ref", "cand"),
    *("baseline_drift_pct", "metrics", "correctness_status", "log_sha256"),
)
# Findings on missing evidence: the result can be neither confirmed nor refuted.
_UNVERIFIABLE = frozenset(
    {"missing_raw", "damaged_raw", "null_metric", "record_incomplete", "unverifiable_noncoherent_reference"}
)


def action_of(finding: Finding) -> Consequence:
    """Return the action of a FLAG."""
    return next((action for action, rules in _ACTIONS.items() if finding.rule in rules), "flag")


@dataclass
class SignOffDetails:
    """What a sign-off states besides the findings. If its verdict has an error, the sign-off itself failed."""

    scope: SignOffScope
    noise_band_pct: float
    policy: OnFailure
    short_name: str = ""
    ref: list[str] = field(default_factory=list)
    cand: list[str] = field(default_factory=list)
    log_sha256: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics: dict[str, dict[str, float]] = field(default_factory=lambda: {"ref": {}, "cand": {}})
    measured_headline: str = ""  # recomputed headline metric of each side; empty if it is unknown
    # In a comparison, the checks G fill the following fields.
    compared: bool = False
    levers: list[str] = field(default_factory=list)
    lever_class: str | None = None
    lever_evidence: dict[str, Any] = field(default_factory=dict)  # fact → [reference, candidate]
    e2e_delta_pct: float | None = None
    lever_decomposition: list[dict[str, Any]] = field(default_factory=list)
    class_a: dict[str, float] | None = None  # gain from options of class A (`delta_pct`), and its `share`
    non_overlapping: bool | None = None
    baseline_drift_pct: float | None = None
    correctness_status: str | None = None

    @property
    def kind(self) -> str:
        """The scope; of a comparison with a candidate, both words."""
        return f"{self.scope} with candidate" if self.cand else self.scope

    def as_json(self, verdict: "SignOff", common: dict[str, Any]) -> dict[str, Any]:
        """Return the content of audit_verdict.json. Its fields are equal for every scope."""
        del common["findings"]
        missing = [entry for entry in not_applied(*verdict.all_verdicts) if entry.lacks_input or entry.what]
        return (
            common
            | {name: getattr(self, name) for name in _RECORDED}
            | _compared(verdict)
            | {
                "blocks": blocks(verdict),
                "action": action(verdict),
                "unverifiable": is_unverifiable(verdict),
                "corrected_headline": corrected_headline(verdict),
                "not_judged": [not_applied_record(entry) for entry in missing],
                "audit_scope": self.scope,
                "auditor_status": "ok" if verdict.error is None else "degraded",
                "error": None if verdict.error is None else verdict.error.message,
                "verdict": verdict.outcome if verdict.error is None else None,
                "counts_as_kernel_win": verdict.outcome == "PASS" and self.lever_class == "A",
                "flags": [finding.rule for finding in verdict.of("warning")],
                "reasons": [
                    finding_record(finding) | {"action": action_of(finding)} for finding in verdict.all_findings
                ],
                "note": headline(verdict),
            }
        )


SignOff = Verdict[SignOffDetails]


def action(verdict: SignOff) -> Consequence | None:
    """Return the most important action that follows from the verdict."""
    actions = {action_of(finding) for finding in verdict.of("warning")}
    flag: Consequence = next((name for name in _ACTIONS if name in actions), "flag")
    named: dict[Outcome, Consequence | None] = {"PASS": "pass", "FLAG": flag, "FAIL": "eject", "ERROR": None}
    return named[verdict.outcome]


def asks_remeasure(verdict: SignOff) -> bool:
    """Return True if the runs should be repeated. `action` may still return a more important action."""
    return verdict.outcome == "FLAG" and any(action_of(finding) == "remeasure" for finding in verdict.of("warning"))


def corrected_headline(verdict: SignOff) -> str | None:
    """Return the headline number from the raw files, if it replaces the claimed number."""
    if action(verdict) not in ("replace_headline_with_e2e", "downgrade_headline", "correct_headline"):
        return None
    class_a = verdict.details.class_a
    alone = "" if class_a is None else f"; class A alone: {class_a['delta_pct']:+.2f}%"
    return f"{verdict.details.measured_headline}{alone}"


def is_unverifiable(verdict: SignOff) -> bool:
    """Return True if evidence for a verdict is missing."""
    return any(finding.slug in _UNVERIFIABLE for finding in verdict.of("error"))


def blocks(verdict: SignOff) -> bool:
    """Return True if the sign-off blocks a submission. If it reached no verdict, the policy decides."""
    return verdict.details.policy == "closed" if verdict.error is not None else verdict.outcome == "FAIL"


def _compared(verdict: SignOff) -> dict[str, Any]:
    """Return the results of the checks on a comparison."""
    if not verdict.details.compared:
        return dict.fromkeys(("same_conditions_ok", "engagement_ok", "headline_integrity"))
    severities = {finding.rule: finding.severity for finding in verdict.of("note", "warning", "error")}
    integrity = (
        "fail" if "G-6/cherry_picked" in severities else "flag" if "G-6/hidden_regression" in severities else "ok"
    )
    return {
        "same_conditions_ok": not any(rule[:4] == "G-1/" and severities[rule] == "error" for rule in severities),
        "engagement_ok": "G-5/engaged" in severities,
        "headline_integrity": integrity,
    }


def headline(verdict: SignOff) -> str:
    """Return the verdict and its most severe reason, in one line."""
    if verdict.error is not None:
        return f"DEGRADED: no verdict, because the sign-off itself failed: {verdict.error.message}"
    deciding = action(verdict)
    word = f"{verdict.outcome}{' (unverifiable)' if is_unverifiable(verdict) else ''}, action {deciding}"
    worst = verdict.of("error") or sorted(verdict.of("warning"), key=lambda finding: action_of(finding) != deciding)
    reasons = [f"{finding.rule}: {finding.sentence}" for finding in worst]
    return f"{word}: {shortened_list(reasons, 1)}" if reasons else word


def sign_off_text(verdict: SignOff) -> str:
    """Return the verdict, all findings and the metrics as text."""
    return text(verdict, TextLayout(_head, shown=by_severity, with_place=True, with_not_applied=False, tail=_tail))


def _head(verdict: SignOff) -> Iterator[str]:
    yield f"Sign-off, scope {verdict.details.scope}: {headline(verdict)}"
    yield f"noise band {verdict.details.noise_band_pct:g}%"


def _tail(verdict: SignOff) -> Iterator[str]:
    details = verdict.details
    for side, values in details.metrics.items():
        if values:
            yield f"  {side}: " + "  ".join(f"{name} {value:.6g}" for name, value in values.items())
    if details.e2e_delta_pct is not None:
        yield f"  end-to-end gain: {details.e2e_delta_pct:+.3f}%"
    if (corrected := corrected_headline(verdict)) is not None:
        yield f"  corrected headline: {corrected}"


def feedback(verdict: SignOff) -> dict[str, Any]:
    """Return every finding that lowers the verdict, most severe first."""
    content = record(verdict)
    of_verdict = ("schema_version", "short_name", "audit_scope", "verdict", "action", "error")
    of_finding = ("rule", "severity", "text", "found", "expected", "file")
    lowering = (
        [] if verdict.error is not None else [finding_record(finding) for finding in verdict.of("error", "warning")]
    )
    to_mend = [{name: reason[name] for name in of_finding} for reason in lowering]
    return {name: content[name] for name in of_verdict} | {"to_mend": to_mend}
