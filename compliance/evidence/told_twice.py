"""What the files of one leg tell twice has to agree: rows of facts, and one way to compare them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from compliance.finding import Finding, fail
from runs.record.conditions import shown


class Fact(NamedTuple):
    """A fact as a file tells it, and as the rest of the leg's record does.

    Attributes:
        rule: that is broken where the two differ.
        share: of the record's number; so far may the file's be from it.
        line: of the file.
    """

    rule: str
    name: str
    file: Path
    told: Any
    record: Any
    share: float = 0.0
    line: int | None = None


def contradicted(facts: Iterable[Fact]) -> Iterator[Finding]:
    """A finding for each fact that is told in two ways. True is no 1, and nothing is no 0."""
    for fact in facts:
        if not _same(fact.told, fact.record, fact.share):
            said = f"{shown(fact.told, 80)} in {fact.file.name}, {shown(fact.record, 80)} by the rest of the record"
            numbers = {"fact": fact.name, "told": fact.told, "record": fact.record}
            yield fail(fact.rule, f"{fact.name}: {said}", fact.file, line=fact.line, **numbers)


def _same(told: Any, record: Any, share: float) -> bool:
    if {type(told), type(record)} <= {int, float}:
        return bool(told == record or abs(told - record) <= share * abs(record))
    return type(told) is type(record) and bool(told == record)
