"""The findings of each command on each recorded input, compared with the frozen facts (`make freeze`)."""

import difflib

import pytest

from tests.frozen import golden
from tests.frozen.cases import COMMANDS, cases_of, facts_of_cases, file_of, selected_cases
from tests.frozen.facts import Facts, as_text, by_rule, difference, from_text, names_of


def _is_empty(message: str) -> None:
    """Fail with the complete text, which pytest would shorten."""
    if message:
        pytest.fail(message, pytrace=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_findings_of_selected_inputs_equal_the_frozen_facts(command: str) -> None:
    frozen = from_text(file_of(command).read_text())
    _is_empty(difference(frozen, facts_of_cases(selected_cases(command))))
    _is_empty(names_of(cases_of(command), frozen))


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_findings_of_all_inputs_equal_the_frozen_facts(command: str) -> None:
    frozen = from_text(file_of(command).read_text())
    _is_empty(difference(frozen, facts_of_cases(cases_of(command))))


@pytest.mark.parametrize("command", golden.INPUTS)
def test_printed_texts_equal_the_golden_files(command: str) -> None:
    before, after = golden.read(command), golden.texts(command)
    assert before.keys() == after.keys()
    for name, text in after.items():
        lines = difflib.unified_diff(before[name].splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="")
        _is_empty("\n".join(lines))


def test_a_difference_names_the_case_and_the_rule() -> None:
    before = Facts(["code 0", "pass perf-ttft a/log.txt:3 {p99}"])
    after = Facts(["code 1", "error perf-ttft a/log.txt:3 {p99}", *["key x"] * 2])
    text = as_text("head", {"one": before, "two": after}, {"two": "one"})
    assert from_text(text) == {"one": before, "two": after}
    assert difference(from_text(text), {"two": after}) == ""
    report = difference(from_text(text), {"one": after})
    assert "appeared: error perf-ttft a/log.txt:3" in report
    assert "vanished: pass perf-ttft a/log.txt:3" in report
    assert names_of(["one"], from_text(text)) == "frozen, and made no longer: two"


def test_rules_are_compared_over_all_cases() -> None:
    before = {"one": Facts(["code 0", "pass perf-ttft a"]), "two": Facts(["error perf-tpot a:1"]), "old": Facts("x")}
    after = {"one": Facts(["code 1", "error perf-ttft a"]), "two": Facts(["error perf-tpot b:2"])}
    assert list(by_rule(before, after)) == [
        "- code 0, 1 cases: one",
        "+ code 1, 1 cases: one",
        "+ error perf-ttft, 1 cases: one",
    ]


def test_moved_findings_are_distinguished_from_new_ones() -> None:
    before = Facts(["error perf-ttft a/log.txt:3 {p99}", "not judged in a/b, without input, x is missing: perf-tpot"])
    after = Facts(["error perf-ttft a/log.txt:4 {p99}", "not judged in a/b, without input, no x: perf-tpot"])
    report = difference({"one": before}, {"one": after})
    assert "moved: error perf-ttft a/log.txt: :3 {p99} → :4 {p99}" in report
    assert "another reason: without input, x is missing → without input, no x" in report
    assert "vanished" not in report
    assert "appeared" not in report
