"""Checks: the rules that one function decides together, and `judge`, which applies a list of checks to one subject.

A subject is what checks are applied to: a run, a result, a tree. It tells what it lacks (`absent`). A check whose
input is missing is not judged, with the reason; so is one whose rules have no object.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Literal, Protocol, TypeVar

from compliance.judge.finding import Finding
from compliance.judge.rule import Kind, Rank, RuleRow, UnknownRuleError, declare
from runs.errors import HarnessError

Decider = TypeVar("Decider", bound=Callable[..., Any])

# The parts of a subject that a check may need. log: a detail log that can be judged. numbers: LoadGen's results.
# record: the request log. manifest: manifest.json. responses: the whole accuracy log. text:
# accuracy.txt. conf: user.conf. both: a performance and an accuracy run. power, audit: directories in a tree.
# events, snapshot: files of the MLPerf Endpoints client. load: its measured phase. complete: it ended by itself.
# files: those of the run of a row, or all that a sign-off reads. requests: a request of a run.
Need = Literal[
    "log", "numbers", "record", "manifest", "responses", "text", "conf", "both", "power", "audit", "events", "snapshot",
    "load", "complete", "files", "requests",
]  # fmt: skip

# Rules of these kinds are reported only where they are violated: that a check of theirs ran shows that they were met.
_SILENT: frozenset[Kind] = frozenset({"contradiction", "tree", "gate", "submit"})

NOT_APPLICABLE, WITHOUT_INPUT = "not applicable", "without input"


class Subject(Protocol):
    """What checks are applied to."""

    def absent(self, need: Need) -> str:
        """Why a part is missing; empty if it is there."""


class Absent(Exception):  # no error: the reason why something is not judged
    """Raised by a check that finds its input missing."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True)
class NotJudged:
    """Rules that were not applied, and why."""

    what: str  # NOT_APPLICABLE, WITHOUT_INPUT, or the subject
    why: str
    rules: tuple[str, ...] = ()
    results: tuple[str, ...] = ()  # of a tree or a command on several subjects: those that it is about


def always(_: Any) -> str:
    """The rules have an object in every subject."""
    return ""


@dataclass(frozen=True)
class Check:
    """The rules that one function decides together.

    Attributes:
        decide: takes the subject.
        rules: IDs.
        silent: those of them that are reported only where they are violated.
        needs: parts of the subject that must be there.
        applies: why the rules have no object in a subject; empty where they have one.
        after: rules; where one of them is violated, this check is not judged.
    """

    decide: Callable[..., Iterable[Finding] | None]
    rules: tuple[str, ...]
    silent: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    applies: Callable[[Any], str] = always
    after: tuple[str, ...] = ()


_CHECKS: dict[Callable[..., Any], Check] = {}


def decides(
    kind: Kind,
    *rows: RuleRow,
    needs: Sequence[Need] = (),
    applies: Callable[[Any], str] = always,
    after: Sequence[str] = (),
    also: Sequence[str] = (),
    rank: Rank | None = None,
) -> Callable[[Decider], Decider]:
    """Declare the rules that a function decides. It may be used several times, with rules of several kinds.

    Args:
        also: rules that it decides too, and that are declared at another function.
        rank: of the rows; None: that of the kind.
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


def check(function: Callable[..., Any], *within: Callable[..., Any] | ModuleType, **changed: Any) -> Check:
    """The check that a function makes.

    Args:
        within: functions that it calls, or modules of such functions, whose rules it decides too.
        changed: fields that are other ones here.
    """
    own = _CHECKS.get(function, Check(function, ()))
    inner = _deciders(*within)
    rules = own.rules + tuple(rule for one in inner for rule in one.rules)
    silent = own.silent + tuple(rule for one in inner for rule in one.silent)
    return replace(own, **{"rules": rules, "silent": silent, **changed})


def rules_of(*deciders: Callable[..., Any] | ModuleType) -> frozenset[str]:
    """The rules that functions, or all functions of modules, decide and report only where they are violated."""
    return frozenset(rule for one in _deciders(*deciders) for rule in one.silent)


def _deciders(*deciders: Callable[..., Any] | ModuleType) -> list[Check]:
    modules = {one.__name__ for one in deciders if isinstance(one, ModuleType)}
    return [one for one in _CHECKS.values() if one.decide in deciders or one.decide.__module__ in modules]


@dataclass
class Judgement:
    """What came of judging one subject."""

    findings: list[Finding] = field(default_factory=list)
    applied: set[str] = field(default_factory=set)  # rules, met or violated
    reasons: dict[str, tuple[str, str]] = field(default_factory=dict)  # rule → what and why it was not judged
    error: HarnessError | None = None  # the first damaged part

    def take(self, other: "Judgement") -> None:
        """Add what came of judging another part of the same subject: a rule is judged if it is in one of them."""
        self.findings += other.findings
        self.applied |= other.applied
        for rule, (what, why) in other.reasons.items():
            known = self.reasons.get(rule)
            if known is None or (known[0] == NOT_APPLICABLE and what == WITHOUT_INPUT):
                self.reasons[rule] = what, why
            elif known[0] == what and why not in known[1].split(" or "):
                self.reasons[rule] = what, f"{known[1]} or {why}"
        self.error = self.error or other.error

    def leave(self, checks: Iterable[Check], why: str) -> None:
        """Note that checks lack their input."""
        reasons = dict.fromkeys((rule for one in checks for rule in one.rules), (WITHOUT_INPUT, why))
        self.take(Judgement(reasons=reasons))

    @property
    def not_judged(self) -> list[NotJudged]:
        """The rules that no part applied, by reason."""
        return grouped({rule: why for rule, why in self.reasons.items() if rule not in self.applied})


def grouped(reasons: Mapping[str, tuple[str, str]]) -> list[NotJudged]:
    """Rules by the reason why they were not judged."""
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
        damaged: the findings for a check that ended in an exception, for subjects that cannot be trusted. Without it
            the first HarnessError is the judgement's error, and another exception is raised.
    """
    found = Judgement()
    for one in checks:
        findings: list[Finding] = []
        try:
            if why := _not_judged(one, subject, found.findings):
                found.reasons |= dict.fromkeys(one.rules, why)
                continue
            findings.extend(one.decide(subject) or ())
        except UnknownRuleError:
            raise
        except Absent as missing:
            found.reasons |= dict.fromkeys(one.rules, (WITHOUT_INPUT, missing.why))
        except Exception as error:
            if damaged is not None:
                findings += damaged(error)
            elif isinstance(error, HarnessError):
                found.error = found.error or error
            else:
                raise
            said = error.message if isinstance(error, HarnessError) else str(error)
            found.reasons |= dict.fromkeys(one.rules, (WITHOUT_INPUT, f"damaged input: {said}"))
        else:
            found.applied |= {*one.silent, *(finding.rule for finding in findings)}
            found.reasons |= dict.fromkeys(one.rules, (NOT_APPLICABLE, "there is nothing of the kind"))
        found.findings += findings
    return found


def _not_judged(one: Check, subject: Subject, so_far: Sequence[Finding]) -> tuple[str, str] | None:
    if why := next(_absences(one, subject), ""):
        return WITHOUT_INPUT, why
    if why := one.applies(subject):
        return NOT_APPLICABLE, why
    for finding in so_far if one.after else ():
        if finding.violated and finding.rule in one.after:
            return NOT_APPLICABLE, f"{finding.rule} was found"
    return None


def _absences(one: Check, subject: Subject) -> Iterator[str]:
    for need in one.needs:
        if why := subject.absent(need):
            yield why
