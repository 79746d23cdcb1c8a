"""Rules for results, trees and techniques. Each is declared once, at the function that decides it.

Rule IDs and kinds are stable, because scripts select rules by them. The source of a rule begins with a mark (SOURCES)
or is a path in mlcommons/inference or in runs/. The mark of a rule in another package is its name in brackets.
"""

import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from typing import Literal

from runs.errors import HarnessError

# The kinds of rules, by what they apply to. contradiction: files that contradict each other. result: every result.
# official: results that claim to be eligible for submission. plausible: values that no honest system reaches. tree: a
# submission tree. submit: results before a tree is built from them. gate: a declared technique. signoff: runs in the
# independent sign-off. audit: the runs of an audit. machine: requirements for the start of a run.
RuleKind = Literal[
    "contradiction", "result", "official", "plausible", "tree", "signoff", "audit", "submit", "gate", "machine"
]  # fmt: skip
ON_RUNS: frozenset[RuleKind] = frozenset({"contradiction", "result", "official", "plausible"})

RuleSeverity = Literal["error", "warning", "note"]
# The fields of a rule: ID, severity, source, summary (noun phrase for the checked value), fix.
RuleRow = tuple[str, RuleSeverity, str, str, str]

OURS = "[ours]"
_INFERENCE = "mlcommons/inference b66003e1, "
SOURCES = {
    "[rules]": "mlcommons/inference_policies, inference_rules.adoc: ",
    "[submission]": "mlcommons/policies, submission_rules.adoc: ",
    "[checker]": f"{_INFERENCE}tools/submission/submission_checker: ",
    "[loadgen]": "LoadGen 6.0.17, format of its logs: ",
    "[endpoints]": "MLPerf Endpoints, mlcommons/endpoints_policies 00135a0, endpoints_rules.md, and its checker, the "
    "package endpoints-submission-cli 1.5.3.0: ",
    OURS: "a rule of this harness, which the official checker does not apply",
}
AUDIT_AGAIN = "correct the system and run the audit again"
RERUN = "rerun and submit LoadGen's own logs"


class Rank(IntEnum):
    """Order of causes in the check of a tree, most severe first."""

    COPIES = 0  # logs that contradict each other or are copies
    AUDITS = 1  # audits that are empty, missing or failing
    LIMITS = 2  # violated rules and limits
    SETTINGS = 3  # settings that did not take effect
    FILES = 4  # missing or invalid files and descriptions


_RANK_OF: dict[RuleKind, Rank] = {
    "contradiction": Rank.COPIES,
    "plausible": Rank.COPIES,
    "audit": Rank.AUDITS,
    "official": Rank.LIMITS,
    "result": Rank.LIMITS,
}


class UnknownRuleError(HarnessError):
    """A rule ID is undeclared or declared twice: a fault of this program."""


@dataclass(frozen=True)
class Rule:
    """Definition of one rule. Its `id` never changes, because scripts rely on it."""

    id: str
    kind: RuleKind
    severity: RuleSeverity  # severity of a violation; note: only information for the reader
    source: str  # origin of the rule
    summary: str  # noun phrase for what is checked
    fix: str  # instruction for a violation; may be empty
    rank: Rank

    @property
    def source_in_full(self) -> str:
        """The source as text. Its mark is replaced with the repository and file that the mark stands for."""
        return source_in_full(self.source)


def source_in_full(source: str) -> str:
    """Return a source with the repository and file that its mark stands for."""
    mark, _, section = source.partition(" ")
    if mark in SOURCES:
        return (SOURCES[mark] + section).rstrip(": ")
    if mark.startswith("["):
        return f"a rule of package {mark[1:-1]}"
    return source if source.startswith("runs/") else _INFERENCE + source


RULES: dict[str, Rule] = {}  # rules of all imported modules, by ID


def declare(kind: RuleKind, rows: Iterable[RuleRow], rank: Rank | None = None) -> None:
    """Add rules of one kind.

    Args:
        rank: Default: the rank of the kind.

    Raises:
        UnknownRuleError: If a rule with this ID exists.
    """
    for rule_id, severity, source, summary, fix in rows:
        if rule_id in RULES:
            raise UnknownRuleError(f"two rules have the ID {rule_id}", "give each rule its own ID")
        rank_of_rows = _RANK_OF.get(kind, Rank.FILES) if rank is None else rank
        RULES[rule_id] = Rule(rule_id, kind, severity, source, summary, fix, rank_of_rows)


def all_rules() -> dict[str, Rule]:
    """Return every rule of this package, after importing all its modules."""
    import compliance

    for module in pkgutil.walk_packages(compliance.__path__, "compliance."):
        if not module.name.startswith("compliance.report"):  # the modules of compliance.report have no rules
            import_module(module.name)
    return RULES


def find_rule(rule_id: str) -> Rule:
    """Return the rule with an ID.

    Raises:
        UnknownRuleError: If the rule is not declared.
    """
    if rule_id not in RULES:
        raise UnknownRuleError(f"rule {rule_id} does not exist", "declare it at the function that decides it")
    return RULES[rule_id]
