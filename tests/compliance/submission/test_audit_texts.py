"""The texts of TEST01 and TEST04, in a tree of another benchmark: their outcome, and their numbers against the logs."""

import shutil
from pathlib import Path

import pytest

from compliance.submission.check.check_tree import check_tree
from compliance.submission.tree import Tree
from runs.loadgen.detail_log import read_detail
from tests.compliance.submission.test_submission_check_any import OTHER, SHORT
from tests.support import trees

OFFLINE = "result_samples_per_second"
ANSWERS = "num_perf_log_entries = 100\nnum_perf_log_data_mismatch = {}\nTEST {}\n"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A tree whose Offline result has a TEST01 of a run with the same settings."""
    root = tmp_path_factory.mktemp("audited") / "tree"
    shutil.copytree(trees.short_tree()[0].root, root)
    first = next(iter(Tree(root).places()))
    folder = Tree(root).scenario(first).parent
    folder.rename(folder.with_name(OTHER))
    tree = Tree(root)
    place = next(one for one in tree.places() if one.scenario == "Offline")
    audit = tree.audit(place, "TEST01")
    run = audit / "performance" / "run_1"
    shutil.copytree(tree.performance(place).root, run)
    score = read_detail(run / "mlperf_log_detail.txt").get(OFFLINE)
    said = f"Verifying performance.\nReference score = {score}\nTest score = {score}\nTEST PASS\n"
    (audit / "verify_performance.txt").write_text(said)
    (audit / "verify_accuracy.txt").write_text(ANSWERS.format(0, "PASS"))
    return tree


def broken(tree: Tree) -> dict[str, str]:
    """The rules on audits that are broken, and what was found; that the run is a copy is told too."""
    return {one.rule: one.found for one in check_tree(tree.root, SHORT).findings
            if one.rule.startswith("audit-") or one.rule == "log-config"}  # fmt: skip


def changed(audited: Tree, tmp_path: Path) -> tuple[Tree, Path]:
    shutil.copytree(audited.root, tmp_path / "tree")
    tree = Tree(tmp_path / "tree")
    place = next(one for one in tree.places() if one.scenario == "Offline")
    return tree, tree.audit(place, "TEST01")


def test_an_honest_audit_has_no_finding(audited: Tree) -> None:
    assert broken(audited) == {}


@pytest.mark.parametrize(
    ("name", "old", "new", "rule", "said"),
    [
        ("verify_performance.txt", "TEST PASS", "TEST FAIL", "audit-verdict", "it says TEST FAIL"),
        ("verify_performance.txt", "TEST PASS\n", "", "audit-verdict", "it ends without a verdict"),
        ("verify_performance.txt", "Reference score = ", "Reference score = 1", "audit-numbers", "reference score is"),
        ("verify_performance.txt", "Test score = ", "Test score = x", "audit-numbers", "test score is x"),
        ("verify_accuracy.txt", "mismatch = 0", "mismatch = 2", "audit-verdict",
         "it says TEST PASS, and num_perf_log_data_mismatch is 2"),
        ("verify_accuracy.txt", "TEST PASS", "TEST FAIL", "audit-verdict", "it says TEST FAIL"),
        ("performance/run_1/mlperf_log_detail.txt", '"key": "sut_name", "value": "', '"key": "sut_name", "value": "X',
         "log-config", "in the TEST01 leg sut_name"),
    ],
)  # fmt: skip
def test_a_changed_audit_is_found(
    audited: Tree, tmp_path: Path, name: str, old: str, new: str, rule: str, said: str
) -> None:
    tree, audit = changed(audited, tmp_path)
    text = (audit / name).read_text()
    assert old in text
    (audit / name).write_text(text.replace(old, new))
    (found,) = broken(tree).items()
    assert found[0] == rule
    assert found[1].startswith(said)


@pytest.mark.parametrize(("rouge", "rule"), [(38.8, "audit-fallback"), (38.0, "audit-verdict")])
def test_answers_of_an_audit_may_differ_where_the_scores_of_both_runs_do_not(
    audited: Tree, tmp_path: Path, rouge: float, rule: str
) -> None:
    tree, audit = changed(audited, tmp_path)
    (audit / "verify_accuracy.txt").write_text(ANSWERS.format(3, "FAIL"))
    (audit / "accuracy").mkdir()
    for name, score in (("baseline_accuracy.txt", 38.8), ("compliance_accuracy.txt", rouge)):
        others = "'rouge2': 15.9, 'rougeL': 24.5, 'rougeLsum': 35.8, 'gen_len': 8000000"
        (audit / "accuracy" / name).write_text(f"{{'rouge1': {score}, {others}}}")
    found = {one.rule: one.found for one in check_tree(tree.root, SHORT).findings if one.rule.startswith("audit-")}
    assert "3 of 100 answers differ" in found["audit-fallback"]
    assert ("audit-verdict" in found) is (rule == "audit-verdict")
