"""Rules for results, trees and techniques. Each is declared once, at the function that decides it.

Rule IDs and kinds are stable, because scripts select rules by them. The source of a rule begins with a mark (SOURCES)
or is a path in mlcommons/inference or in runs/.
"""

import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from typing import Literal

from runs.errors import HarnessError

# The kinds of rules. contradiction: files that cannot all be true. result: every result, official or not. official: a
# result that claims to be eligible for submission. plausible: what no honest system does, in any result. tree: a
# submission tree. submit: before a tree is built. gate: a declared technique. signoff: the independent sign-off. audit:
# an audit's runs. machine: what a run needs to start.
Kind = Literal[
    "contradiction", "result", "official", "plausible", "tree", "signoff", "audit", "submit", "gate", "machine"
]  # fmt: skip
ON_RUNS: frozenset[Kind] = frozenset({"contradiction", "result", "official", "plausible"})

RuleSeverity = Literal["error", "warning", "note"]
# ID, severity, source, summary (noun phrase for the checked value), fix.
RuleRow = tuple[str, RuleSeverity, str, str, str]

OURS = "[ours]"
_INFERENCE = "mlcommons/inference b66003e1, "
SOURCES = {
    "[rules]": "mlcommons/inference_policies, inference_rules.adoc: ",
    "[submission]": "mlcommons/policies, submission_rules.adoc: ",
    "[checker]": f"{_INFERENCE}tools/submission/submission_checker: ",
    "[loadgen]": "LoadGen 6.0.17, what it writes, so what an unchanged log looks like: ",
    "[endpoints]": "MLPerf Endpoints, mlcommons/endpoints_policies 00135a0, endpoints_rules.md, and its checker, the "
    "package endpoints-submission-cli 1.5.3.0: ",
    OURS: "a rule of this harness: it follows from what a result claims; the official checker does not check it",
}
AUDIT_AGAIN = "correct the system and run the audit again"
RERUN = "rerun and submit LoadGen's own logs"


class Rank(IntEnum):
    """Order of causes in the check of a tree, most severe first."""

    COPIES = 0  # contradictions and copies
    AUDITS = 1  # audits that are empty, missing or failing
    LIMITS = 2  # rules and limits
    SETTINGS = 3  # settings that did not take effect
    FILES = 4  # files and descriptions


_RANK_OF: dict[Kind, Rank] = {
    "contradiction": Rank.COPIES,
    "plausible": Rank.COPIES,
    "audit": Rank.AUDITS,
    "official": Rank.LIMITS,
    "result": Rank.LIMITS,
}


class UnknownRuleError(HarnessError):
    """An undeclared or doubly declared rule ID: a fault of this program."""


@dataclass(frozen=True)
class Rule:
    """Definition of one rule. Its `id` never changes, because scripts rely on it."""

    id: str
    kind: Kind
    severity: RuleSeverity  # severity of a violation; note: for the reader only
    source: str  # origin of the rule
    summary: str  # noun phrase for what is checked
    fix: str  # instruction for a violation; may be empty
    rank: Rank

    @property
    def source_in_full(self) -> str:
        """The source with the repository and file that its mark stands for."""
        return source_in_full(self.source)


def source_in_full(source: str) -> str:
    """Return a source with the repository and file that its mark stands for."""
    mark, _, section = source.partition(" ")
    if mark in SOURCES:
        return (SOURCES[mark] + section).rstrip(": ")
    return source if source.startswith("runs/") else _INFERENCE + source


RULES: dict[str, Rule] = {}  # rules of all imported modules, by ID


def declare(kind: Kind, rows: Iterable[RuleRow], rank: Rank | None = None) -> None:
    """Add rules of one kind.

    Args:
        rank: Default: the rank of the kind.

    Raises:
        UnknownRuleError: If a rule with this ID exists.
    """
    for rule_id, severity, source, summary, fix in rows:
        if rule_id in RULES:
            raise UnknownRuleError(f"two rules have the ID {rule_id}", "give each rule its own ID")
        of = _RANK_OF.get(kind, Rank.FILES) if rank is None else rank
        RULES[rule_id] = Rule(rule_id, kind, severity, source, summary, fix, of)


def all_rules() -> dict[str, Rule]:
    """Return every rule of this package, after importing all its modules."""
    import compliance

    for module in pkgutil.walk_packages(compliance.__path__, "compliance."):
        if not module.name.startswith("compliance.report"):  # these modules have no rules
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
