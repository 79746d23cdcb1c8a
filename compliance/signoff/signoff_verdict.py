"""The verdict on a scope: what its findings add up to, what is to be done, and its two forms, audit_verdict.json and
the text for people."""

from dataclasses import dataclass, field
from typing import Any, Literal

from compliance.finding import Finding, Outcome, Verdict
from runs.wording import shortened_list

Scope = Literal["baseline", "profile", "harness", "patch", "bundle"]
SCOPES: tuple[Scope, ...] = ("baseline", "profile", "harness", "patch", "bundle")
Policy = Literal["open", "closed"]


Action = Literal["pass", "eject", "downgrade_headline", "replace_headline_with_e2e", "flag", "remeasure"]

# What a FLAG of these rules asks for; any other is just a flag.
_ACTIONS: dict[str, Action] = {
    "B-1/noisy_baseline": "remeasure",
    "B-2/warmup_outlier": "remeasure",
    "B-2/outlier": "remeasure",
    "B-6/baseline_imperfect": "remeasure",
    "G-8/not_a_kernel_gain": "downgrade_headline",
    "G-11/isolated_headline": "replace_headline_with_e2e",
}
_FLAG_ACTIONS: tuple[Action, ...] = ("replace_headline_with_e2e", "downgrade_headline", "remeasure", "flag")
# Fields of the record as they are.
_RECORDED = (
    *("short_name", "policy", "blocks", "action", "unverifiable", "noise_band_pct", "levers", "lever_class"),
    *("lever_evidence", "e2e_delta_pct", "lever_decomposition", "non_overlapping", "same_conditions_ok", "ref", "cand"),
    *("baseline_drift_pct", "engagement_ok", "headline_integrity", "metrics", "correctness_status", "log_sha256"),
)
# Evidence that is not there: nothing can then be said of the result.
_UNVERIFIABLE = frozenset({"missing_raw", "unverifiable_noncoherent_reference"})


def action_of(finding: Finding) -> Action:
    """What a FLAG asks for."""
    return _ACTIONS.get(finding.rule, "flag")


@dataclass
class SignOff(Verdict):
    """All that was found. `error` is set where the tool itself failed: then there is no verdict."""

    scope: Scope
    noise_band_pct: float
    policy: Policy
    short_name: str = ""
    ref: list[str] = field(default_factory=list)
    cand: list[str] = field(default_factory=list)
    log_sha256: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics: dict[str, dict[str, float]] = field(default_factory=lambda: {"ref": {}, "cand": {}})
    levers: list[str] = field(default_factory=list)
    lever_class: str | None = None
    lever_evidence: dict[str, Any] = field(default_factory=dict)
    e2e_delta_pct: float | None = None
    lever_decomposition: list[dict[str, Any]] = field(default_factory=list)
    non_overlapping: bool | None = None
    same_conditions_ok: bool | None = None
    baseline_drift_pct: float | None = None
    engagement_ok: bool | None = None
    headline_integrity: str | None = None
    correctness_status: str | None = None

    @property
    def action(self) -> Action | None:
        """Of several flags, the one that says most about the headline names the action."""
        asked = {action_of(finding) for finding in self.of("warning")}
        flag = next((action for action in _FLAG_ACTIONS if action in asked), None)
        named: dict[Outcome, Action | None] = {"PASS": "pass", "FLAG": flag, "FAIL": "eject", "ERROR": None}
        return named[self.outcome]

    @property
    def unverifiable(self) -> bool:
        """Evidence is missing: nothing can be said of the result, whatever else was found."""
        return any(finding.slug in _UNVERIFIABLE for finding in self.of("error"))

    @property
    def blocks(self) -> bool:
        """May nothing be built on it? Without a verdict that depends on the policy."""
        return self.policy == "closed" if self.error is not None else self.outcome == "FAIL"

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        """In the fields of a sign-off, whatever the scope."""
        record = super().record(strict=strict) | {name: getattr(self, name) for name in _RECORDED}
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
        """One line: the verdict and its gravest reason."""
        if self.error is not None:
            return f"DEGRADED: no verdict, the sign-off itself failed: {self.error.message}"
        word = f"{self.outcome}{' (unverifiable)' if self.unverifiable else ''}, action {self.action}"
        worst = self.of("error") or self.of("warning")
        reasons = [f"{finding.rule}: {finding.sentence}" for finding in worst]
        return f"{word}: {shortened_list(reasons, 1)}" if reasons else word

    def as_text(self) -> str:
        """For people: the verdict, what decides it, the numbers, then what else was seen."""
        lines = [f"Sign-off of a {self.scope}: {self.headline}", f"noise band {self.noise_band_pct:g} %"]
        lines += self.finding_lines()
        for side, values in self.metrics.items():
            if values:
                lines.append(f"  {side}: " + "  ".join(f"{name} {value:.6g}" for name, value in values.items()))
        if self.e2e_delta_pct is not None:
            lines.append(f"  gain end to end: {self.e2e_delta_pct:+.3f} %")
        return "\n".join(lines) + "\n"


def feedback(verdict: SignOff) -> dict[str, Any]:
    """What has to be mended: every reason that lowers the verdict, the gravest first, by rule and file.

    The reasons of a degraded sign-off are left out: it found nothing that could be relied on.
    """
    record = verdict.record()
    of_verdict = ("schema_version", "short_name", "audit_scope", "verdict", "action", "error")
    of_reason = ("rule", "severity", "text", "found", "expected", "file")
    lowering = [] if verdict.error is not None else [*verdict.of("error"), *verdict.of("warning")]
    rows = [finding.as_json() for finding in lowering]
    return {name: record[name] for name in of_verdict} | {
        "to_mend": [{name: row[name] for name in of_reason} for row in rows]
    }
