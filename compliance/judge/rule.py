"""Rules: what a result, a tree or a technique must meet. Each is declared once, at the function that decides it.

Commands, divisions and rounds select rules by ID and kind, and never rename them. Sources begin with a mark (SOURCES),
or are a path in mlcommons/inference or in runs/.
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
RuleRow = tuple[str, RuleSeverity, str, str, str]  # ID, severity, source, summary, fix

OURS = "[ours]"
_INFERENCE = "mlcommons/inference b66003e1, "
SOURCES = {
    "[rules]": "mlcommons/inference_policies, inference_rules.adoc: ",
    "[submission]": "mlcommons/policies, submission_rules.adoc: ",
    "[checker]": f"{_INFERENCE}tools/submission/submission_checker: ",
    "[loadgen]": "LoadGen 6.0.17, what it writes, so what an unchanged log looks like: ",
    "[endpoints]": "MLPerf Endpoints, mlcommons/endpoints_policies 00135a0, endpoints_rules.md, and its checker, the "
    "package endpoints-submission-cli 1.5.3.0: ",
    OURS: "a rule of ours: it follows from what a result claims, and the official checker does not look at it",
}
AUDIT_AGAIN = "correct the system and run the audit again"
RERUN = "rerun and submit LoadGen's own logs"


class Rank(IntEnum):
    """How grave a violated rule is for a tree, the gravest first."""

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
    """A finding of a rule that is not declared: a fault of this program."""


@dataclass(frozen=True)
class Rule:
    """One rule. `id` is stable: scripts may rely on it."""

    id: str
    kind: Kind
    severity: RuleSeverity  # of a finding that the rule is violated; note: no rule is violated
    source: str  # where the rule comes from
    summary: str  # the rule in a few words
    fix: str  # what to do if it is violated
    rank: Rank

    @property
    def source_in_full(self) -> str:
        """With the repository and file of the mark."""
        mark, _, section = self.source.partition(" ")
        if mark in SOURCES:
            return (SOURCES[mark] + section).rstrip(": ")
        return self.source if self.source.startswith("runs/") else _INFERENCE + self.source


RULES: dict[str, Rule] = {}  # of the modules that are imported


def declare(kind: Kind, rows: Iterable[RuleRow], rank: Rank | None = None) -> None:
    """Add rules of one kind.

    Args:
        rank: None: that of the kind.

    Raises:
        UnknownRuleError: the ID is taken.
    """
    for rule_id, severity, source, summary, fix in rows:
        if rule_id in RULES:
            raise UnknownRuleError(f"two rules have the ID {rule_id}", "give each its own")
        of = _RANK_OF.get(kind, Rank.FILES) if rank is None else rank
        RULES[rule_id] = Rule(rule_id, kind, severity, source, summary, fix, of)


def all_rules() -> dict[str, Rule]:
    """Every rule of this package; imports all its modules."""
    import compliance

    for module in pkgutil.walk_packages(compliance.__path__, "compliance."):
        if not module.name.startswith("compliance.report"):  # it has no rules
            import_module(module.name)
    return RULES


def find_rule(rule_id: str) -> Rule:
    """The rule of that ID.

    Raises:
        UnknownRuleError: it is not declared.
    """
    if rule_id not in RULES:
        raise UnknownRuleError(f"there is no rule {rule_id}", "declare it at the function that decides it")
    return RULES[rule_id]
