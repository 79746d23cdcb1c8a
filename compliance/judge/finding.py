"""Findings: a rule, applied to one thing. Programs read `rule`, `severity` and `numbers`, never texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from compliance.judge.rule import Kind, Rule, find_rule

# error: violated. warning: violated, which alone does not fail a result. note: for the reader. pass: met.
Severity = Literal["error", "warning", "note", "pass"]
_WORDS: dict[Severity, str] = {"error": "FAIL", "warning": "warning", "note": "note", "pass": "pass"}


@dataclass(frozen=True)
class Finding:
    """One rule, applied to one thing."""

    rule: str  # its ID
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
    decided_by: tuple[str, ...] = ()  # keys in the files, whose lines are shown

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
        """Whether the rule was violated; a note violates none."""
        return self.severity in ("error", "warning")

    @property
    def slug(self) -> str:
        """The last part of an ID such as P-5/same_process."""
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


def compared(
    rule: str,
    text: str,
    passed: bool,
    found: str,
    required: str,
    *files: Path,
    decided_by: Sequence[str] = (),
    **numbers: Any,
) -> Finding:
    """A rule that was applied: met, or violated with its own severity. `text` defaults to the rule's summary."""
    known = find_rule(rule)
    severity: Severity = "pass" if passed else known.severity
    return Finding(rule, severity, text or known.summary, files, numbers, found, required, decided_by=tuple(decided_by))


def fail(
    rule: str, text: str, *files: Path, line: int | None = None, decided_by: Sequence[str] = (), **numbers: Any
) -> Finding:
    """A violated rule, as a sentence."""
    return Finding(rule, "error", text, files, numbers, line=line, decided_by=tuple(decided_by))


def warn(rule: str, text: str, *files: Path, **numbers: Any) -> Finding:
    """A violated rule that alone refutes no result."""
    return Finding(rule, "warning", text, files, numbers)


def note(rule: str, text: str, *files: Path, **numbers: Any) -> Finding:
    """A finding for the reader."""
    return Finding(rule, "note", text, files, numbers)
