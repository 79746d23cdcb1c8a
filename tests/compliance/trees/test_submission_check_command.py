"""`main.py check`: exit codes, the record, --runs, the official checker, and the documented rules."""

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from compliance.judge.rule import all_rules
from compliance.submission.rebuild import index_runs
from compliance.trees import check_report
from compliance.trees.check_report import head
from compliance.trees.official_checker import PACKAGE, run_official
from compliance.trees.tree import Tree
from runs.errors import ExecutionError, ExitCode, HarnessError, InputError
from runs.loadgen.detail_log import power_time, read_detail
from runs.rounds import CURRENT_ROUND, ROUNDS
from scenarios.commands.check import check
from tests.support.documents.json_shapes import differences
from tests.support.published import CHECKOUT, needs_checkout, needs_published
from tests.support.trees import clean_trees as trees
from tests.support.trees.checked_tree import check_submission_tree

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "check-rules.md"


@pytest.fixture
def tree(tree_copy: Tree) -> Tree:
    return tree_copy


def run(*arguments: object) -> tuple[ExitCode, str]:
    done = CliRunner().invoke(check, [str(argument) for argument in arguments], standalone_mode=False)
    if isinstance(done.exception, HarnessError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None, done.output
    return done.return_value, done.output


def test_a_clean_tree_ends_with_exit_code_0(tree: Tree, tmp_path: Path) -> None:
    code, text = run(tree.root, "--strict", "--json", tmp_path / "out" / "check.json")
    assert (code, text.splitlines()[-1]) == (ExitCode.OK, "clean")
    assert "official checker: not run" in text
    assert re.search(r"\d+ to \d+ of \d+ rules were applied to each result; not applied:\n", text)
    assert re.search(r"\n  \d+ rules of 2 results: without input: requests\.jsonl and manifest\.json", text)
    assert re.search(r"\n  \d+ rules of 1 result: not applicable: the rules do not apply to Offline\n", text)
    record = json.loads((tmp_path / "out" / "check.json").read_text())
    assert differences(record, "check") == []
    assert (record["exit_code"], record["findings"], record["official"]) == (0, [], {"run": False})
    assert record["signoff"] is None
    assert "sign-off: not done" in text
    assert len(record["scenarios"]) == 2


def test_findings_are_printed_and_end_with_exit_code_1(tree: Tree, tmp_path: Path) -> None:
    place = next(tree.places())
    tree.readme(place).unlink()
    code, text = run(tree.root, "--json", tmp_path / "check.json")
    assert code == ExitCode.NEGATIVE
    assert "FAIL scenario-file: " in text
    assert "[README.md]" in text
    (finding,) = json.loads((tmp_path / "check.json").read_text())["findings"]
    assert finding["file"] == tree.readme(place).relative_to(tree.root).as_posix()
    assert all(finding[name] for name in ("rule", "severity", "found", "expected", "source", "fix"))


def test_the_number_of_printed_findings_is_limited(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The most severe causes are printed, and the number of the others."""
    monkeypatch.setattr(check_report, "MAX_PRINTED", 1)
    place = next(tree.places())
    (tree.root / "closed/.hidden").write_text("x")
    tree.readme(place).unlink()
    code, text = run(tree.root)
    assert code is ExitCode.NEGATIVE
    assert "FAIL scenario-file" in text
    assert "warning tree-dot-file" not in text
    assert "1 more finding; --json lists all findings" in text


@pytest.mark.parametrize(
    ("hours", "watts", "left_out", "broken_rule"),
    [
        (0, 0.5, "", ""),
        (2, 0.5, "", "power-readings"),
        (0, 0, "", "power-readings"),
        (0, 0.5, "client.log", "power-files"),
    ],
)
def test_power_readings_outside_the_run_are_reported(
    tree: Tree, hours: int, watts: float, left_out: str, broken_rule: str
) -> None:
    run_1 = tree.performance(next(tree.places()))
    begin = power_time(read_detail(run_1.detail).get("power_begin"))
    assert begin is not None
    moment = begin + timedelta(hours=hours, milliseconds=20)
    reading = f"Time,{moment:%m-%d-%Y %H:%M:%S.%f},Watts,{watts},Volts,230.0\n"
    for name in ("run_1/spl.txt", "ranging/spl.txt", "power/client.json", "power/client.log", "power/ptd_logs.txt",
                 "power/server.json", "power/server.log"):  # fmt: skip
        path = run_1.root.parent / name
        path.parent.mkdir(exist_ok=True)
        if path.name != left_out:
            path.write_text(reading)
    assert {finding.rule for finding in check_submission_tree(tree.root, tree.round).findings} == (
        {broken_rule} if broken_rule else set()
    )


def test_warnings_fail_only_with_strict(tree: Tree) -> None:
    (tree.root / "closed" / "Example" / "verify_accuracy.txt").write_text("TEST PASS")
    assert run(tree.root)[0] == ExitCode.OK
    assert run(tree.root, "--strict")[0] == ExitCode.NEGATIVE


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_path_that_is_not_a_tree_is_bad_input(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / name)[0] == ExitCode.BAD_INPUT


def test_an_unwritable_record_is_refused(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run(tree.root, "--json", tmp_path / "file" / "check.json")[0] == ExitCode.REFUSED


def test_seeds_of_another_round_are_named(tree: Tree) -> None:
    """The seeds of another round are named. Paths of the v5.1 layout are not suggested."""
    checked = check_submission_tree(tree.root, ROUNDS["v6.0"])
    findings = checked.findings
    assert {item.rule for item in findings} == {"perf-seeds", "accuracy-seeds"}
    assert all("seeds of v6.1" in item.found for item in findings)
    assert all("--round v6.1" in item.fix for item in findings)
    assert f"{len(findings)} logs with the seeds of round v6.1; to apply" in list(head(checked))[1]


def test_directories_without_runs_are_refused(tree: Tree, tmp_path: Path) -> None:
    """Logs without a manifest, such as those in the tree, are not runs."""
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "nowhere", tmp_path / "empty", trees.short_tree()[1], tree.root):
        with pytest.raises(InputError, match="--runs"):
            index_runs([path])


def test_options_of_submit_require_runs(tree: Tree) -> None:
    assert run(tree.root, "--source", tree.root)[0] == ExitCode.BAD_INPUT


FAKE = """
import argparse, logging, os, sys
parser = argparse.ArgumentParser()
for name in ("--input", "--version", "--csv"):
    parser.add_argument(name, required=True)
options = parser.parse_args()
logging.basicConfig(level=logging.INFO)
log = logging.getLogger("main")
assert os.listdir(options.input)
open(options.csv, "w").write("Platform,Scenario\\nsys,Offline\\n")
{body}
"""


def write_checker_stand_in(folder: Path, body: str) -> Path:
    package = folder / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "main.py").write_text(FAKE.format(body=body))
    return folder


OK = 'log.info("SUMMARY: submission looks OK")\n'
BAD = 'log.error("a/run_1 qsl_rng_seed is wrong, expected=1, found=2")\nlog.error("SUMMARY: submission has errors")\n'


@pytest.mark.parametrize(
    ("body", "outcome", "messages"),
    [
        (OK, "ok", []),
        (BAD + "sys.exit(1)", "errors", ["a/run_1 qsl_rng_seed is wrong, expected=1, found=2"]),
        (OK + "sys.exit(1)", "errors", []),  # the exit code also counts
        ("raise TypeError('no model')", "crashed", []),
    ],
)
def test_outcomes_of_the_official_checker_are_reported(
    tree: Tree, tmp_path: Path, body: str, outcome: str, messages: list[str]
) -> None:
    checkout = write_checker_stand_in(tmp_path / "checkout", body)
    result = run_official(checkout, tree.root, CURRENT_ROUND)
    assert (result.outcome, [message.text for message in result.messages]) == (outcome, messages)
    assert result.results == ([] if outcome == "crashed" else [{"Platform": "sys", "Scenario": "Offline"}])
    code, text = run(tree.root, "--official", checkout)
    assert code == (ExitCode.OK if outcome == "ok" else ExitCode.NEGATIVE)
    assert "not run" not in text
    assert all(f"ERROR: {message}" in text for message in messages)
    assert not list((tmp_path / "checkout").rglob("*.pyc"))


@pytest.mark.parametrize("body", ["import a_module_that_is_not_there", "parser.error('no such round')"])
def test_an_unusable_official_checker_is_an_error(tree: Tree, tmp_path: Path, body: str) -> None:
    assert run(tree.root, "--official", write_checker_stand_in(tmp_path / "c", body))[0] == ExitCode.FAILED
    with pytest.raises(ExecutionError, match=r"main\.py is missing"):
        run_official(tmp_path, tree.root, CURRENT_ROUND)


@needs_checkout
def test_the_official_checker_refuses_short_runs(tree: Tree) -> None:
    result = run_official(Path(CHECKOUT), tree.root, CURRENT_ROUND)
    assert result.outcome == "errors"
    texts = "".join(message.text for message in result.messages)
    assert "Test duration less than" in texts
    assert "performance_sample_count, found" in texts


@needs_checkout
@needs_published
def test_both_checkers_accept_published_results(tmp_path: Path) -> None:
    tree = trees.build_published_tree(tmp_path)
    result = run_official(Path(CHECKOUT), tree.root, ROUNDS["v5.1"])
    assert check_submission_tree(tree.root, ROUNDS["v5.1"]).findings == []
    assert result.ok, [message.text for message in result.messages]
    assert len(result.results) == 4


def test_the_documentation_lists_each_warning() -> None:
    reported = re.search(r"These rules have the severity `warning`:\n\n(.*?)\n\n", DOCUMENT.read_text(), re.DOTALL)
    assert reported is not None
    warnings = {rule.id for rule in all_rules().values() if (rule.kind, rule.severity) == ("tree", "warning")}
    assert set(re.findall(r"`([a-z-]+)`", reported[1])) == warnings
