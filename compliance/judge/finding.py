"""Findings: results of rules. Programs read their `rule`, `severity` and `numbers`, but not their texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from compliance.judge.rule import Rule, RuleKind, find_rule, source_in_full

# error: violated. warning: violated, but no result fails by it alone. note: information for the reader. pass: met.
Severity = Literal["error", "warning", "note", "pass"]
_WORDS: dict[Severity, str] = {"error": "FAIL", "warning": "warning", "note": "note", "pass": "pass"}


@dataclass(frozen=True)
class Finding:
    """The result of applying one rule to one file or run."""

    rule: str  # rule ID
    severity: Severity  # usually the severity that the rule has
    text: str  # name of the compared value; a whole sentence if `found` is empty
    # files or directories that the finding is about
    files: tuple[Path, ...] = ()
    # Values that decided the finding, for programs.
    numbers: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # `found` and `required` are texts with units
    found: str = ""
    required: str = ""
    fix: str = ""  # empty: the fix of the rule counts
    line: int | None = None  # line number in the first file, from 1
    decided_by: tuple[str, ...] = ()  # keys of the log records that decided the finding; reports show their lines
    origin: str = ""  # source that differs from the source of the rule
    is_statement: bool = False  # True: `text` is a whole sentence, which has the values `found` and `required` in it

    def __post_init__(self) -> None:
        find_rule(self.rule)

    @property
    def definition(self) -> Rule:
        """Definition of the rule."""
        return find_rule(self.rule)

    @property
    def source(self) -> str:
        """Source of the violated requirement, as a mark and a section."""
        return self.origin or self.definition.source

    @property
    def kind(self) -> RuleKind:
        return self.definition.kind

    @property
    def passed(self) -> bool:
        return self.severity == "pass"

    @property
    def violated(self) -> bool:
        """True if the rule is violated. A note is not a violation."""
        return self.severity in ("error", "warning")

    @property
    def slug(self) -> str:
        """The last part of a rule ID, such as `same_process` of P-5/same_process."""
        return self.rule.rpartition("/")[2]

    @property
    def where(self) -> str:
        """The files, with the line numbers in the first file if they are known."""
        lines = self.numbers.get("lines", {}).values() or ([] if self.line is None else [self.line])
        first = f"{self.files[0] if self.files else ''}" + (f":{','.join(map(str, lines))}" if lines else "")
        return " and ".join((first, *map(str, self.files[1:])))

    @property
    def sentence(self) -> str:
        """What was compared, found and required, for people. No code parses it."""
        if self.is_statement or not self.found:
            return self.text
        comparison = f"{self.text}: {self.found}" if self.text else self.found
        return comparison + (f", required: {self.required}" if self.required else "")

    def __str__(self) -> str:
        return f"{_WORDS[self.severity]} {self.rule}: {self.sentence}"

    @property
    def line_with_place(self) -> str:
        """The finding as a line of text: severity, rule ID, sentence and files."""
        return f"{self} [{self.where}]" if self.files else str(self)

    def as_json(self) -> dict[str, Any]:
        """Return the finding for programs, with source and fix of the rule. NumPy's numbers become plain numbers."""
        rule, plain = self.definition, orjson.dumps(dict(self.numbers), option=orjson.OPT_SERIALIZE_NUMPY)
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
            "source": source_in_full(self.source),
            "fix": self.fix or rule.fix,
        }


def compared(
    rule: str,
    passed: bool,
    found: str,
    required: str,
    *files: Path,
    text: str = "",
    severity: Severity | None = None,
    fix: str = "",
    line: int | None = None,
    decided_by: Sequence[str] = (),
    origin: str = "",
    **numbers: Any,
) -> Finding:
    """Return a comparison of a value with the required value.

    Args:
        text: Name of the value. Default: the summary of the rule.
        severity: Severity if the rule is violated. Default: the severity of the rule.
    """
    definition = find_rule(rule)
    return Finding(
        rule, "pass" if passed else severity or definition.severity, text or definition.summary, files, numbers, found,
        required, fix, line, tuple(decided_by), origin,
    )  # fmt: skip


def stated(
    rule: str,
    text: str = "",
    *files: Path,
    found: str = "",
    required: str = "",
    severity: Severity | None = None,
    fix: str = "",
    line: int | None = None,
    decided_by: Sequence[str] = (),
    **numbers: Any,
) -> Finding:
    """Return a whole sentence, and the values in it for programs.

    Args:
        text: The sentence. Default: "FOUND, but REQUIRED".
        found: Value that the sentence states. Default: the sentence, if it states a violation.
        required: Value that the sentence states as required.
        severity: Default: the severity of the rule.
    """
    severity = severity or find_rule(rule).severity
    text = text or (f"{found}, but {required}" if required else found)
    if severity in ("error", "warning"):
        found = found or text
    return Finding(
        rule, severity, text, files, numbers, found, required, fix, line, tuple(decided_by), is_statement=True
    )  # fmt: skip
