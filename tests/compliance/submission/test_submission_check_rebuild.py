"""`main.py check --runs`: it builds the tree again from the runs and compares each file."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from compliance.judge.verdict import Finding
from compliance.signoff.judge import sign_off
from compliance.signoff.signoff_verdict import headline
from compliance.submission.build import Submission
from compliance.submission.rebuild import TreeInputs, compare_tree_with_runs, index_runs
from compliance.submission.system import read_system_file
from compliance.trees.check_tree import SystemSignOff, TreeReport
from compliance.trees.findings import file_text
from compliance.trees.tree import REHEARSAL_FILE, REHEARSAL_MARK
from runs.record.layout import CampaignDir
from runs.rounds import CURRENT_ROUND
from tests.honest.pair import Pair
from tests.honest.variations import VARIATIONS, run_at
from tests.support.runs.submission_runs import (
    BENCHMARK,
    SCENARIOS,
    SYSTEM,
    claim_official,
    edit,
    results_of,
    sign_off_all,
)
from tests.support.trees.checked_tree import check_submission_tree

Submit = Callable[..., Submission]


@pytest.fixture
def tree(build: Submit, campaign: CampaignDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a tree that is official by its records, with sign-offs that pass."""
    claim_official(campaign)
    sign_off_all(monkeypatch)
    assert build(rehearsal=False).all_findings == []
    return tmp_path / "tree"


def compare_with_runs(tree: Path, runs: Path, **inputs: object) -> tuple[list[Finding], list[SystemSignOff]]:
    made_of = TreeInputs(index_runs([runs]), **{"source": tree.parent / "code", **inputs})  # type: ignore[arg-type]
    alone = check_submission_tree(tree, CURRENT_ROUND)  # the check finds the runs too short
    verdict, findings = alone.verdict, alone.findings
    compare_tree_with_runs(verdict, made_of)
    return [
        finding for finding in TreeReport(verdict).findings if finding not in findings
    ], verdict.details.signed or []


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_tree_that_equals_its_runs_has_no_findings(tree: Path, campaign: CampaignDir) -> None:
    findings, (signed,) = compare_with_runs(tree, campaign.root)
    assert findings == []
    assert (signed.system, signed.runs, signed.legs_found, signed.blocks) == ("closed/Org/Box", 4, 4, False)
    (tree / "closed/Org/calibration.md").write_text("# Calibration\n")
    assert compare_with_runs(tree, campaign.root, given=read_system_file({"system": SYSTEM}))[0] == []
    for number in range(64):  # all of them would be held in memory
        (tree / f"closed/Org/documentation/calibration-{number}.md").write_text("x")
    (finding,) = compare_with_runs(tree, campaign.root)[0]
    assert (finding.rule, file_text(finding)) == ("runs-differ", "closed/Org/documentation")


def test_a_technique_that_fails_the_gate_is_reported(tree: Path, campaign: CampaignDir) -> None:
    for run in (value for result in results_of(campaign) for value in (result.performance, result.accuracy)):
        edit(run.manifest, asked={"mechanism": {"mechanism": "baseline", "mechanism_variant": "none"}})
    findings = [
        finding for finding in compare_with_runs(tree, campaign.root)[0] if finding.rule == "gate/mechanism_misdeclared"
    ]
    assert {file_text(finding) for finding in findings} == {
        f"closed/Org/results/Box/{BENCHMARK}/{name}" for name in SCENARIOS
    }
    assert all("technique: effective technique: weight_quantization/fp8_w8a8" in finding.found for finding in findings)


def test_each_file_that_differs_from_the_runs_is_reported(tree: Path, campaign: CampaignDir) -> None:
    home = tree / "closed/Org"
    offline, server = (home / "results/Box" / BENCHMARK / name for name in ("Offline", "Server"))
    accuracy = offline / "accuracy/accuracy.txt"
    accuracy.write_text(re.sub(r"'rouge1': '?\d", lambda match: match[0][:-1] + "9", accuracy.read_text()))
    replace_in(offline / "measurements.json", '"weight_data_types": "', '"weight_data_types": "fp4 ')
    with (offline / "user.conf").open("a") as stream:
        stream.write("*.Offline.coalesce_queries = 1\n")
    with (offline / "README.md").open("a") as stream:
        stream.write("python main.py --scenario Offline --another-way\n")
    summary = server / "performance/run_1/mlperf_log_summary.txt"
    summary.write_bytes(summary.read_bytes() * 2)
    replace_in(server / "TEST06/verify_accuracy.txt", "True", "False\nFirst token check pass: True")
    responses = server / "TEST06/accuracy/mlperf_log_accuracy.json"
    responses.write_text(responses.read_text().replace('"data" : "', '"data" : "00', 1))
    cut = server / "accuracy/mlperf_log_accuracy.json"
    cut.write_bytes(cut.read_bytes()[:-1] + b" ")
    replace_in(home / "systems/Box.json", '"accelerators_per_node": "', '"accelerators_per_node": "8')
    replace_in(home / "src/mlperf-llama-vllm/main.py", "that ran", "that did not run")
    (home / "src/loadgen.py").write_text("")
    (server / "measurements.json").unlink()
    findings, _ = compare_with_runs(tree, campaign.root)
    differ = {file_text(finding) for finding in findings if finding.rule == "runs-differ"}
    changed = [accuracy, summary, responses, cut, *(offline / name for name in ("measurements.json", "user.conf"))]
    changed += [offline / "README.md", server / "TEST06/verify_accuracy.txt", server / "measurements.json"]
    changed += [home / name for name in ("systems/Box.json", "src/mlperf-llama-vllm/main.py", "src/loadgen.py")]
    assert differ == {path.relative_to(tree).as_posix() for path in changed}
    (system,) = (
        finding for finding in findings if finding.rule == "runs-differ" and file_text(finding).endswith("Box.json")
    )
    assert '"accelerators_per_node": "8' in system.found


def test_a_description_of_other_weights_is_reported(tree: Path, campaign: CampaignDir) -> None:
    rows = {
        "documentation/quantization.md": "| after: w.safetensors | {} |\n",
        "calibration.md": "|After: w|  {}|\r\n",
        "documentation/a/Calibration.txt": "|After: w|  {}|\r\n",
    }
    for name, row in rows.items():
        path = tree / "closed/Org" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(row.format("A" * 64).encode())
    findings, _ = compare_with_runs(tree, campaign.root)
    assert {finding.rule for finding in findings} == {"runs-differ"}
    reported = "\n".join(finding.found for finding in findings)
    assert reported.count("describes weights that the runs did not use") == len(rows), reported
    assert all(Path(name).name in reported for name in rows)


def test_unexpected_files_are_reported(tree: Path, campaign: CampaignDir) -> None:
    names = {"x.txt", "more/x", "closed/x.txt", "open/x.txt"}
    for name in names:
        path = tree / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert {
        file_text(finding) for finding in compare_with_runs(tree, campaign.root)[0] if finding.rule == "runs-differ"
    } == names


def test_a_rehearsal_tree_without_marks_is_reported(build: Submit, campaign: CampaignDir, tmp_path: Path) -> None:
    assert build().all_findings == []
    tree = tmp_path / "tree"
    (tree / REHEARSAL_FILE).unlink()
    for path in tree.glob("closed/Org/**/*"):
        if path.suffix in (".md", ".json") and REHEARSAL_MARK in path.read_text():
            path.write_text("\n".join(line for line in path.read_text().splitlines() if REHEARSAL_MARK not in line))
    for path in tree.rglob("Box.json"):
        path.write_text(json.dumps({"framework": "vLLM 0.32.0"}))
    findings, (signed,) = compare_with_runs(tree, campaign.root)
    assert "submit/not-official" in {finding.rule for finding in findings}
    assert signed.verdict is not None


def test_a_log_that_matches_no_run_is_reported(tree: Path, campaign: CampaignDir) -> None:
    """A log with one more blank prevents the sign-off, which blocks."""
    detail = tree / "closed/Org/results/Box" / BENCHMARK / "Offline/performance/run_1/mlperf_log_detail.txt"
    detail.write_bytes(detail.read_bytes() + b" ")
    findings, (signed,) = compare_with_runs(tree, campaign.root)
    assert ("log-not-in-runs", detail.relative_to(tree).as_posix()) in {
        (finding.rule, file_text(finding)) for finding in findings
    }
    assert (signed.legs_found, signed.blocks) == (3, True)
    assert "--runs has 3 of 4 runs" in signed.headline


def test_missing_code_of_a_commit_is_reported(tree: Path, campaign: CampaignDir) -> None:
    """The commit is missing, so only its absence is reported for the code. The other files are compared."""
    replace_in(tree / "closed/Org/systems/Box.json", '"cooling": "air"', '"cooling": "air" ')
    findings, _ = compare_with_runs(tree, campaign.root, source=None)
    assert {(finding.rule, file_text(finding)) for finding in findings} == {
        ("runs-unread", "closed/Org/src"),
        ("runs-differ", "closed/Org/systems/Box.json"),
    }


def test_responses_that_cannot_be_rescored_are_reported(tree: Path, campaign: CampaignDir) -> None:
    """The recorded dataset is missing, so the scores cannot be recomputed."""
    gone = "0" * 64
    for result in results_of(campaign):
        named = {"dataset_path": "/nowhere/cnn.json", "dataset_sha256": gone}
        edit(result.accuracy.manifest, plan=named)
    findings, _ = compare_with_runs(tree, campaign.root)
    assert any(
        "the responses were not rescored" in item.found for item in findings if item.rule == "accuracy-scored-again"
    )


# Honest variations of a campaign --------------------------------------------------------------------------------------


# Variations of a group are applied to one campaign
GROUPS = (
    ("busy", "rebooted-between", "resumed-campaign", "files-of-a-desktop", "verified-before"),
    ("environment-elsewhere", "no-boot-id", "less-memory-after-a-reboot"),
)


def expect_acceptance(outcome: Submission) -> None:
    assert outcome.all_findings == []
    assert outcome.details.signed is not None
    assert outcome.details.signed.outcome in ("PASS", "FLAG"), headline(outcome.details.signed)


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_honest_campaign_variations_are_submitted(
    build: Callable[..., Submission], campaign: CampaignDir, names: tuple[str, ...]
) -> None:
    for result in results_of(campaign):
        for name in names:
            VARIATIONS[name](Pair(result.root))
    expect_acceptance(build())


def test_a_campaign_is_signed_off_as_a_whole(build: Callable[..., Submission], campaign: CampaignDir) -> None:
    """The campaign is named by its own directory, as in docs/signoff.md."""
    expect_acceptance(build())
    verdict = sign_off("bundle", [campaign.root])
    assert verdict.outcome in ("PASS", "FLAG"), headline(verdict)
    replayed = {path for finding in verdict.all_findings if finding.rule == "P-6/replayed" for path in finding.files}
    assert len(replayed) == len({run.detail for result in results_of(campaign) for run in Pair(result.root).runs})


def test_a_campaign_across_two_years_is_submitted(build: Callable[..., Submission], campaign: CampaignDir) -> None:
    start = datetime(2026, 12, 31, 20, 59, 59, tzinfo=UTC)
    for number, result in enumerate(results_of(campaign)):
        run_at(result.performance, start + timedelta(hours=3 * number))
        run_at(result.accuracy, start + timedelta(hours=3 * number + 1))
    expect_acceptance(build())
