"""What a sign-off finds: one reason each, with its check, its numbers and its file; and the verdict they add up to."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["FAIL", "FLAG", "NOTE"]
Decision = Literal["PASS", "FLAG", "FAIL"]
Action = Literal["pass", "eject", "downgrade_headline", "replace_headline_with_e2e", "flag", "remeasure"]

# Of several flags, the one that says most about the headline names the action.
_FLAG_ACTIONS: tuple[Action, ...] = ("replace_headline_with_e2e", "downgrade_headline", "remeasure", "flag")


@dataclass(frozen=True)
class Reason:
    """One finding.

    Attributes:
        check: id of the check, such as P-3 (docs/signoff.md lists them).
        slug: the kind of finding, stable, for programs.
        severity: FAIL decides alone; FLAG keeps the result and corrects the claim; NOTE decides nothing.
        text: a sentence with the numbers.
        where: the file, with the line where one is known.
        numbers: the same numbers for programs.
        action: what a FLAG asks for.
    """

    check: str
    slug: str
    severity: Severity
    text: str
    where: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    action: Action = "flag"

    def __str__(self) -> str:
        place = f" [{self.where}]" if self.where else ""
        return f"{self.severity} {self.check} {self.slug}: {self.text}{place}"


def fail(check: str, slug: str, text: str, where: object = "", **numbers: Any) -> Reason:
    """A reason that decides the verdict."""
    return Reason(check, slug, "FAIL", text, str(where), numbers)


def flag(check: str, slug: str, text: str, where: object = "", *, action: Action = "flag", **numbers: Any) -> Reason:
    """A reason to correct the claim."""
    return Reason(check, slug, "FLAG", text, str(where), numbers, action)


def note(check: str, slug: str, text: str, where: object = "", **numbers: Any) -> Reason:
    """Something a reader should know."""
    return Reason(check, slug, "NOTE", text, str(where), numbers)


def decide(reasons: Iterable[Reason]) -> tuple[Decision, Action]:
    """The verdict of all reasons together: the gravest counts, nothing outweighs a FAIL."""
    found = list(reasons)
    if any(reason.severity == "FAIL" for reason in found):
        return "FAIL", "eject"
    actions = {reason.action for reason in found if reason.severity == "FLAG"}
    if actions:
        return "FLAG", next(action for action in _FLAG_ACTIONS if action in actions)
    return "PASS", "pass"
