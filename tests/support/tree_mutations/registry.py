"""What a mutation of a submission tree is, and the shapes that many of them share.

A mutation changes a tree on disk and gives back the path that a finding has to name. It works on any tree of any
round; `None` where the tree has nothing of the kind (no Server scenario, no second system).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compliance.submission.tree import Place, Tree
from runs.record.layout import RunDir
from tests.support.editing import edit_detail

Change = Callable[[Tree], Path | None]


@dataclass(frozen=True)
class Mutation:
    """One way to spoil a tree."""

    name: str
    change: Change
    rules: tuple[str, ...]  # one of them must be found at the path


MUTATIONS: list[Mutation] = []


def mutation(*rules: str) -> Callable[[Change], Change]:
    """Register a change under its function's name."""

    def register(change: Change) -> Change:
        MUTATIONS.append(Mutation(change.__name__, change, rules))
        return change

    return register


def removal(name: str, rule: str, file: Change) -> None:
    """Register the removal of a file."""

    def change(tree: Tree) -> Path | None:
        path = file(tree)
        if path is not None:
            path.unlink()
        return path

    MUTATIONS.append(Mutation(name, change, (rule,)))


def edit(name: str, *rules: str, file: Change, old: str, new: str) -> None:
    """Register the replacement of a stretch of text."""

    def change(tree: Tree) -> Path | None:
        path = file(tree)
        return path and edit_text(path, old, new)

    MUTATIONS.append(Mutation(name, change, rules))


def log_value(name: str, *rules: str, run: Callable[[Tree], RunDir | None], key: str, value: Any) -> None:
    """Register the change of a record of a detail log; None removes it."""

    def change(tree: Tree) -> Path | None:
        found = run(tree)
        if found is None:
            return None
        edit_detail(found, key, value)
        return found.detail

    MUTATIONS.append(Mutation(name, change, rules))


def first(tree: Tree, *scenarios: str) -> Place | None:
    """The first place, of one of the scenarios if some are named."""
    return next((place for place in tree.places() if not scenarios or place.scenario in scenarios), None)


def some(tree: Tree) -> Place:
    """The first place."""
    place = first(tree)
    assert place is not None
    return place


def performance(tree: Tree) -> RunDir:
    """The performance leg of the first place."""
    return tree.performance(some(tree))


def accuracy(tree: Tree) -> RunDir:
    """The accuracy leg of the first place."""
    return tree.accuracy(some(tree))


def edit_text(path: Path, old: str, new: str) -> Path:
    """Replace the first `old`."""
    text = path.read_text()
    assert old in text, (path, old)
    path.write_text(text.replace(old, new, 1))
    return path


def edit_object(path: Path, **values: Any) -> Path:
    """Change fields of a JSON object; None removes one."""
    found = json.loads(path.read_text())
    for name, value in values.items():
        found.pop(name, None)
        if value is not None:
            found[name] = value
    path.write_text(json.dumps(found))
    return path
