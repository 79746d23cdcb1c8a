"""The text of a verdict. A layout states what a command prints besides the findings."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from compliance.judge.verdict import Finding, Verdict, not_applied
from runs.wording import printable


def _nothing(_: Verdict[Any]) -> tuple[str, ...]:
    return ()


def own_findings(verdict: Verdict[Any]) -> list[Finding]:
    """Return the findings on the subject itself, in the order of the checks."""
    return verdict.findings


def by_severity(verdict: Verdict[Any]) -> list[Finding]:
    """Return the findings on a subject and its parts, most severe first."""
    return verdict.of("error", "warning", "note", "pass")


class StyledLine(str):
    """A line of which a terminal shows the first characters in a style, such as "bold". Default: all characters."""

    style: str
    length: int

    def __new__(cls, line: str, style: str, length: int | None = None) -> "StyledLine":
        styled = super().__new__(cls, line)
        styled.style, styled.length = style, len(line) if length is None else length
        return styled


@dataclass(frozen=True)
class TextLayout:
    """What a command prints of a verdict, in this order: head, parts, title, findings, missing inputs, tail.

    Attributes:
        part: Layout of the verdicts on the parts. Default: they are not printed.
        shown: Returns the findings to print.
        with_place: True to print the files of each finding.
        with_not_applied: True to print the rules that were not applied because an input is missing.
    """

    head: Callable[[Verdict[Any]], Iterable[str]] = _nothing
    part: "TextLayout | None" = None
    title: Callable[[Verdict[Any]], Iterable[str]] = _nothing
    shown: Callable[[Verdict[Any]], Iterable[Finding]] = own_findings
    with_place: bool = False
    with_not_applied: bool = True
    tail: Callable[[Verdict[Any]], Iterable[str]] = _nothing


def text(verdict: Verdict[Any], layout: TextLayout) -> str:
    """Return a verdict as text."""
    return printable("\n".join(text_lines(verdict, layout)) + "\n", lines=True)


def text_lines(verdict: Verdict[Any], layout: TextLayout) -> Iterator[str]:
    """Yield the lines of a verdict, some of them with a style."""
    yield from layout.head(verdict)
    if layout.part is not None:
        for part in verdict.parts:
            yield from text_lines(part, layout.part)
    yield from layout.title(verdict)
    for finding in layout.shown(verdict):
        if finding.severity == "error" and not verdict.counts(finding):
            yield f"  not eligible for submission: {finding.rule}: {finding.sentence}"
        else:
            yield f"  {finding.line_with_place if layout.with_place else finding}"
    yield from not_applied_lines(verdict) if layout.with_not_applied else ()
    yield from layout.tail(verdict)


def not_applied_lines(verdict: Verdict[Any], prefix: str = "") -> Iterator[str]:
    """Yield a line for each missing input. Rules that do not apply are left out."""
    for entry in not_applied(verdict):
        if entry.lacks_input or entry.what:
            yield f"  not judged: {prefix}{', '.join(entry.rules) or entry.what}: {entry.why}"
