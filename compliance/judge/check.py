"""Checks: functions that decide rules. `judge` applies a list of checks to one subject.

A subject is a run, a result or a tree. Its `absent` method reports missing inputs. A check is not applied if its input
is missing or its rules do not apply to the subject; the reason is kept.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Literal, Protocol, TypeVar

from compliance.judge.finding import Finding
from compliance.judge.rule import Rank, RuleKind, RuleRow, UnknownRuleError, declare
from runs.errors import HarnessError, SetupError

Decider = TypeVar("Decider", bound=Callable[..., Any])

# Inputs that a check may need. Meanings: log: a complete detail log. numbers: LoadGen's results.
# record: the request log. manifest: manifest.json. responses: the whole accuracy log. text:
# accuracy.txt. conf: user.conf. both: a performance and an accuracy run. power, audit: directories in a tree.
# events, snapshot: files of the MLPerf Endpoints client. load: its measured phase. complete: it ended by itself.
# files: the files of one run, or all files that a sign-off reads. requests: at least one request of a run.
Need = Literal[
    "log", "numbers", "record", "manifest", "responses", "text", "conf", "both", "power", "audit", "events", "snapshot",
    "load", "complete", "files", "requests",
]  # fmt: skip

# Rules of these kinds are reported only if they are violated. They count as met if their check ran without a finding.
_SILENT: frozenset[RuleKind] = frozenset({"contradiction", "tree", "gate", "submit"})

NOT_APPLICABLE, WITHOUT_INPUT = "not applicable", "without input"


class Subject(Protocol):
    """A run, a result or a tree that checks are applied to."""

    def absent(self, need: Need) -> str:
        """Return the reason why an input is missing; empty if it is available."""


class Absent(Exception):
    """A missing input that a check finds while it runs. Its rules are then reported as not applied."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True)
class NotJudged:
    """Rules that were not applied, with the reason."""

    what: str  # NOT_APPLICABLE, WITHOUT_INPUT, or the subject
    why: str
    rules: tuple[str, ...] = ()
    results: tuple[str, ...] = ()  # results to which the rules were not applied, for a tree or multiple subjects


def always(_: Any) -> str:
    """Return an empty text: the rules apply to every subject."""
    return ""


@dataclass(frozen=True)
class Check:
    """The rules that one function decides together.

    Attributes:
        decide: Function that takes the subject.
        rules: Rule IDs.
        silent: Rule IDs that are reported only if they are violated.
        needs: Inputs that must be available.
        applies: Function that returns the reason why the rules do not apply to a subject; empty if they apply.
        after: Rule IDs; if one of them is violated, this check is not applied.
    """

    decide: Callable[..., Iterable[Finding] | None]
    rules: tuple[str, ...]
    silent: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    applies: Callable[[Any], str] = always
    after: tuple[str, ...] = ()


_CHECKS: dict[Callable[..., Any], Check] = {}


def decides(
    kind: RuleKind,
    *rows: RuleRow,
    needs: Sequence[Need] = (),
    applies: Callable[[Any], str] = always,
    after: Sequence[str] = (),
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
        silent = before.silent + (ids if kind in _SILENT else ())
        _CHECKS[function] = Check(
            function,
            before.rules + ids,
            silent,
            before.needs + tuple(needs),
            applies if before.applies is always else before.applies,
            before.after + tuple(after),
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
    inner = _deciders(*within)
    rules = declared.rules + tuple(rule for one in inner for rule in one.rules)
    silent = declared.silent + tuple(rule for one in inner for rule in one.silent)
    return replace(declared, **{"rules": rules, "silent": silent, **changed})


def rules_of(*deciders: Callable[..., Any] | ModuleType) -> frozenset[str]:
    """Return the rules that functions (or all functions of modules) report only if they are violated."""
    return frozenset(rule for one in _deciders(*deciders) for rule in one.silent)


def _deciders(*deciders: Callable[..., Any] | ModuleType) -> list[Check]:
    modules = {one.__name__ for one in deciders if isinstance(one, ModuleType)}
    return [one for one in _CHECKS.values() if one.decide in deciders or one.decide.__module__ in modules]


@dataclass
class Judgement:
    """Findings on one subject, and the rules that were not applied to it."""

    findings: list[Finding] = field(default_factory=list)
    applied: set[str] = field(default_factory=set)  # rules, met or violated
    reasons: dict[str, tuple[str, str]] = field(default_factory=dict)  # rule → kind and text of the reason
    error: HarnessError | None = None  # error of the first damaged input

    def take(self, part: "Judgement") -> None:
        """Add the findings on another part of the subject. A rule counts as applied if it was applied to any part."""
        self.findings += part.findings
        self.applied |= part.applied
        for rule, (what, why) in part.reasons.items():
            earlier = self.reasons.get(rule)
            if earlier is None or (earlier[0] == NOT_APPLICABLE and what == WITHOUT_INPUT):
                self.reasons[rule] = what, why
            elif earlier[0] == what and why not in earlier[1].split(" or "):
                self.reasons[rule] = what, f"{earlier[1]} or {why}"
        self.error = self.error or part.error

    def skip(self, checks: Iterable[Check], why: str) -> None:
        """Mark the rules of checks as not applied, because their input is missing."""
        reasons = dict.fromkeys((rule for one in checks for rule in one.rules), (WITHOUT_INPUT, why))
        self.take(Judgement(reasons=reasons))

    @property
    def not_judged(self) -> list[NotJudged]:
        """Rules that were not applied to any part of the subject, grouped by reason."""
        return grouped({rule: why for rule, why in self.reasons.items() if rule not in self.applied})


def grouped(reasons: Mapping[str, tuple[str, str]]) -> list[NotJudged]:
    """Group rules by the reason why they were not applied."""
    rules: dict[tuple[str, str], list[str]] = {}
    for rule, why in sorted(reasons.items()):
        rules.setdefault(why, []).append(rule)
    return [NotJudged(*why, tuple(ids)) for why, ids in rules.items()]


def judge(
    subject: Subject,
    checks: Iterable[Check],
    damaged: Callable[[Exception], Iterable[Finding]] | None = None,
) -> Judgement:
    """Apply checks to a subject, in their order.

    Args:
        damaged: Function that returns the findings for an exception in a check, for untrusted subjects. Without it,
            the first HarnessError becomes the error of the judgement, and other exceptions are raised.
    """
    judgement = Judgement()
    for item in checks:
        findings: list[Finding] = []
        try:
            if why := _not_judged(item, subject, judgement.findings):
                judgement.reasons |= dict.fromkeys(item.rules, why)
                continue
            findings.extend(item.decide(subject) or ())
        except UnknownRuleError:
            raise
        except Absent as missing:
            judgement.reasons |= dict.fromkeys(item.rules, (WITHOUT_INPUT, missing.why))
        except Exception as error:
            if damaged is not None:
                findings += damaged(error)
            elif isinstance(error, HarnessError):
                judgement.error = judgement.error or error
            else:
                raise
            reason = error.message if isinstance(error, HarnessError) else str(error)
            reason = reason if isinstance(error, SetupError) else f"damaged input: {reason}"
            judgement.reasons |= dict.fromkeys(item.rules, (WITHOUT_INPUT, reason))
        else:
            judgement.applied |= {*item.silent, *(finding.rule for finding in findings)}
            judgement.reasons |= dict.fromkeys(
                item.rules, (NOT_APPLICABLE, "the subject has nothing that these rules are about")
            )
        judgement.findings += findings
    return judgement


def _not_judged(item: Check, subject: Subject, so_far: Sequence[Finding]) -> tuple[str, str] | None:
    if why := next(_absences(item, subject), ""):
        return WITHOUT_INPUT, why
    if why := item.applies(subject):
        return NOT_APPLICABLE, why
    for finding in so_far if item.after else ():
        if finding.violated and finding.rule in item.after:
            return NOT_APPLICABLE, f"{finding.rule} is violated"
    return None


def _absences(item: Check, subject: Subject) -> Iterator[str]:
    for need in item.needs:
        if why := subject.absent(need):
            yield why
