"""What `check` found: one breach of one rule in one file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compliance.rules import Rule, find_rule

SHOWN = 200  # characters of foreign content in a message


@dataclass(frozen=True, order=True)
class Finding:
    """One finding, ordered by place. `file` is relative to the tree; `fix` is the rule's unless told otherwise."""

    file: str
    rule_id: str
    found: str
    expected: str
    fix: str

    @property
    def rule(self) -> Rule:
        return find_rule(self.rule_id)

    def as_json(self) -> dict[str, Any]:
        """With what the catalogue says of the rule."""
        return {
            "rule": self.rule_id,
            "severity": self.rule.severity,
            "file": self.file,
            "found": self.found,
            "expected": self.expected,
            "source": self.rule.source,
            "fix": self.fix,
        }


class Findings:
    """Collects what is found in one tree."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.items: list[Finding] = []

    def add(self, rule_id: str, path: Path, found: str, expected: str = "", fix: str = "") -> None:
        """Note a breach; `expected` and `fix` are the rule's own words where they are not given."""
        rule = find_rule(rule_id)
        self.items.append(
            Finding(self.name(path), rule_id, printable(found), printable(expected or rule.summary), fix or rule.fix)
        )

    def name(self, path: Path) -> str:
        """The path as it is shown: relative to the tree."""
        return printable(path.relative_to(self._root).as_posix(), 1000)


def printable(text: str, length: int = SHOWN * 2) -> str:
    """Foreign text on one line, without control characters and of bounded length."""
    plain = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text[: length + 1])
    return plain if len(plain) <= length else plain[:length] + "..."
