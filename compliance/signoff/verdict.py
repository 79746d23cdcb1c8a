"""The verdict on a scope and its two forms: audit_verdict.json, and the text for people."""

from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from compliance.finding import Finding
from compliance.signoff.reasons import Action, Decision, as_word, decide, in_a_line, is_unverifiable, reason_json
from runs.errors import ExitCode

SCHEMA_VERSION = 1
Scope = Literal["baseline", "profile", "harness", "patch", "bundle"]
SCOPES: tuple[Scope, ...] = ("baseline", "profile", "harness", "patch", "bundle")
Policy = Literal["open", "closed"]


@dataclass
class Verdict:
    """All that was found. `degraded` is set where the tool itself failed: then there is no verdict."""

    scope: Scope
    noise_band_pct: float
    policy: Policy
    short_name: str = ""
    reasons: list[Finding] = field(default_factory=list)
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
    degraded: str | None = None

    @property
    def decision(self) -> Decision | None:
        return None if self.degraded else decide(self.reasons)[0]

    @property
    def action(self) -> Action | None:
        return None if self.degraded else decide(self.reasons)[1]

    @property
    def unverifiable(self) -> bool:
        """Evidence is missing: nothing can be said of the result, whatever else was found."""
        return any(is_unverifiable(reason) for reason in self.reasons)

    @property
    def blocks(self) -> bool:
        """May nothing be built on it? Without a verdict that depends on the policy."""
        return self.policy == "closed" if self.degraded else self.decision == "FAIL"

    def exit_code(self, strict_flag: bool = False) -> ExitCode:
        """0 PASS or FLAG, 1 FAIL (and FLAG, where that is asked), 4 without a verdict."""
        if self.degraded:
            return ExitCode.FAILED
        negative = self.decision == "FAIL" or (strict_flag and self.decision == "FLAG")
        return ExitCode.NEGATIVE if negative else ExitCode.OK

    def as_json(self) -> dict[str, Any]:
        """The record, in the fields of a sign-off, whatever the scope; plain types only."""
        decision = self.decision
        record = {
            "schema_version": SCHEMA_VERSION,
            "short_name": self.short_name,
            "audit_scope": self.scope,
            "auditor_status": "degraded" if self.degraded else "ok",
            "error": self.degraded,
            "policy": self.policy,
            "blocks": self.blocks,
            "verdict": decision,
            "action": self.action,
            "unverifiable": self.unverifiable,
            "noise_band_pct": self.noise_band_pct,
            "levers": self.levers,
            "lever_class": self.lever_class,
            "lever_evidence": self.lever_evidence,
            "counts_as_kernel_win": decision == "PASS" and self.lever_class == "A",
            "e2e_delta_pct": self.e2e_delta_pct,
            "lever_decomposition": self.lever_decomposition,
            "non_overlapping": self.non_overlapping,
            "same_conditions_ok": self.same_conditions_ok,
            "baseline_drift_pct": self.baseline_drift_pct,
            "engagement_ok": self.engagement_ok,
            "headline_integrity": self.headline_integrity,
            "metrics": self.metrics,
            "correctness_status": self.correctness_status,
            "flags": [reason.slug for reason in self.reasons if reason.severity == "warning"],
            "reasons": [reason_json(reason) for reason in self.reasons],
            "note": self.headline,
            "ref": self.ref,
            "cand": self.cand,
            "log_sha256": self.log_sha256,
        }
        # The numbers of a reason may be NumPy's, which are no JSON by themselves.
        plain: dict[str, Any] = orjson.loads(orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY))
        return plain

    @property
    def headline(self) -> str:
        """One line: the verdict and its gravest reason."""
        if self.degraded:
            return f"DEGRADED: no verdict, the sign-off itself failed: {self.degraded}"
        word = f"{self.decision}{' (unverifiable)' if self.unverifiable else ''}, action {self.action}"
        worst = [reason for reason in self.reasons if as_word(reason) == self.decision]
        if not worst:
            return word
        more = f"; and {len(worst) - 1} more" if len(worst) > 1 else ""
        return f"{word}: {worst[0].group} {worst[0].slug}: {worst[0].sentence}{more}"

    def as_text(self) -> str:
        """For people: the verdict, what decides it, the numbers, then what else was seen."""
        lines = [f"Sign-off of a {self.scope}: {self.headline}", f"noise band {self.noise_band_pct:g} %"]
        for severity in ("FAIL", "FLAG", "NOTE"):
            lines += [f"  {in_a_line(reason)}" for reason in self.reasons if as_word(reason) == severity]
        for side, values in self.metrics.items():
            if values:
                lines.append(f"  {side}: " + "  ".join(f"{name} {value:.6g}" for name, value in values.items()))
        if self.e2e_delta_pct is not None:
            lines.append(f"  gain end to end: {self.e2e_delta_pct:+.3f} %")
        return "\n".join(lines) + "\n"
