"""Checks: the rules that are applied to a subject, those that are not applied, and the effect of a damaged part."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from compliance.judge import check as checks
from compliance.judge.check import (
    NOT_APPLICABLE,
    WITHOUT_INPUT,
    Absent,
    Check,
    Judgement,
    Need,
    check_of,
    decides,
    grouped,
    judge,
    rules_of,
)
from compliance.judge.finding import Finding, compared, stated
from compliance.judge.rule import RULES, UnknownRuleError
from compliance.judge.text import not_judged_lines
from compliance.judge.verdict import Verdict
from runs.errors import InputError

ROW = ("source", "summary", "fix")


@dataclass
class Run:
    """A subject of checks."""

    lacks: dict[str, str] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)  # violated rules

    def absent(self, need: Need) -> str:
        return self.lacks.get(need, "")


@pytest.fixture
def example_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Return three checks: one of two rules, one that needs a log, and one that is reported only if violated."""
    monkeypatch.setattr(checks, "_CHECKS", dict(checks._CHECKS))

    @decides("result", ("one", "error", *ROW), ("two", "warning", *ROW))
    def first(run: Run) -> Iterator[Finding]:
        for name in ("one", "two"):
            yield compared(name, name not in run.bad, "found", "required")

    @decides("result", ("three", "error", *ROW), needs=("log",), after=("one",))
    def second(run: Run) -> Iterator[Finding]:
        yield compared("three", "three" not in run.bad, "found", "required")

    @decides("contradiction", ("silent", "error", *ROW), applies=lambda run: run.lacks.get("object", ""))
    def third(run: Run) -> Iterator[Finding]:
        if "silent" in run.bad:
            yield stated("silent", "it does not fit")

    yield SimpleNamespace(first=first, second=second, third=third, all=tuple(map(check_of, (first, second, third))))
    for name in ("one", "two", "three", "silent"):
        del RULES[name]


def test_rules_are_applied_in_order_and_a_silent_rule_counts_as_applied(example_checks: SimpleNamespace) -> None:
    judgement = judge(Run(bad={"two", "silent"}), example_checks.all)
    assert [(one.rule, one.severity) for one in judgement.findings] == [
        ("one", "pass"), ("two", "warning"), ("three", "pass"), ("silent", "error")
    ]  # fmt: skip
    assert judgement.applied == {"one", "two", "three", "silent"}
    assert judge(Run(), example_checks.all).applied == {"one", "two", "three", "silent"}
    assert judgement.not_judged == []


@pytest.mark.parametrize(
    ("run", "rule", "what", "why"),
    [
        (Run({"log": "log.txt is missing"}), "three", WITHOUT_INPUT, "log.txt is missing"),
        (Run(bad={"one"}), "three", NOT_APPLICABLE, "one is violated"),
        (Run({"object": "Offline has none"}), "silent", NOT_APPLICABLE, "Offline has none"),
    ],
)
def test_a_rule_that_is_not_applied_has_a_reason(
    example_checks: SimpleNamespace, run: Run, rule: str, what: str, why: str
) -> None:
    judgement = judge(run, example_checks.all)
    (left,) = judgement.not_judged
    assert (left.rules, left.what, left.why) == ((rule,), what, why)
    assert rule not in judgement.applied
    lines = list(not_judged_lines(Verdict(not_judged=judgement.not_judged)))
    assert lines == ([f"  not judged: {rule}: {why}"] if what == WITHOUT_INPUT else [])


def checks_of_rule_one(decide: Callable[[Any], Any]) -> tuple[Check, ...]:
    return (Check(decide, ("one",)),)


def raises(error: Exception) -> Callable[[Any], Any]:
    def decide(_: Any) -> None:
        raise error

    return decide


def test_a_check_without_input_is_not_applied_and_a_damaged_input_is_an_error(example_checks: SimpleNamespace) -> None:
    judgement = judge(Run(), checks_of_rule_one(raises(Absent("no folder"))))
    assert judgement.reasons == {"one": (WITHOUT_INPUT, "no folder")}
    damage = InputError("log.txt is damaged")
    judgement = judge(Run(), (*checks_of_rule_one(raises(damage)), *example_checks.all))
    assert judgement.error is damage
    assert {one.rule for one in judgement.findings} == {"one", "two", "three"}
    assert judgement.not_judged == []  # another check has applied the rule
    with pytest.raises(ZeroDivisionError):
        judge(Run(), checks_of_rule_one(raises(ZeroDivisionError())))
    reported = judge(
        Run(), checks_of_rule_one(raises(ZeroDivisionError())), lambda error: [stated("two", type(error).__name__)]
    )
    assert [one.text for one in reported.findings] == ["ZeroDivisionError"]
    assert reported.error is None
    with pytest.raises(UnknownRuleError):
        judge(Run(), checks_of_rule_one(raises(UnknownRuleError("x"))), lambda _: ())


def test_results_of_multiple_parts_of_a_subject_are_merged() -> None:
    first, second = Judgement(reasons={"a": (NOT_APPLICABLE, "x"), "b": (WITHOUT_INPUT, "file")}), Judgement()
    second.reasons, second.applied = {"a": (WITHOUT_INPUT, "y"), "b": (WITHOUT_INPUT, "text"), "c": ("", "")}, {"c"}
    first.take(second)
    assert [(left.what, left.why, left.rules) for left in first.not_judged] == [
        (WITHOUT_INPUT, "y", ("a",)), (WITHOUT_INPUT, "file or text", ("b",))
    ]  # fmt: skip
    first.skip(checks_of_rule_one(print), "nothing there")
    assert first.reasons["one"] == (WITHOUT_INPUT, "nothing there")
    assert [left.rules for left in grouped({"b": ("w", "y"), "a": ("w", "y")})] == [("a", "b")]


def test_a_combined_check_has_the_rules_of_its_parts(example_checks: SimpleNamespace) -> None:
    combined = check_of(example_checks.first, example_checks.third, needs=("log",))
    assert combined.rules == ("one", "two", "silent")
    assert (combined.silent, combined.needs) == (("silent",), ("log",))
    assert rules_of(example_checks.first, example_checks.third) == {"silent"}
