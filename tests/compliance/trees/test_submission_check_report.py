"""The report of `check`: causes by weight, each once; subjects and causes of findings; selections."""

from pathlib import Path
from typing import Any

import pytest

from compliance.judge.record import finding_record, record
from compliance.judge.rule import RULES, SOURCES, all_rules, find_rule
from compliance.judge.text import text
from compliance.judge.verdict import Finding, Verdict, stated
from compliance.trees import check_tree
from compliance.trees.causes import AUDITS, COPIES, FILES, LIMITS, SETTINGS, weight_of, with_causes
from compliance.trees.check_report import MAX_HEAD_LINES, TREE, head
from compliance.trees.check_tree import BY_RUNS, TreeDetails, TreeReport, catalog
from compliance.trees.findings import located, read_tree_object, shown_lines
from compliance.trees.tree import Place, Tree
from runs.rounds import ROUNDS
from tests.support.trees import clean_trees as trees
from tests.support.trees.checked_tree import check_submission_tree

ONE, TWO, OTHER = (
    Place("closed", who, system, "llama3.1-8b", "Offline") for who, system in (("Org", "a"), ("Org", "b"), ("Us", "c"))
)


def in_place(tree: Tree, place: Place, rule: str, name: str = "performance/run_1/mlperf_log_detail.txt") -> Finding:
    path = (tree.scenario(place) / name).relative_to(tree.root)
    return stated(rule, f"what was found of {rule}", path, severity="error")


def checked_of(root: Path, *placed_rules: tuple[Place, str]) -> TreeReport:
    tree, places = Tree(root, ROUNDS["v6.0"]), [ONE, TWO, OTHER]
    for place in places:
        tree.scenario(place).mkdir(parents=True, exist_ok=True)
    findings = [in_place(tree, *placed) for placed in placed_rules]
    return report_of(tree, places, findings)


def report_of(tree: Tree, places: list[Place], findings: list[Finding]) -> TreeReport:
    return TreeReport(Verdict(findings, details=TreeDetails(tree, places)))


def test_each_rule_has_a_weight_and_an_existing_source() -> None:
    weights = {rule.id: weight_of(rule) for rule in all_rules().values()}
    reported = {"log-summary": COPIES, "log-duplicate": COPIES, "audit-missing": AUDITS, "test06-count": AUDITS,
            "perf-ttft": LIMITS, "user-conf-differs": SETTINGS, "log-config": SETTINGS, "log-missing": FILES,
            "tree-unknown": FILES, "accuracy-target": LIMITS, "accuracy-size": FILES}  # fmt: skip
    assert {rule: weights[rule] for rule in reported} == reported
    for rule in RULES.values():
        begins = ("mlcommons/", "LoadGen ", "MLPerf Endpoints", "a rule of this harness", "runs/")
        assert rule.source_in_full.startswith(begins)
        assert "[" not in rule.source_in_full.partition(";")[0], rule.source
    assert find_rule("tree-unknown").source_in_full == "mlcommons/policies, submission_rules.adoc: layout"
    assert find_rule("log-config").source_in_full == SOURCES["[ours]"]


def test_the_most_severe_cause_is_printed_first_and_once(tmp_path: Path) -> None:
    placed_rules = [(ONE, "tree-unknown"), (ONE, "user-conf-differs"), (ONE, "test06-count"), (TWO, "perf-ttft")]
    placed_rules += [(ONE, "perf-output-tokens"), (OTHER, "perf-output-tokens"), (TWO, "log-summary")]
    checked = checked_of(tmp_path, *placed_rules)
    names = [cause.name for cause in checked.causes]
    assert names == [
        "log-summary",
        "test06-count",
        "perf-output-tokens",
        "perf-ttft",
        "user-conf-differs",
        "tree-unknown",
    ]
    lines = list(head(checked))
    assert lines[0] == "3 results of 3 systems of 2 submitters, round v6.0: 7 errors, 0 warnings"
    assert "log-summary" in lines[2]
    assert sum("2 results of 2 submitters: perf-output-tokens" in line for line in lines) == 1


def test_an_extra_token_and_too_many_tokens_are_two_causes(tmp_path: Path) -> None:
    of_one = [(ONE, "test06-begin"), (ONE, "test06-length"), (ONE, "perf-output-tokens"), (TWO, "test06-end-last")]
    extra, alone = checked_of(tmp_path, *of_one, (OTHER, "perf-output-tokens")).causes
    assert (extra.name, extra.results, len(extra.caused)) == ("extra-token", [str(ONE), str(TWO)], 4)
    assert (alone.name, alone.results) == ("perf-output-tokens", [str(OTHER)])


def test_a_small_dataset_is_one_cause_for_each_result(tmp_path: Path) -> None:
    rules = ("accuracy-samples", "perf-data-set", "perf-sample-count", "perf-samples")
    checked = checked_of(tmp_path, *((place, rule) for place in (ONE, TWO) for rule in rules), (OTHER, "perf-samples"))
    small, alone = checked.causes
    assert (small.name, small.results, len(small.caused)) == ("dataset-size", [str(ONE), str(TWO)], 8)
    assert (alone.name, alone.results) == ("perf-samples", [str(OTHER)])
    shown = text(checked.verdict, TREE)
    printed = [line for line in shown.splitlines() if line.startswith("  FAIL ")]
    assert [line.split(":")[0].removeprefix("  FAIL ") for line in printed].count("accuracy-samples") == 2
    assert len(printed) == 3
    assert shown.count("    also: perf-data-set, perf-sample-count, perf-samples") == 2


def test_missing_parts_of_a_selection_are_one_cause(tmp_path: Path) -> None:
    checked = checked_of(tmp_path, (ONE, "log-missing"), (TWO, "log-summary"))
    tree = checked.tree
    sources = [stated("tree-source", "none", Path("closed", who, "src")) for who in ("Org", "Us")]
    checked = report_of(tree, checked.places, [*checked.findings, *sources])
    assert [cause.name for cause in checked.causes] == ["log-summary", "selection"]
    assert [cause.results for cause in checked.causes] == [[str(TWO)], [str(ONE)]]
    assert checked.verdict.exit_code() == 1
    shown = text(checked.verdict, TREE)
    assert "all source code is missing" in shown
    assert "FAIL log-missing" not in shown
    # A damaged log is not part of the selection. One submitter without code is not one, either.
    tree.performance(ONE).root.mkdir(parents=True)
    tree.performance(ONE).detail.write_text("x")
    again = report_of(tree, checked.places, checked.findings)
    assert "log-missing" in [cause.name for cause in again.causes]
    fewer = report_of(tree, checked.places, checked.findings[:-1])
    assert "selection" not in [cause.name for cause in fewer.causes]


def test_the_number_of_printed_causes_is_limited(tmp_path: Path) -> None:
    rules = [rule.id for rule in all_rules().values() if rule.kind in ("tree", "contradiction", "official", "audit")]
    checked = checked_of(tmp_path, *((ONE, rule) for rule in rules))
    lines = list(head(checked))
    assert len(lines) <= MAX_HEAD_LINES
    assert sum(line.startswith("    e.g. ") for line in lines) >= 5


@pytest.mark.parametrize(
    ("file", "subject"),
    [
        ("closed/Org/results/a/llama3.1-8b/Offline/accuracy/accuracy.txt", "closed/Org/a/llama3.1-8b/Offline"),
        ("closed/Org/results/a/llama3.1-8b", "closed/Org/a/llama3.1-8b"),
        ("closed/Org/systems/a.json", "closed/Org/a"),
        ("closed/Org/systems/unknown.json", "closed/Org"),
        ("closed/stray.txt", "closed"),
        (".", ""),
    ],
)
def test_the_subject_of_a_finding_follows_from_its_path(tmp_path: Path, file: str, subject: str) -> None:
    checked = checked_of(tmp_path)
    checked.verdict.findings = [stated("tree-unknown", "x", Path(file))]
    assert "/".join(checked.caused[0].subject) == subject
    (reported,) = record(checked.verdict)["findings"]
    parts = [reported[name] for name in ("division", "organisation", "system", "benchmark", "scenario")]
    assert parts == [*filter(None, subject.split("/")), *[None] * (5 - len([*filter(None, subject.split("/"))]))]
    assert (reported["file"], reported["files"], reported["cause"]) == (file, [file], "tree-unknown")


def test_a_finding_has_the_lines_of_its_keys(tmp_path: Path) -> None:
    (tmp_path / "summary.txt").write_text("one\nmin_duration (ms): 0\x1b\n")
    (tmp_path / "detail.txt").write_text(
        ':::MLLOG {"key": "a", "value": "min_duration"}\n:::MLLOG {"key": "min_duration", "value": 1}\n'
    )
    files = (Path("summary.txt"), Path("detail.txt"))
    finding = Finding(
        "log-summary", "error", "it differs", files, decided_by=("absent", "min_duration (ms)", "min_duration")
    )
    (reported,) = located(tmp_path, [finding])
    assert reported.line == 2
    lines = list(shown_lines(tmp_path, finding_record(reported), 30))
    assert [(Path(file).name, line) for file, line, _ in lines] == [("summary.txt", 2), ("detail.txt", 2)]
    assert lines[0][2] == "min_duration (ms): 0\\x1b"
    absent = Finding("log-missing", "error", "", (Path("nowhere"),), found="file does not exist", decided_by=("a",))
    assert located(tmp_path, [absent]) == [absent]


def test_each_rule_of_each_result_is_met_violated_or_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    trees.shorten_rules(monkeypatch)
    tree, _ = trees.short_tree()
    checked = check_submission_tree(tree.root, tree.round)
    catalogued = set(catalog())
    assert {rule.id for rule in all_rules().values() if rule.id in BY_RUNS} == BY_RUNS
    for place, part in zip(checked.places, checked.verdict.parts, strict=True):
        entries = checked.rules_not_applied[str(place)]
        silent = [(entry.lacks_input, entry.why, rule) for entry in entries for rule in entry.rules]
        rules = {rule for *_, rule in silent}
        assert len(rules) == len(silent)
        assert rules < catalogued
        kept = catalogued - rules
        assert kept <= {rule for verdict in (*part.all_verdicts, checked.verdict) for rule in verdict.applied}
        assert {"perf-validity", "perf-cut-short", "log-summary", "accuracy-target", "test06-length", "tree-unknown",
                "log-duplicate", "scenario-set"} <= kept  # fmt: skip
        whys = {rule: (lacks_input, why) for lacks_input, why, rule in silent}
        assert whys["runs-differ"][0]
        assert "--runs" in whys["runs-differ"][1]
        assert whys["plausible-padding"][0]
        assert ("perf-tpot" in rules) is (place.scenario == "Offline")


def test_lines_of_all_keys_are_shown(tmp_path: Path) -> None:
    (tmp_path / "mlperf_log_accuracy.json").write_text('[\n{ "seq_id" : 70 },\n{ "seq_id" : 7 },\n{ "seq_id" : 3 }\n]')
    finding = Finding(
        "test06-length",
        "error",
        "length",
        (Path("mlperf_log_accuracy.json"),),
        found="1",
        decided_by=("seq_id 7", "seq_id 3"),
    )
    (reported,) = located(tmp_path, [finding])
    assert (reported.line, reported.numbers["lines"]) == (3, {"seq_id 7": 3, "seq_id 3": 4})
    assert reported.line_with_place.endswith("[mlperf_log_accuracy.json:3,4]")


def test_found_and_required_values_are_in_the_json_record() -> None:
    record = finding_record(stated("log-arithmetic", found="a is 1", required="b gives 2"))
    assert (record["text"], record["found"], record["expected"]) == ("a is 1, but b gives 2", "a is 1", "b gives 2")


def test_a_duplicate_key_has_its_own_source_and_fix(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1,\n"a": 2}')
    (finding,) = read_tree_object(tmp_path / "a.json", "measurements-missing", "measurements-field")
    content = finding_record(finding)
    assert content["source"].startswith("a rule of this harness")
    assert content["fix"] == "keep one line of 'a'"


def test_equal_findings_are_printed_once(tmp_path: Path) -> None:
    checked = checked_of(tmp_path)
    files = [f"closed/Org/results/{name}/llama3.1-8b/Offline/user.conf" for name in "abcd"]
    checked.verdict.findings = [stated("scenario-file", "x", Path(file)) for file in files]
    shown = text(checked.verdict, TREE)
    assert shown.count("FAIL scenario-file: x") == 1
    assert "the same finding in 4 places:" in shown
    assert all(f"    {file}\n" in shown for file in files)


def test_the_causes_of_a_verdict_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, calls = checked_of(tmp_path, (ONE, "tree-unknown")).verdict, []

    def count(*arguments: Any) -> Any:
        calls.append(arguments)
        return with_causes(*arguments)

    monkeypatch.setattr(check_tree, "with_causes", count)
    text(verdict, TREE)
    record(verdict)
    assert len(calls) == 1
