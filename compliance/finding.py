"""What a rule found: the one form in which everything that is judged here is said.

A rule is a function over facts that yields findings. What becomes of a finding (does it block, under which id is it
told, with which exit code) is up to the command that asked: its policy. Programs look at `rule`, `severity` and
`numbers`; the texts are for people, and nothing ever depends on their wording.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from compliance.rules import Kind, Rule, UnknownRuleError, find_rule

# error: the rule was broken. warning: it was, and that alone refutes nothing. note: something a reader should know.
# pass: the rule was applied and kept.
Severity = Literal["error", "warning", "note", "pass"]


_WORDS: dict[Severity, str] = {"error": "FAIL", "warning": "warning", "note": "note", "pass": "pass"}


@dataclass(frozen=True)
class Finding:
    """One rule, applied to one thing."""

    rule: str  # id in the catalogue (compliance/rules)
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
        """What the catalogue says of the rule."""
        return find_rule(self.rule)

    @property
    def kind(self) -> Kind:
        return self.known.kind

    @property
    def passed(self) -> bool:
        return self.severity == "pass"

    @property
    def group(self) -> str:
        """The first part of an id such as P-3/clock."""
        return self.rule.partition("/")[0]

    @property
    def slug(self) -> str:
        """The last part of an id such as P-3/clock."""
        return self.rule.rpartition("/")[2]

    @property
    def where(self) -> str:
        """The files, with the line where one is known."""
        return " and ".join(map(str, self.files)) + (f":{self.line}" if self.line is not None else "")

    @property
    def sentence(self) -> str:
        """The finding without its outcome."""
        if not self.found:
            return self.text
        return f"{self.text}: {self.found}" + (f", required: {self.required}" if self.required else "")

    def __str__(self) -> str:
        return f"{_WORDS[self.severity]}: {self.sentence}"

    def as_json(self) -> dict[str, Any]:
        """With what the catalogue says of the rule."""
        return {
            "rule": self.rule,
            "kind": self.kind,
            "severity": self.severity,
            "text": self.text,
            "files": [str(path) for path in self.files],
            "line": self.line,
            "numbers": dict(self.numbers),
            "found": self.found,
            "required": self.required,
            "source": self.known.source,
            "fix": self.fix or self.known.fix,
        }


def applied(rule: str, text: str, passed: bool, found: str, required: str, *files: Path, **numbers: Any) -> Finding:
    """A rule that was applied: kept, or broken with its own severity."""
    severity: Severity = "pass" if passed else find_rule(rule).severity
    return Finding(rule, severity, text, files, numbers, found, required)


def check_json(check: Finding) -> dict[str, Any]:
    """A rule that was applied, as verify and the audits record it."""
    return {"name": check.text, "passed": check.passed, **check.as_json()}


def fail(rule: str, text: str, *files: Path, line: int | None = None, **numbers: Any) -> Finding:
    """A rule that was broken, in a sentence."""
    return Finding(rule, "error", text, files, numbers, line=line)


def warn(rule: str, text: str, *files: Path, **numbers: Any) -> Finding:
    """The same, where that alone refutes nothing."""
    return Finding(rule, "warning", text, files, numbers)


def note(rule: str, text: str, *files: Path, **numbers: Any) -> Finding:
    """Something a reader should know."""
    return Finding(rule, "note", text, files, numbers)


@dataclass(frozen=True)
class Policy:
    """What a command makes of the rules of others: under which of its own rules it tells each of them."""

    name: str  # the command's
    rules: Mapping[str, str | None]  # rule → the command's rule; None: it has another way to tell of it

    def rule_for(self, finding: Finding) -> str | None:
        """The command's rule.

        Raises:
            UnknownRuleError: nobody has said what the command makes of this rule.
        """
        if finding.rule not in self.rules:
            raise UnknownRuleError(
                f"{self.name} does not know the rule {finding.rule}", f"add it to the policy of {self.name}"
            )
        return self.rules[finding.rule]
