"""Rules for results, trees and techniques, and the checks that decide them. Each is declared once, at its function.

Rule IDs and kinds are stable, because scripts select rules by them. The source of a rule begins with a mark (SOURCES)
or is a path in mlcommons/inference or in runs/. The mark of a rule in another package is its name in brackets.
"""

import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, TypeVar

from runs.errors import HarnessError

# The kinds of rules, by what they apply to. contradiction: files that contradict each other. result: every result.
# official: results that claim to be eligible for submission. plausible: values that no honest system reaches. tree: a
# submission tree. submit: results before a tree is built from them. gate: a declared technique. signoff: runs in the
# independent sign-off. audit: the runs of an audit. machine: requirements for the start of a run.
RuleKind = Literal[
    "contradiction", "result", "official", "plausible", "tree", "signoff", "audit", "submit", "gate", "machine"
]  # fmt: skip

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


# Checks ---------------------------------------------------------------------------------------------------------------


Decider = TypeVar("Decider", bound=Callable[..., Any])

# Inputs that a check may need. Meanings: log: a complete detail log. numbers: LoadGen's results.
# record: the request log. manifest: manifest.json. responses: the whole accuracy log. text:
# accuracy.txt. conf: user.conf. scores: all scores in accuracy.txt, and the accuracy log. both: a performance and an
# accuracy run. power, audit: directories in a tree. events, snapshot: files of the MLPerf Endpoints client. load: its
# measured phase. complete: it ended by itself. files: the files of one run, or all files that a sign-off reads.
# requests: at least one request of a run. runs: the runs of a tree.
Need = Literal[
    "log", "numbers", "record", "manifest", "responses", "text", "conf", "scores", "both", "power", "audit", "events",
    "snapshot", "load", "complete", "files", "requests", "runs",
]  # fmt: skip

# Rules of these kinds are reported only if they are violated. They count as met if their check ran without a finding.
_SILENT: frozenset[RuleKind] = frozenset({"contradiction", "tree", "gate", "submit"})


def always(_: Any) -> str:
    """Return an empty text: the rules apply to every subject."""
    return ""


@dataclass(frozen=True)
class Check:
    """The rules that one function decides together.

    Attributes:
        decide: Function that takes the subject, and yields findings and rules that it does not apply.
        rules: Rule IDs.
        silent: Rule IDs that are reported only if they are violated.
        needs: Inputs that must be available.
        applies: Function that returns the reason why the rules do not apply to a subject; empty if they apply.
        over_parts: True if the function also takes the verdicts on the parts of the subject.
        is_decisive: False for a claim whose violation does not end the checks of the subject.
    """

    decide: Callable[..., Iterable[Any] | None]
    rules: tuple[str, ...]
    silent: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    applies: Callable[[Any], str] = always
    over_parts: bool = False
    is_decisive: bool = True


_CHECKS: dict[Callable[..., Any], Check] = {}


def decides(
    kind: RuleKind,
    *rows: RuleRow,
    needs: Sequence[Need] = (),
    applies: Callable[[Any], str] = always,
    also: Sequence[str] = (),
    rank: Rank | None = None,
) -> Callable[[Decider], Decider]:
    """Declare the rules that a function decides. Multiple uses on one function add rules of other kinds.

    Args:
        also: Further rule IDs, declared at another function.
        rank: Rank of the rows. Default: the rank of the kind.
    """
    declare(kind, rows, rank)
    ids = (*(row[0] for row in rows), *also)

    def registered(function: Decider) -> Decider:
        before = _CHECKS.get(function, Check(function, ()))
        _CHECKS[function] = Check(
            function,
            before.rules + ids,
            before.silent + (ids if kind in _SILENT else ()),
            before.needs + tuple(needs),
            applies if before.applies is always else before.applies,
        )
        return function

    return registered


def check_of(function: Callable[..., Any], *within: Callable[..., Any] | ModuleType, **changed: Any) -> Check:
    """Return the check of a function.

    Args:
        within: Functions that it calls, or their modules, whose rules it decides too.
        changed: Fields to replace.
    """
    declared = _CHECKS.get(function, Check(function, ()))
    modules = {part.__name__ for part in within if isinstance(part, ModuleType)}
    inner = [check for check in _CHECKS.values() if check.decide in within or check.decide.__module__ in modules]
    rules = declared.rules + tuple(rule for check in inner for rule in check.rules)
    silent = declared.silent + tuple(rule for check in inner for rule in check.silent)
    return replace(declared, **{"rules": rules, "silent": silent, **changed})
