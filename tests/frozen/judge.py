"""The access of the frozen facts to the product: `main.py COMMAND … --json`, in this process.

If the code that judges moves, only `rules_applied` and `rule_ids` change.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from compliance.judge.rule import all_rules
from compliance.judge.verdict import Verdict
from tests.conftest import run_here
from tests.frozen.facts import CommandOutcome


@contextmanager
def rules_applied() -> Iterator[set[str]]:
    """Collect the IDs of the rules that are applied within the block."""
    made: list[Verdict[Any]] = []
    made_as = Verdict.__init__

    def note_rules(self: Verdict[Any], *values: Any, **named: Any) -> None:
        made_as(self, *values, **named)
        made.append(self)

    rules: set[str] = set()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Verdict, "__init__", note_rules)
        yield rules
    rules.update(*(value.applied for value in made))


def rules_in(content: Any) -> Iterator[str]:
    """Return the rules of the findings in a record."""
    if isinstance(content, dict):
        if {"rule", "severity"} <= content.keys():
            yield content["rule"]
        content = list(content.values())
    for part in content if isinstance(content, list) else ():
        yield from rules_in(part)


def rule_ids() -> Collection[str]:
    """Return the IDs of all rules."""
    return all_rules().keys()


def ask(*words: object) -> CommandOutcome:
    """Run a command. Return its outcome."""
    with rules_applied() as applied:
        finished = run_here(*words, "--json")
    try:
        content = json.loads(finished.stdout)
    except ValueError as error:
        raise AssertionError(f"{words}: exit code {finished.code}, no JSON\n{finished.stderr[-2000:]}") from error
    content = content["answer"]
    return CommandOutcome(str(words[0]), finished.code, content or None, frozenset({*applied, *rules_in(content)}))
