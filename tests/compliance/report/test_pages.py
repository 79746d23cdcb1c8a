"""The page of a checked tree and the verification document: complete, escaped, limited, and derived from findings."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compliance.judge.record import record
from compliance.judge.rule import all_rules
from compliance.judge.verdict import Finding, Verdict, compared
from compliance.report import tree_page as page_module
from compliance.report.tree_page import tree_page
from compliance.results.policy import CHECKS
from compliance.trees.check_tree import TreeDetails, TreeReport
from compliance.trees.scenario import PlaceDetails
from compliance.trees.scenario_directory import RunIdentity
from compliance.trees.tree import Place, Tree
from runs.errors import ExitCode
from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from runs.rounds import ROUNDS
from tests.conftest import Finished
from tests.support.runs.dummy_runs import DummyRuns

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def checked_of(root: Path) -> TreeReport:
    tree = Tree(root, ROUNDS["v6.0"])
    places = [Place("closed", who, "a", "llama3.1-8b", "Server") for who in ("Org", "<b>Org & Co")]
    for place in places:
        tree.performance(place).root.mkdir(parents=True)
        tree.performance(place).detail.write_text(f'{{"key": "result_validity", "value": "{EVIL}{"x" * 9000}"}}\n')
    findings = [
        compared("perf-validity", False, EVIL, "", tree.performance(place).detail.relative_to(root), line=1)
        for place in places
    ]
    latencies = {"result_first_token_99.00_percentile_latency_ns": 1.99e9, "requested_server_ttft_latency": 2e9}
    return report_of(tree, places, findings, {places[0]: latencies})


def report_of(
    tree: Tree, places: list[Place], findings: list[Finding], numbers: dict[Place, dict[str, float]]
) -> TreeReport:
    runs = {place: [RunIdentity("performance", Path(), numbers=values)] for place, values in numbers.items()}
    parts = [Verdict(details=PlaceDetails(place, runs.get(place, []))) for place in places]
    return TreeReport(Verdict(findings, parts=parts, details=TreeDetails(tree, places)))


def test_names_from_a_tree_are_escaped_on_the_page(tmp_path: Path) -> None:
    text = tree_page(record(checked_of(tmp_path).verdict), "now")
    assert EVIL not in text
    assert "&lt;script&gt;alert(1)" in text
    assert text.count("<script") == 2 + text.count("<figure "), "two scripts, and the points of each chart"
    assert "<b>Org" not in text
    assert "x" * (page_module.MAX_LINE_CHARS + 1) not in text


def test_the_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    text = tree_page(record(checked_of(tmp_path).verdict), "now")
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!data:|#)""", text)
    assert "default-src 'none'" in text
    assert "unsafe-inline'; script-src 'sha256-" in text


def test_the_number_of_findings_on_a_page_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MAX_FINDINGS_CHARS", 1)
    text = tree_page(record(checked_of(tmp_path).verdict), "now")
    assert text.count("<li data-who=") == 1
    assert "1 of 2 findings" in text


def test_a_repeated_finding_is_shown_once_with_its_places(tmp_path: Path) -> None:
    text = tree_page(record(checked_of(tmp_path).verdict), "now")
    assert text.count('class="finding"') == 1
    assert text.count("<li data-who=") == 2


def test_the_page_is_made_from_the_printed_record(tmp_path: Path) -> None:
    content = record(checked_of(tmp_path).verdict)
    assert tree_page(json.loads(json.dumps(content)), "now") == tree_page(content, "now")


# The verification document --------------------------------------------------------------------------------------------


RunMain = Callable[..., Finished]


@pytest.fixture
def run(runs: DummyRuns) -> Path:
    return runs("Server")


def verify_with_document(run: Path, folder: Path, run_main: RunMain) -> tuple[Finished, str]:
    """Run verify with a document. Return the finished process and the text."""
    path = folder / "documents" / "run.md"
    finished = run_main("verify", run, "--output", folder / "verdict", "--document", path)
    return finished, path.read_text()


def row(text: str, rule: str) -> list[str]:
    (line,) = re.findall(rf"^\|[^|]*\| {rule} .*$", text, re.MULTILINE)
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_each_rule_has_claim_source_line_and_result(run: Path, tmp_path: Path, run_main: RunMain) -> None:
    finished, text = verify_with_document(run, tmp_path, run_main)
    assert finished.code == ExitCode.OK
    claim, rule, where, value, required, result = row(text, "perf-min-duration")
    assert claim == all_rules()["perf-min-duration"].summary
    assert "performance_check.min_duration_check" in rule
    name, _, number = where.partition(":")
    assert name == "mlperf_log_detail.txt"
    line = RunDir(run).detail.read_text().splitlines()[int(number) - 1]
    assert '"key": "effective_min_duration_ms"' in line
    assert f"{read_detail(RunDir(run).detail).integer('effective_min_duration_ms'):,} ms" == value
    assert required.startswith("at least 600,000")
    assert result == "error"
    assert row(text, "perf-validity")[-1] == "pass"


def test_the_document_begins_with_the_supported_numbers(run: Path, tmp_path: Path, run_main: RunMain) -> None:
    _, text = verify_with_document(run, tmp_path / "whole", run_main)
    assert re.search(r"^\| performance: TTFT \| mean .* \| supported \| recomputed from requests.jsonl \|$", text, re.M)
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("mlperf_log_detail.txt", "mlperf_log_summary.txt"):
        shutil.copy(run / name, bare)
    _, text = verify_with_document(bare, tmp_path, run_main)
    assert re.search(r"^\| performance: TTFT \| .* \| not checkable \| .*missing: requests.jsonl, or", text, re.M)
    questions = text.partition("### Questions and requests")[2]
    assert "Please provide requests.jsonl, or" in questions
    assert "Please provide manifest.json, or" in questions
    shutil.copy(run / "requests.jsonl", bare)
    detail = bare / "mlperf_log_detail.txt"
    detail.write_text(re.sub(r'("result_max_latency_ns", "value": )(\d)', r"\g<1>9\2", detail.read_text()))
    _, text = verify_with_document(bare, tmp_path / "edited", run_main)
    assert re.search(r"^\| performance: TTFT \| .* \| contradicted \| see log-", text, re.M)


def test_the_document_begins_with_the_outcome(run: Path, tmp_path: Path, run_main: RunMain) -> None:
    _, text = verify_with_document(run, tmp_path, run_main)
    assert text.splitlines()[2] == "PASS: performance passes, accuracy not given."
    assert text.splitlines()[-1].startswith("Made ")


def test_each_rule_is_listed_as_applied_or_not_applied(run: Path, tmp_path: Path, run_main: RunMain) -> None:
    _, text = verify_with_document(run, tmp_path, run_main)
    rules = {rule for check in (*CHECKS["performance"], *CHECKS["result"]) for rule in check.rules}
    assert [name for name in rules if name not in text] == []
    assert "a performance run and an accuracy run are needed" in text
    assert f"the {sum(rule.kind == 'signoff' for rule in all_rules().values())} rules of `main.py signoff`" in text
    assert "Which accuracy" in text


def test_rules_without_input_are_listed_as_not_applied(run: Path, tmp_path: Path, run_main: RunMain) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(run, bare)
    for name in ("requests.jsonl", "manifest.json", "seal.json", "result.json", "progress.json"):
        (bare / name).unlink()
    _, text = verify_with_document(bare, tmp_path, run_main)
    unchecked = text.partition("### Rules not applied")[2]
    assert re.search(r"- performance: log-records: .*requests.jsonl is missing", unchecked)
    assert re.search(r"performance: requests.jsonl is missing: .* Rules not applied: .*log-records", unchecked)


def test_a_run_without_verdict_is_reported_as_such(run: Path, tmp_path: Path, run_main: RunMain) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(run, cut)
    detail = RunDir(cut).detail
    detail.write_bytes(detail.read_bytes()[:3000])
    finished, text = verify_with_document(cut, tmp_path, run_main)
    assert finished.code != ExitCode.OK
    assert "No verdict: " in text
    assert "all rules on performance" in text


def test_a_document_that_is_not_markdown_is_refused(run: Path, tmp_path: Path, run_main: RunMain) -> None:
    finished = run_main("verify", run, "--output", tmp_path / "v", "--document", tmp_path / "document.html")
    assert finished.code == ExitCode.BAD_INPUT
    assert "document.html: not a Markdown file name" in finished.stderr
    assert "fix: give a name that ends in .md" in finished.stderr
    assert not (tmp_path / "v").exists()
