"""The verdict on a scope: what its findings add up to, what is to be done, and its two forms, audit_verdict.json and
the text for people."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from compliance.finding import Finding, Severity
from runs.errors import ExitCode

SCHEMA_VERSION = 1
Scope = Literal["baseline", "profile", "harness", "patch", "bundle"]
SCOPES: tuple[Scope, ...] = ("baseline", "profile", "harness", "patch", "bundle")
Policy = Literal["open", "closed"]


Decision = Literal["PASS", "FLAG", "FAIL"]
Action = Literal["pass", "eject", "downgrade_headline", "replace_headline_with_e2e", "flag", "remeasure"]

# FAIL decides alone; FLAG keeps the result and corrects the claim; NOTE decides nothing.
WORDS: dict[Severity, str] = {"error": "FAIL", "warning": "FLAG", "note": "NOTE", "pass": "NOTE"}
# What a FLAG of these rules asks for; any other is just a flag.
_ACTIONS: dict[str, Action] = {
    "B-1/noisy_baseline": "remeasure",
    "B-2/warmup_outlier": "remeasure",
    "B-2/outlier": "remeasure",
    "B-6/baseline_imperfect": "remeasure",
    "G-8/not_a_kernel_gain": "downgrade_headline",
    "G-11/isolated_headline": "replace_headline_with_e2e",
}
# Of several flags, the one that says most about the headline names the action.
_FLAG_ACTIONS: tuple[Action, ...] = ("replace_headline_with_e2e", "downgrade_headline", "remeasure", "flag")
# Fields of the record, in order.
_RECORDED = (
    *("short_name", "audit_scope", "auditor_status", "error", "policy", "blocks", "verdict", "action", "unverifiable"),
    *("noise_band_pct", "levers", "lever_class", "lever_evidence", "counts_as_kernel_win", "e2e_delta_pct"),
    *("lever_decomposition", "non_overlapping", "same_conditions_ok", "baseline_drift_pct", "engagement_ok"),
    *("headline_integrity", "metrics", "correctness_status", "flags", "reasons", "note", "ref", "cand", "log_sha256"),
)
# Evidence that is not there: nothing can then be said of the result.
_UNVERIFIABLE = frozenset({"missing_raw", "unverifiable_noncoherent_reference"})


def decide(findings: Iterable[Finding]) -> tuple[Decision, Action]:
    """The verdict of all findings together: the gravest counts, nothing outweighs a FAIL."""
    found = list(findings)
    if any(finding.severity == "error" for finding in found):
        return "FAIL", "eject"
    actions = {action_of(finding) for finding in found if finding.severity == "warning"}
    if actions:
        return "FLAG", next(action for action in _FLAG_ACTIONS if action in actions)
    return "PASS", "pass"


def action_of(finding: Finding) -> Action:
    """What a FLAG asks for."""
    return _ACTIONS.get(finding.rule, "flag")


def is_unverifiable(finding: Finding) -> bool:
    """Does it say that nothing can be said of the result, whatever else was found?"""
    return finding.severity == "error" and finding.slug in _UNVERIFIABLE


def as_word(finding: Finding) -> str:
    """Its worth, as a sign-off says it."""
    return WORDS[finding.severity]


def in_a_line(finding: Finding) -> str:
    """One finding, for people."""
    place = f" [{finding.where}]" if finding.files else ""
    return f"{as_word(finding)} {finding.rule}: {finding.sentence}{place}"


def reason_json(finding: Finding) -> dict[str, Any]:
    """One finding, as it stands in audit_verdict.json."""
    return {
        "rule": finding.rule,
        "severity": as_word(finding),
        "text": finding.sentence,
        "where": finding.where,
        "numbers": dict(finding.numbers),
        "action": action_of(finding),
    }


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
        said = {
            "audit_scope": self.scope,
            "auditor_status": "degraded" if self.degraded else "ok",
            "error": self.degraded,
            "verdict": decision,
            "counts_as_kernel_win": decision == "PASS" and self.lever_class == "A",
            "flags": [reason.rule for reason in self.reasons if reason.severity == "warning"],
            "reasons": [reason_json(reason) for reason in self.reasons],
            "note": self.headline,
        }
        record: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
        record |= {name: said[name] if name in said else getattr(self, name) for name in _RECORDED}
        # The numbers of a reason may be NumPy's, which are no JSON by themselves.
        plain: dict[str, Any] = orjson.loads(orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY))
        return plain

    @property
    def headline(self) -> str:
        """One line: the verdict and its gravest reason."""
        if self.degraded:
            return f"DEGRADED: no verdict, the sign-off itself failed: {self.degraded}"
        decision = self.decision  # asked once: there may be a reason for each pair of legs
        word = f"{decision}{' (unverifiable)' if self.unverifiable else ''}, action {self.action}"
        worst = [reason for reason in self.reasons if as_word(reason) == decision]
        if not worst:
            return word
        more = f"; and {len(worst) - 1} more" if len(worst) > 1 else ""
        return f"{word}: {worst[0].rule}: {worst[0].sentence}{more}"

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


def feedback(verdict: Verdict) -> dict[str, Any]:
    """What has to be mended: every reason that lowers the verdict, the gravest first, by rule and file.

    The reasons of a degraded sign-off are left out: it found nothing that could be relied on.
    """
    record = verdict.as_json()
    of_verdict = ("schema_version", "short_name", "audit_scope", "verdict", "action", "error")
    of_reason = ("rule", "severity", "text", "where")
    found = [] if verdict.degraded else verdict.reasons
    lowering = [reason_json(one) for severity in ("error", "warning") for one in found if one.severity == severity]
    return {name: record[name] for name in of_verdict} | {
        "to_mend": [{name: reason[name] for name in of_reason} for reason in lowering]
    }
