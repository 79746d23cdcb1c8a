"""What the findings of a sign-off add up to: its verdict, and what is to be done."""

from collections.abc import Iterable
from typing import Any, Literal

from compliance.finding import Finding, Severity

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
    return f"{as_word(finding)} {finding.group} {finding.slug}: {finding.sentence}{place}"


def reason_json(finding: Finding) -> dict[str, Any]:
    """One finding, as it stands in audit_verdict.json."""
    return {
        "check": finding.group,
        "slug": finding.slug,
        "severity": as_word(finding),
        "text": finding.sentence,
        "where": finding.where,
        "numbers": dict(finding.numbers),
        "action": action_of(finding),
    }
