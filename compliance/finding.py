"""Rules, findings, and the verdicts that findings add up to; used by everything that judges.

A rule is declared once, at the function that decides it: id, severity, source, summary, fix. Commands, divisions and
rounds select rules by id and kind, and never rename them. Programs read `rule`, `severity` and `numbers`, never texts.

Sources begin with a mark (SOURCES), or are a path in mlcommons/inference or in runs/.
"""

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

import orjson

from runs.errors import ExitCode, HarnessError

if TYPE_CHECKING:  # so that declaring rules does not import the readers of legs
    from runs.record.leg import FinishedLeg

# The kinds of rules. contradiction: files that cannot all be true. result: every result, official or not. official: a
# result that claims to be official. plausible: what no honest system does, in any result. tree: a submission tree.
# submit: before a tree is built. gate: a declared technique. signoff: the independent sign-off. audit: an audit's legs.
# machine: what a leg needs to start.
Kind = Literal[
    "contradiction", "result", "official", "plausible", "tree", "signoff", "audit", "submit", "gate", "machine"
]  # fmt: skip
ON_LEGS: frozenset[Kind] = frozenset({"contradiction", "result", "official", "plausible"})

Worth = Literal["error", "warning", "note"]
# error: the rule was broken. warning: it was broken, which alone refutes no result. note: for the reader. pass: it was
# applied and kept.
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
    """A finding of a rule that is not declared: a fault of this program."""


@dataclass(frozen=True)
class Rule:
    """One rule. `id` is stable: scripts may rely on it."""

    id: str
    kind: Kind
    severity: Worth  # of a finding that the rule is broken; note: no rule is broken
    source: str  # where the rule comes from
    summary: str  # the rule in a few words
    fix: str  # what to do if it is broken

    @property
    def source_in_full(self) -> str:
        """With the repository and file of the mark."""
        mark, _, section = self.source.partition(" ")
        if mark in SOURCES:
            return (SOURCES[mark] + section).rstrip(": ")
        return self.source if self.source.startswith("runs/") else _INFERENCE + self.source


RULES: dict[str, Rule] = {}  # of the modules that are imported


def declare(kind: Kind, rows: Iterable[Row]) -> None:
    """Add rules of one kind.

    Raises:
        UnknownRuleError: the id is taken.
    """
    for rule_id, severity, source, summary, fix in rows:
        if rule_id in RULES:
            raise UnknownRuleError(f"two rules have the id {rule_id}", "give each its own")
        RULES[rule_id] = Rule(rule_id, kind, severity, source, summary, fix)


# Deciders of these kinds report broken rules only: a call of the decider is what shows that its rules were applied.
# Deciders of other kinds report kept rules too.
_SILENT: frozenset[Kind] = frozenset({"contradiction", "tree"})
_APPLIED: list[set[str]] = []  # ids of rules; one set for each block below, the innermost last


@contextmanager
def applied_rules() -> Iterator[set[str]]:
    """Collect the ids of the rules that are applied within the block."""
    found: set[str] = set()
    _APPLIED.append(found)
    try:
        yield found
    finally:
        _APPLIED.pop()


def note_applied(*rules: str) -> None:
    """Add rules to those of the innermost block."""
    for found in _APPLIED[-1:]:
        found.update(rules)


def decides(kind: Kind, *rows: Row) -> Callable[[Decider], Decider]:
    """Declare the rules that a function decides."""
    declare(kind, rows)
    silent = [row[0] for row in rows] if kind in _SILENT else []
    if not silent:
        return lambda function: function

    def declared(function: Decider) -> Decider:
        @wraps(function)
        def noted(*args: Any, **options: Any) -> Any:
            note_applied(*silent)
            return function(*args, **options)

        return cast("Decider", noted)

    return declared


def all_rules() -> dict[str, Rule]:
    """Every rule of this package; imports all its modules."""
    import compliance

    for module in pkgutil.walk_packages(compliance.__path__, "compliance."):
        if not module.name.startswith("compliance.report"):  # it has no rules
            import_module(module.name)
    return RULES


def find_rule(rule_id: str) -> Rule:
    """The rule of that id.

    Raises:
        UnknownRuleError: it is not declared.
    """
    if rule_id not in RULES:
        raise UnknownRuleError(f"there is no rule {rule_id}", "declare it at the function that decides it")
    return RULES[rule_id]


@dataclass(frozen=True)
class Finding:
    """One rule, applied to one thing."""

    rule: str  # its id
    severity: Severity  # mostly the rule's own
    text: str  # what was compared, in a few words; the whole finding as a sentence if `found` is empty
    # files or directories that it is about; of a contradiction all that it is between
    files: tuple[Path, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict, hash=False)  # that decided, for programs
    # found, required: texts with their units
    found: str = ""
    required: str = ""
    fix: str = ""  # empty: the rule's own
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
    def violated(self) -> bool:
        """Whether the rule was broken; a note breaks none."""
        return self.severity in ("error", "warning")

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
        """For people: severity, rule, sentence and place."""
        return f"{self} [{self.where}]" if self.files else str(self)

    def as_json(self) -> dict[str, Any]:
        """For programs, with the rule's source and fix. NumPy's numbers are no JSON by themselves."""
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
    """A rule that was applied: kept, or broken with its own severity. `text` defaults to the rule's summary."""
    known = find_rule(rule)
    note_applied(rule)
    severity: Severity = "pass" if passed else known.severity
    return Finding(rule, severity, text or known.summary, files, numbers, found, required)


def fail(rule: str, text: str, *files: Path, line: int | None = None, **numbers: Any) -> Finding:
    """A broken rule, as a sentence."""
    return Finding(rule, "error", text, files, numbers, line=line)


def warn(rule: str, text: str, *files: Path, **numbers: Any) -> Finding:
    """A broken rule that alone refutes no result."""
    return Finding(rule, "warning", text, files, numbers)


def note(rule: str, text: str, *files: Path, **numbers: Any) -> Finding:
    """A finding for the reader."""
    return Finding(rule, "note", text, files, numbers)


# Verdicts -------------------------------------------------------------------------------------------------------------

SCHEMA_VERSION = 1
# FAIL: there is an error. FLAG: there are warnings. ERROR: there is no verdict.
Outcome = Literal["PASS", "FLAG", "FAIL", "ERROR"]
WORTH: dict[Severity, Outcome] = {"error": "FAIL", "warning": "FLAG", "note": "PASS", "pass": "PASS"}


@dataclass
class Verdict:
    """Findings, and what they add up to."""

    findings: list[Finding] = field(default_factory=list, kw_only=True)
    not_judged: dict[str, list[str]] = field(default_factory=dict, kw_only=True)  # of what, and why
    error: HarnessError | None = field(default=None, kw_only=True)  # why there is no verdict

    def of(self, *severities: Severity) -> list[Finding]:
        """The findings of these severities, in their order."""
        return [finding for severity in severities for finding in self.findings if finding.severity == severity]

    @property
    def outcome(self) -> Outcome:
        """By the gravest finding."""
        if self.error is not None:
            return "ERROR"
        there = {WORTH[finding.severity] for finding in self.findings}
        return "FAIL" if "FAIL" in there else "FLAG" if "FLAG" in there else "PASS"

    def exit_code(self, *, strict: bool = False) -> ExitCode:
        """Warnings count with `strict`."""
        if self.error is not None:
            return self.error.exit_code
        negative = self.outcome == "FAIL" or (strict and self.outcome == "FLAG")
        return ExitCode.NEGATIVE if negative else ExitCode.OK

    @property
    def reasons(self) -> list[str]:
        """Why the outcome is not PASS."""
        if self.error is not None:
            return [self.error.message]
        return [finding.sentence for finding in self.of("error")]

    def finding_lines(self) -> list[str]:
        """For people: a line for each finding, the gravest first."""
        return [f"  {finding.line_with_place}" for finding in self.of("error", "warning", "note", "pass")]

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        """The fields of every record of a verdict; plain types only."""
        return {
            "schema_version": SCHEMA_VERSION,
            "verdict": self.outcome,
            "exit_code": int(self.exit_code(strict=strict)),
            "error": None if self.error is None else {"message": self.error.message, "fix": self.error.fix},
            "findings": [finding.as_json() for finding in self.findings],
            "not_judged": self.not_judged,
        }


@dataclass
class LegVerdict(Verdict):
    """The findings on one leg of a result."""

    mode: Literal["performance", "accuracy"]
    directory: str
    scenario: str
    loadgen_key: str
    loadgen_version: str
    claims_official: bool
    declared_unofficial: list[str]  # the leg's own record of why it is not official
    rule: str  # that decides the verdict on this part
    notes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # the numbers, for people
    details: dict[str, Any] = field(default_factory=dict)  # the numbers, for programs
    reference_score: float | None = None
    test_score: float | None = None

    @classmethod
    def begin(cls, leg: "FinishedLeg", rule: str) -> Self:
        """Without findings yet."""
        return cls(
            mode="performance" if leg.is_performance else "accuracy",
            directory=str(leg.run.root),
            scenario=leg.scenario,
            loadgen_key=leg.benchmark.loadgen_key,
            loadgen_version=str(leg.detail.get("loadgen_version", "")),
            claims_official=leg.claims_official,
            declared_unofficial=leg.manifest.unofficial_reasons if leg.manifest else [],
            rule=rule,
        )

    @property
    def contradictions(self) -> list[Finding]:
        """Files that cannot all be true."""
        return [finding for finding in self.findings if finding.kind == "contradiction"]

    @property
    def checks(self) -> list[Finding]:
        """Rules that were applied, kept or broken."""
        return [finding for finding in self.findings if finding.kind != "contradiction"]

    @property
    def broken(self) -> list[Finding]:
        """Rules that were broken, without contradictions."""
        return [check for check in self.checks if check.severity == "error"]

    def failed(self, official: bool) -> list[Finding]:
        """Broken rules that count; `official` applies the official rules whatever the leg claims."""
        strict = official or self.claims_official
        return [check for check in self.broken if strict or check.kind != "official"]

    def failures(self, official: bool) -> list[str]:
        """Why the part does not pass, in sentences."""
        found = [check.sentence for check in self.failed(official)]
        return found if self.claims_official or not official else found + self.declared_unofficial

    def unofficial(self) -> list[str]:
        """Why the part is not official; empty if it claims to be."""
        if self.claims_official:
            return []
        return self.declared_unofficial + [check.sentence for check in self.broken if check.kind == "official"]

    def as_json(self) -> dict[str, Any]:
        """The record."""
        return asdict(replace(self, findings=[])) | {"findings": [finding.as_json() for finding in self.findings]}
