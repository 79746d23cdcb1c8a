"""Checks: the rules that are applied to a subject, those that are not applied, and the effect of a damaged part."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from compliance.judge import rule as checks
from compliance.judge.rule import RULES, Check, Need, UnknownRuleError, check_of, decides
from compliance.judge.text import not_applied_lines
from compliance.judge.verdict import (
    Finding,
    NotApplied,
    Policy,
    Subject,
    Verdict,
    compared,
    judge,
    not_applied,
    stated,
)
from runs.errors import InputError

ROW = ("source", "summary", "fix")


@dataclass
class JudgedRun(Subject):
    """A subject."""

    lacks: dict[str, str] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)  # violated rules
    parts: "Sequence[JudgedRun]" = ()
    name: str = ""

    def absent(self, need: Need) -> str:
        return self.lacks.get(need, "")


def judged(run: JudgedRun, checks: tuple[Check, ...], **options: Any) -> Verdict[Any]:
    return judge(run, Policy({"": checks}, **options))


@pytest.fixture
def example_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Return three checks: one of two rules, one that needs a log, and one that is reported only if violated."""
    monkeypatch.setattr(checks, "_CHECKS", dict(checks._CHECKS))

    @decides("result", ("one", "error", *ROW), ("two", "warning", *ROW))
    def first(run: JudgedRun) -> Iterator[Finding]:
        for name in ("one", "two"):
            yield compared(name, name not in run.bad, "found", "required")

    @decides(
        "result", ("three", "error", *ROW), needs=("log",), applies=lambda run: "one is violated" * ("one" in run.bad)
    )
    def second(run: JudgedRun) -> Iterator[Finding]:
        yield compared("three", "three" not in run.bad, "found", "required")

    @decides("contradiction", ("silent", "error", *ROW), applies=lambda run: run.lacks.get("object", ""))
    def third(run: JudgedRun) -> Iterator[Finding]:
        if "silent" in run.bad:
            yield stated("silent", "it does not fit")

    yield SimpleNamespace(first=first, second=second, third=third, all=tuple(map(check_of, (first, second, third))))
    for name in ("one", "two", "three", "silent"):
        del RULES[name]


def test_rules_are_applied_in_order_and_silent_rules_count_if_their_check_ran(example_checks: SimpleNamespace) -> None:
    verdict = judged(JudgedRun(bad={"two", "silent"}), example_checks.all)
    assert [(finding.rule, finding.severity) for finding in verdict.findings] == [
        ("one", "pass"), ("two", "warning"), ("three", "pass"), ("silent", "error")
    ]  # fmt: skip
    assert verdict.applied == {"one", "two", "three", "silent"}
    assert judged(JudgedRun(), example_checks.all).applied == {"one", "two", "three", "silent"}
    assert not_applied(verdict) == []


@pytest.mark.parametrize(
    ("run", "rule", "lacks_input", "why"),
    [
        (JudgedRun({"log": "log.txt is missing"}), "three", True, "log.txt is missing"),
        (JudgedRun(bad={"one"}), "three", False, "one is violated"),
        (JudgedRun({"object": "Offline has none"}), "silent", False, "Offline has none"),
    ],
)
def test_a_rule_that_is_not_applied_has_a_reason(
    example_checks: SimpleNamespace, run: JudgedRun, rule: str, lacks_input: bool, why: str
) -> None:
    verdict = judged(run, example_checks.all)
    (entry,) = not_applied(verdict)
    assert (entry.rules, entry.lacks_input, entry.why) == ((rule,), lacks_input, why)
    assert rule not in verdict.applied
    assert list(not_applied_lines(verdict)) == ([f"  not judged: {rule}: {why}"] if lacks_input else [])


def single_rule_one(decide: Callable[[Any], Any]) -> tuple[Check, ...]:
    return (Check(decide, ("one",)),)


def raises(error: Exception) -> Callable[[Any], Any]:
    def decide(_: Any) -> None:
        raise error

    return decide


def test_a_check_states_the_rules_that_it_does_not_apply(example_checks: SimpleNamespace) -> None:
    verdict = judged(JudgedRun(), single_rule_one(lambda _: [NotApplied("no folder", ("one",), lacks_input=True)]))
    assert not_applied(verdict) == [NotApplied("no folder", ("one",), lacks_input=True)]
    verdict = judged(JudgedRun(), single_rule_one(lambda _: [NotApplied("no prompts", what="prompts")]))
    assert not_applied(verdict)[0] == NotApplied("no prompts", what="prompts")


def test_a_damaged_input_is_the_error_of_the_verdict_or_a_finding(example_checks: SimpleNamespace) -> None:
    damage = InputError("log.txt is damaged")
    verdict = judged(JudgedRun(), (*single_rule_one(raises(damage)), *example_checks.all))
    assert verdict.error is damage
    assert {finding.rule for finding in verdict.findings} == {"one", "two", "three"}
    assert not_applied(verdict) == []  # another check has applied the rule
    with pytest.raises(ZeroDivisionError):
        judged(JudgedRun(), single_rule_one(raises(ZeroDivisionError())))
    reported = judged(
        JudgedRun(),
        single_rule_one(raises(ZeroDivisionError())),
        damage=lambda run, check, error: stated("two", f"{check.rules[0]}: {type(error).__name__}"),
    )
    assert [finding.text for finding in reported.findings] == ["one: ZeroDivisionError"]
    assert reported.error is None
    with pytest.raises(UnknownRuleError):
        judged(JudgedRun(), single_rule_one(raises(UnknownRuleError("x"))), damage=lambda *_: None)


def test_a_verdict_has_the_findings_and_reasons_of_its_parts(example_checks: SimpleNamespace) -> None:
    parts = [JudgedRun(bad={"one"}, name="first"), JudgedRun({"log": "no log"}, name="second")]
    verdict = judged(JudgedRun(parts=parts), example_checks.all)
    assert [part.name for part in verdict.parts] == ["first", "second"]
    assert (verdict.findings[0].passed, verdict.outcome) == (True, "FAIL")
    assert verdict.reasons == ["first: summary: found, required: required"]
    assert len(verdict.all_findings) == 2 + 2 + 3
    assert not_applied(*verdict.all_verdicts) == []  # the whole has applied all rules
    assert [entry.why for entry in not_applied(*verdict.parts)] == ["no log"]


def test_an_error_in_a_part_ends_the_verdict_unless_damaged_parts_are_kept(example_checks: SimpleNamespace) -> None:
    def decide(run: JudgedRun) -> Iterator[Finding]:
        if run.bad:
            raise InputError("damaged")
        yield compared("one", True, "found", "required")

    run = JudgedRun(parts=[JudgedRun(), JudgedRun(bad={"x"}), JudgedRun()])
    changed = Check(lambda _: [stated("two", "a changed file")], ())
    ended = judged(run, single_rule_one(decide), on_error={"": (changed,)})
    assert (len(ended.parts), ended.outcome, [finding.rule for finding in ended.findings]) == (1, "ERROR", ["two"])
    kept = judged(run, single_rule_one(decide), keeps_damaged_parts=True)
    assert (len(kept.parts), kept.outcome, [finding.rule for finding in kept.findings]) == (3, "ERROR", ["one"])


def test_a_violated_claim_ends_the_checks(example_checks: SimpleNamespace) -> None:
    run = JudgedRun(bad={"one"})
    first, _, third = example_checks.all
    assert {finding.rule for finding in judged(run, (third,), claims={"": (first,)}).findings} == {"one", "two"}
    undecided = replace(first, is_decisive=False)
    assert "silent" in judged(JudgedRun(bad={"one", "silent"}), (third,), claims={"": (undecided,)}).applied


def test_exempt_rules_have_no_findings(example_checks: SimpleNamespace) -> None:
    verdict = judged(JudgedRun(), example_checks.all, exempt=lambda _: [NotApplied("free", ("one",))])
    assert "one" not in {finding.rule for finding in verdict.findings}
    assert NotApplied("free", ("one",)) in not_applied(verdict)


def test_reasons_of_several_verdicts_are_combined() -> None:
    first: Verdict[None] = Verdict(not_applied=[NotApplied("x", ("a",)), NotApplied("file", ("b",), lacks_input=True)])
    second: Verdict[None] = Verdict(
        applied={"c"},
        not_applied=[
            NotApplied("y", ("a",), lacks_input=True),
            NotApplied("text", ("b",), lacks_input=True),
            NotApplied("", ("c",)),
        ],
    )
    assert not_applied(first, second) == [
        NotApplied("y", ("a",), lacks_input=True), NotApplied("file or text", ("b",), lacks_input=True)
    ]  # fmt: skip


def test_a_combined_check_has_the_rules_of_its_parts(example_checks: SimpleNamespace) -> None:
    combined = check_of(example_checks.first, example_checks.third, needs=("log",))
    assert combined.rules == ("one", "two", "silent")
    assert (combined.silent, combined.needs) == (("silent",), ("log",))
