"""The verdict of a sign-off with its action, its JSON (audit_verdict.json), and its text."""

from dataclasses import dataclass, field
from typing import Any, Literal

from compliance.judge.finding import Finding
from compliance.judge.text import by_severity, finding_lines
from compliance.judge.verdict import Outcome, Verdict
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
    *("short_name", "policy", "blocks", "action", "unverifiable", "noise_band_pct", "levers", "lever_class"),
    *("lever_evidence", "e2e_delta_pct", "lever_decomposition", "class_a", "non_overlapping", "ref", "cand"),
    *("baseline_drift_pct", "metrics", "corrected_headline", "correctness_status", "log_sha256"),
)
# Findings on missing evidence: the result can be neither confirmed nor refuted.
_UNVERIFIABLE = frozenset(
    {"missing_raw", "damaged_raw", "null_metric", "record_incomplete", "unverifiable_noncoherent_reference"}
)


def action_of(finding: Finding) -> Consequence:
    """Return the action of a FLAG."""
    return next((action for action, rules in _ACTIONS.items() if finding.rule in rules), "flag")


@dataclass
class SignOff(Verdict):
    """The verdict on a scope. If `error` is set, the sign-off itself failed and reached no verdict."""

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
    def action(self) -> Consequence | None:
        """The most important action that follows from the verdict."""
        actions = {action_of(finding) for finding in self.of("warning")}
        flag: Consequence = next((action for action in _ACTIONS if action in actions), "flag")
        named: dict[Outcome, Consequence | None] = {"PASS": "pass", "FLAG": flag, "FAIL": "eject", "ERROR": None}
        return named[self.outcome]

    @property
    def asks_remeasure(self) -> bool:
        """True if the runs should be repeated. `action` may still be a more important action."""
        return self.outcome == "FLAG" and any(action_of(one) == "remeasure" for one in self.of("warning"))

    @property
    def corrected_headline(self) -> str | None:
        """The headline number from the raw files, if it replaces the claimed number."""
        if self.action not in ("replace_headline_with_e2e", "downgrade_headline", "correct_headline"):
            return None
        alone = "" if self.class_a is None else f"; class A alone: {self.class_a['delta_pct']:+.2f}%"
        return f"{self.measured_headline}{alone}"

    @property
    def unverifiable(self) -> bool:
        """True if evidence for a verdict is missing."""
        return any(finding.slug in _UNVERIFIABLE for finding in self.of("error"))

    @property
    def blocks(self) -> bool:
        """True if the sign-off blocks a submission. If it reached no verdict, the policy decides."""
        return self.policy == "closed" if self.error is not None else self.outcome == "FAIL"

    def _compared(self) -> dict[str, Any]:
        """Return the results of the checks on a comparison."""
        if not self.compared:
            return dict.fromkeys(("same_conditions_ok", "engagement_ok", "headline_integrity"))
        severities = {finding.rule: finding.severity for finding in self.of("note", "warning", "error")}
        integrity = (
            "fail" if "G-6/cherry_picked" in severities else "flag" if "G-6/hidden_regression" in severities else "ok"
        )
        return {
            "same_conditions_ok": not any(rule[:4] == "G-1/" and severities[rule] == "error" for rule in severities),
            "engagement_ok": "G-5/engaged" in severities,
            "headline_integrity": integrity,
        }

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        """Return the content of audit_verdict.json. Its fields are equal for every scope."""
        record = super().record(strict=strict) | {name: getattr(self, name) for name in _RECORDED} | self._compared()
        del record["findings"]
        return record | {
            "audit_scope": self.scope,
            "auditor_status": "ok" if self.error is None else "degraded",
            "error": None if self.error is None else self.error.message,
            "verdict": self.outcome if self.error is None else None,
            "counts_as_kernel_win": self.outcome == "PASS" and self.lever_class == "A",
            "flags": [finding.rule for finding in self.of("warning")],
            "reasons": [finding.as_json() | {"action": action_of(finding)} for finding in self.findings],
            "note": self.headline,
        }

    @property
    def headline(self) -> str:
        """The verdict and its most severe reason, in one line."""
        if self.error is not None:
            return f"DEGRADED: no verdict, because the sign-off itself failed: {self.error.message}"
        word = f"{self.outcome}{' (unverifiable)' if self.unverifiable else ''}, action {self.action}"
        worst = self.of("error") or sorted(self.of("warning"), key=lambda one: action_of(one) != self.action)
        reasons = [f"{finding.rule}: {finding.sentence}" for finding in worst]
        return f"{word}: {shortened_list(reasons, 1)}" if reasons else word

    def as_text(self) -> str:
        """Return the verdict, all findings and the metrics as text."""
        lines = [f"Sign-off, scope {self.scope}: {self.headline}", f"noise band {self.noise_band_pct:g}%"]
        lines += finding_lines(self, by_severity(self), with_place=True)
        for side, values in self.metrics.items():
            if values:
                lines.append(f"  {side}: " + "  ".join(f"{name} {value:.6g}" for name, value in values.items()))
        if self.e2e_delta_pct is not None:
            lines.append(f"  end-to-end gain: {self.e2e_delta_pct:+.3f}%")
        if self.corrected_headline is not None:
            lines.append(f"  corrected headline: {self.corrected_headline}")
        return "\n".join(lines) + "\n"


def feedback(verdict: SignOff) -> dict[str, Any]:
    """Return every finding that lowers the verdict, most severe first."""
    record = verdict.record()
    of_verdict = ("schema_version", "short_name", "audit_scope", "verdict", "action", "error")
    of_finding = ("rule", "severity", "text", "found", "expected", "file")
    lowering = [] if verdict.error is not None else [one.as_json() for one in verdict.of("error", "warning")]
    to_mend = [{name: one[name] for name in of_finding} for one in lowering]
    return {name: record[name] for name in of_verdict} | {"to_mend": to_mend}
