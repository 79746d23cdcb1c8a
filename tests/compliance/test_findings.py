"""Findings, and their rules: verdicts rest on rules, never on words."""

import ast
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import compliance
from compliance.finding import ON_LEGS, UnknownRuleError, all_rules, applied, decides, find_rule
from compliance.signoff import sign_off
from compliance.submission.check.findings import Findings
from compliance.submission.check.legs import is_asked, note_judged
from compliance.submission.tree import NOT_IN_OPEN
from compliance.verify.find_results import find_results
from compliance.verify.result_verdict import as_text, verify_result
from tests.signoff.backtest import read_cases, run_cases
from tests.support.verify_legs import DummyLegs


def test_a_rule_that_the_catalogue_does_not_have_is_an_error() -> None:
    with pytest.raises(UnknownRuleError, match="no-such-rule"):
        applied("no-such-rule", "name", True, "found", "required")


def test_an_id_is_of_one_rule() -> None:
    rule = all_rules()["perf-validity"]
    with pytest.raises(UnknownRuleError, match="perf-validity"):
        decides("tree", (rule.id, "error", "", "", ""))(lambda: None)
    assert find_rule("perf-validity") is rule


def test_every_rule_that_is_written_out_is_in_the_catalogue() -> None:
    """Also where no test breaks it: a finding of an unknown rule is no verdict."""
    makers = {"fail", "warn", "note", "applied", "make", "differing", "same_facts"}
    written = set()
    for path in Path(compliance.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in makers and call.args:
                choice = call.args[0]
                choices = [choice.body, choice.orelse] if isinstance(choice, ast.IfExp) else [choice]
                written |= {one.value for one in choices if isinstance(one, ast.Constant)}
    assert {"P-5/same_process", "P-1/missing_raw"} <= written
    assert written - all_rules().keys() == set()


def test_every_rule_that_is_left_out_somewhere_is_a_rule_on_legs() -> None:
    on_legs = {rule.id for rule in all_rules().values() if rule.kind in ON_LEGS}
    assert on_legs >= NOT_IN_OPEN
    told = {rule_id for rule_id in on_legs if is_asked(rule_id, "closed")}
    assert {rule_id for rule_id in on_legs if is_asked(rule_id, "open")} < told < on_legs


def test_verify_gives_the_same_verdict_without_a_word(wordless: Callable[[], None], tmp_path: Path) -> None:
    legs = DummyLegs()
    folders = [legs(scenario, mode) for scenario in ("Offline", "Server") for mode in ("performance", "accuracy")]
    folders += [legs.copy(tmp_path / name, "Server").root for name in ("edited", "foreign", "lacking", "cut")]
    edited, foreign, lacking, cut = folders[-4:]
    summary = edited / "mlperf_log_summary.txt"
    summary.write_text(summary.read_text().replace("min_duration (ms): 1500", "min_duration (ms): 1501"))
    (foreign / "requests.jsonl").write_bytes((legs("SingleStream") / "requests.jsonl").read_bytes())
    (lacking / "mlperf_log_summary.txt").unlink()
    (cut / "mlperf_log_detail.txt").write_bytes((cut / "mlperf_log_detail.txt").read_bytes()[:3000])

    def judged() -> list[object]:
        found: list[object] = []
        for folder in folders:
            for official in (False, True):
                verdict = verify_result(find_results([folder])[0], official=official)
                record = verdict.record()
                rows = [(one.rule, one.severity) for part in verdict.parts for one in part.findings]
                found.append((verdict.outcome, int(verdict.exit_code()), rows, record["held_to_official_rules"]))
        return found

    before = judged()
    assert Counter(row[0] for row in before if isinstance(row, tuple)) == {"PASS": 2, "FAIL": 6, "ERROR": 8}
    wordless()
    assert judged() == before


def test_a_finding_has_one_id_in_every_command(tmp_path: Path) -> None:
    legs = DummyLegs()
    run = legs.copy(tmp_path / "edited", "Server")
    run.summary.write_text(run.summary.read_text().replace("min_duration (ms): 1500", "min_duration (ms): 1501"))
    (part,) = verify_result(find_results([run.root])[0]).parts
    contradictions = {finding.rule for finding in part.contradictions}
    assert "log-summary" in contradictions
    signed = sign_off("harness", [run.root, legs("Server", "accuracy")])
    assert contradictions <= {finding.rule for finding in signed.of("error")}
    tree = Findings(tmp_path)
    note_judged(lambda: part.findings, "closed", run, tree)
    assert contradictions <= {finding.rule for finding in tree.items}
    for told in (signed.as_text(), as_text(verify_result(find_results([run.root])[0]))):
        assert "FAIL log-summary: " in told


@pytest.mark.parametrize(
    "one_in",
    [
        pytest.param(30, marks=pytest.mark.quick),
        pytest.param(3, marks=pytest.mark.slow),
        pytest.param(1, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
def test_frozen_cases_keep_verdict_and_reason_without_a_word(wordless: Callable[[], None], one_in: int) -> None:
    wordless()
    cases = read_cases()[::one_in]
    assert [outcome.case.name for outcome in run_cases(cases) if not outcome.right] == []
