"""Findings and their rules: verdicts depend on rules, never on texts."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import compliance
from compliance.judge.rule import RULES, UnknownRuleError, all_rules, decides, find_rule
from compliance.judge.verdict import Finding, compared
from compliance.trees.runs import BY_TEXT
from compliance.trees.tree import NOT_IN_OPEN
from runs.errors import HarnessError
from tests.signoff.backtest import read_cases, run_cases


def test_a_finding_of_an_unknown_rule_is_an_error() -> None:
    with pytest.raises(UnknownRuleError, match="no-such-rule"):
        compared("no-such-rule", True, "found", "required", text="name")


def test_each_rule_id_belongs_to_one_rule() -> None:
    rule = all_rules()["perf-validity"]
    with pytest.raises(UnknownRuleError, match="perf-validity"):
        decides("tree", (rule.id, "error", "", "", ""))(lambda: None)
    assert find_rule("perf-validity") is rule


def test_each_rule_named_in_code_is_in_the_catalog() -> None:
    """Rules that no test violates count, too, because a finding of an unknown rule prevents a verdict."""
    makers = {"compared", "stated", "Question"}
    written = set()
    for path in Path(compliance.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in makers and call.args:
                choice = call.args[0]
                choices = [choice.body, choice.orelse] if isinstance(choice, ast.IfExp) else [choice]
                written |= {choice.value for choice in choices if isinstance(choice, ast.Constant)}
    assert {"P-5/same_process", "P-1/missing_raw"} <= written
    assert written - all_rules().keys() == set()


def test_only_compared_and_stated_create_findings() -> None:
    creating = {
        path.name
        for package in ("compliance", "scenarios")
        for path in (Path(compliance.__file__).parents[1] / package).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Finding"
    }
    assert creating == {"verdict.py"}


def test_rules_omitted_in_a_division_are_rules_on_runs() -> None:
    on_runs = {
        rule.id for rule in all_rules().values() if rule.kind in ("contradiction", "result", "official", "plausible")
    }
    assert on_runs >= NOT_IN_OPEN
    assert on_runs > BY_TEXT


WORDS = {"text", "found", "sentence", "fix", "message"}
PATTERNS = {"match", "search", "fullmatch", "findall", "finditer", "sub"}
METHODS = {"startswith", "endswith", "find", "index", "partition", "rpartition", "split"}


def test_no_decision_depends_on_the_text_of_a_finding() -> None:
    """No text of a finding or an error is compared or parsed."""
    decided = set()
    for path in Path(compliance.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            read: list[ast.expr] = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                read = (
                    [node.func.value] if node.func.attr in METHODS else node.args if node.func.attr in PATTERNS else []
                )
            decided |= {
                (path.name, ast.unparse(part))
                for part in read
                if isinstance(part, ast.Attribute) and part.attr in WORDS
            }
    assert decided == set()


X = "x"


@pytest.fixture
def texts_replaced_by_x(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace each text of findings, rules and errors by "x"."""
    for rule in all_rules().values():
        monkeypatch.setitem(RULES, rule.id, replace(rule, source=X, summary=X, fix=X))
    post_init, error = Finding.__post_init__, HarnessError.__init__

    def finding(self: Finding) -> None:
        post_init(self)
        for name in ("text", "found", "required", "fix"):
            object.__setattr__(self, name, X if getattr(self, name) else "")

    def silent(self: HarnessError, message: str, fix: str = "", **facts: Any) -> None:
        error(self, X, X, **facts)

    monkeypatch.setattr(Finding, "__post_init__", finding)
    monkeypatch.setattr(HarnessError, "__init__", silent)


@pytest.mark.parametrize("one_in", [10, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.usefixtures("texts_replaced_by_x")
def test_verdicts_of_frozen_cases_do_not_depend_on_texts(one_in: int) -> None:
    cases = read_cases()[::one_in]
    assert [outcome.case.name for outcome in run_cases(cases) if not outcome.right] == []
