"""Names of compliance/judge, until every module imports them from there."""

from compliance.judge.check import Decider, decides
from compliance.judge.finding import Finding, Severity, applied, fail, note, warn
from compliance.judge.rule import (
    AUDIT_AGAIN,
    ON_LEGS,
    OURS,
    RERUN,
    RULES,
    SOURCES,
    Kind,
    Rule,
    UnknownRuleError,
    all_rules,
    declare,
    find_rule,
)
from compliance.judge.rule import Row as Row
from compliance.judge.rule import Worth as Worth
from compliance.judge.verdict import OUTCOME_OF as WORTH
from compliance.judge.verdict import Outcome, Verdict

__all__ = [
    "AUDIT_AGAIN", "ON_LEGS", "OURS", "RERUN", "RULES", "SOURCES", "WORTH", "Decider", "Finding",
    "Kind", "Outcome", "Rule", "Severity", "UnknownRuleError", "Verdict", "all_rules", "applied", "decides", "declare",
    "fail", "find_rule", "note", "warn",
]  # fmt: skip
