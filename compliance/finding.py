"""Rules, and what they found: the one form in which everything that is judged here is said.

A rule is declared once, at the function that decides it: id, severity, source, summary, fix. Commands, divisions and
rounds choose among rules by id and kind; they never give one another name. Programs look at `rule`, `severity` and
`numbers`; the texts are for people, and nothing depends on their wording.

Sources begin with a mark (SOURCES), or are a path in mlcommons/inference or here (runs/).
"""

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import orjson

from runs.errors import HarnessError

# contradiction: files that cannot all be true. result: without it there is no result at all, official or not.
# official: asked of a result that claims to be official. plausible: what no honest system does, asked of any result.
# tree: asked of a submission tree. submit: asked before one is built. gate: asked of a declared technique.
# signoff: asked by the independent sign-off. audit: asked of an audit's legs. machine: what a leg needs to start.
Kind = Literal[
    "contradiction", "result", "official", "plausible", "tree", "signoff", "audit", "submit", "gate", "machine"
]  # fmt: skip
ON_LEGS: frozenset[Kind] = frozenset({"contradiction", "result", "official", "plausible"})

Worth = Literal["error", "warning", "note"]
# error: the rule was broken. warning: it was, and that alone refutes nothing. note: something a reader should know.
# pass: the rule was applied and kept.
Severity = Literal["error", "warning", "note", "pass"]
Row = tuple[str, Worth, str, str, str]  # id, severity, source, summary, fix
Decider = TypeVar("Decider", bound=Callable[..., Any])

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
RERUN = "run the leg again and submit LoadGen's own logs"
_WORDS: dict[Severity, str] = {"error": "FAIL", "warning": "warning", "note": "note", "pass": "pass"}


class UnknownRuleError(HarnessError):
    """A finding of a rule that nobody declared: a mistake in this program, and no verdict."""


@dataclass(frozen=True)
class Rule:
    """One rule. `id` is stable: scripts may rely on it."""

    id: str
    kind: Kind
    severity: Worth  # what a breach is worth by itself; note: nothing is broken, a reader should know
    source: str  # where the rule comes from
    summary: str  # the rule in a few words
    fix: str  # what to do about a breach
    decide: Callable[..., Any] | None = field(default=None, compare=False)  # what decides it

    @property
    def source_in_full(self) -> str:
        """With the repository and the file that the mark stands for."""
        mark, _, section = self.source.partition(" ")
        if mark in SOURCES:
            return (SOURCES[mark] + section).rstrip(": ")
        return self.source if self.source.startswith("runs/") else _INFERENCE + self.source


RULES: dict[str, Rule] = {}  # of the modules that are imported


def declare(kind: Kind, rows: Iterable[Row], decide: Callable[..., Any] | None = None) -> None:
    """Add rules of one kind.

    Raises:
        UnknownRuleError: there is one of that id.
    """
    for rule_id, severity, source, summary, fix in rows:
        if rule_id in RULES:
            raise UnknownRuleError(f"two rules are named {rule_id}", "give each an id of its own")
        RULES[rule_id] = Rule(rule_id, kind, severity, source, summary, fix, decide)


# What breaks rules of these kinds is told, and nothing of what keeps them: where the decider came to its end, they were
# asked. Of every other kind whoever compares says so (`applied`, `asked`).
_SILENT: frozenset[Kind] = frozenset({"contradiction", "tree"})


@dataclass
class Noted:
    """Ids of rules."""

    asked: set[str] = field(default_factory=set)
    passed_over: set[str] = field(default_factory=set)

    @property
    def rules(self) -> frozenset[str]:
        """Those that were asked, whether kept or broken."""
        return frozenset(self.asked - self.passed_over)


_NOTED: ContextVar[Noted | None] = ContextVar("noted", default=None)


@contextmanager
def noting_what_is_asked() -> Iterator[Noted]:
    """What is asked within the block."""
    noted = Noted()
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def asked(*rules: str) -> None:
    """These are asked here, whatever comes of it."""
    if (noted := _NOTED.get()) is not None:
        noted.asked.update(rules)


def passed_over(*rules: str) -> None:
    """These are not asked here, though their decider comes to its end."""
    if (noted := _NOTED.get()) is not None:
        noted.passed_over.update(rules)


def decides(kind: Kind, *rows: Row) -> Callable[[Decider], Decider]:
    """Declare the rules that a function decides."""
    silent = [row[0] for row in rows] if kind in _SILENT else []

    def declared(function: Decider) -> Decider:
        @wraps(function)
        def noted(*args: Any, **options: Any) -> Any:
            outcome = function(*args, **options)
            asked(*silent)
            return outcome

        declare(kind, rows, noted)
        return cast("Decider", noted)

    return declared


def all_rules() -> dict[str, Rule]:
    """Every rule of this package, also of modules that nobody has imported yet."""
    import compliance

    for module in pkgutil.walk_packages(compliance.__path__, "compliance."):
        if not module.name.startswith("compliance.report"):  # it judges nothing
            import_module(module.name)
    return RULES


def find_rule(rule_id: str) -> Rule:
    """The rule of that id.

    Raises:
        UnknownRuleError: nobody declared it.
    """
    if rule_id not in RULES:
        raise UnknownRuleError(f"there is no rule {rule_id}", "declare it at the function that decides it")
    return RULES[rule_id]


@dataclass(frozen=True)
class Finding:
    """One rule, applied to one thing."""

    rule: str  # its id
    severity: Severity  # what this finding is worth; mostly the rule's own
    text: str  # what was looked at, in a few words; or the whole finding as a sentence, where `found` is empty
    # the files (or directories) that it is about; of a contradiction all those that it is between
    files: tuple[Path, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict, hash=False)  # what decided, for programs
    # found, required: texts with their units
    found: str = ""
    required: str = ""
    fix: str = ""  # what to do; the rule's own words where it is empty
    line: int | None = None  # in the first of the files, counted from 1

    def __post_init__(self) -> None:
        find_rule(self.rule)

    @property
    def known(self) -> Rule:
        """The rule."""
        return find_rule(self.rule)

    @property
    def kind(self) -> Kind:
        return self.known.kind

    @property
    def passed(self) -> bool:
        return self.severity == "pass"

    @property
    def slug(self) -> str:
        """The last part of an id such as P-5/same_process."""
        return self.rule.rpartition("/")[2]

    @property
    def where(self) -> str:
        """The files, with the line where one is known."""
        return " and ".join(map(str, self.files)) + (f":{self.line}" if self.line is not None else "")

    @property
    def sentence(self) -> str:
        """The finding without its outcome and its rule."""
        if not self.found:
            return self.text
        said = f"{self.text}: {self.found}" if self.text else self.found
        return said + (f", required: {self.required}" if self.required else "")

    def __str__(self) -> str:
        return f"{_WORDS[self.severity]} {self.rule}: {self.sentence}"

    @property
    def line_with_place(self) -> str:
        """For people: what it is worth, its rule, a sentence, and where it was seen."""
        return f"{self} [{self.where}]" if self.files else str(self)

    def as_json(self) -> dict[str, Any]:
        """For programs, with what the rule says of itself. NumPy's numbers are no JSON by themselves."""
        rule, plain = self.known, orjson.dumps(dict(self.numbers), option=orjson.OPT_SERIALIZE_NUMPY)
        return {
            "rule": rule.id,
            "kind": rule.kind,
            "severity": self.severity,
            "text": self.text,
            "found": self.found,
            "expected": self.required,
            "file": str(self.files[0]) if self.files else "",
            "files": [str(path) for path in self.files],
            "line": self.line,
            "numbers": orjson.loads(plain),
            "source": rule.source_in_full,
            "fix": self.fix or rule.fix,
        }


def applied(rule: str, text: str, passed: bool, found: str, required: str, *files: Path, **numbers: Any) -> Finding:
    """A rule that was applied: kept, or broken with its own severity. Without a text it is told in the rule's words."""
    known = find_rule(rule)
    asked(rule)
    severity: Severity = "pass" if passed else known.severity
    return Finding(rule, severity, text or known.summary, files, numbers, found, required)


def fail(rule: str, text: str, *files: Path, line: int | None = None, **numbers: Any) -> Finding:
    """A rule that was broken, in a sentence."""
    return Finding(rule, "error", text, files, numbers, line=line)


def warn(rule: str, text: str, *files: Path, **numbers: Any) -> Finding:
    """The same, where that alone refutes nothing."""
    return Finding(rule, "warning", text, files, numbers)


def note(rule: str, text: str, *files: Path, **numbers: Any) -> Finding:
    """Something a reader should know."""
    return Finding(rule, "note", text, files, numbers)
