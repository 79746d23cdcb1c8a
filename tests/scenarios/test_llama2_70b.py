"""The second benchmark from end to end with the dummy engine: it supports each command of the first benchmark."""

import json
import shutil
from pathlib import Path

import pytest

from compliance.accuracy.accuracy_text import read_scores
from compliance.accuracy.metrics import ROUGE_AND_TOKENS
from compliance.submission.build import build_submission
from compliance.submission.candidate import SubmitRequest
from compliance.submission.system import read_system_file
from compliance.trees.tree import Place
from runs.benchmarks import BENCHMARKS
from runs.errors import ExitCode
from runs.loadgen.detail_log import read_detail
from runs.record.layout import CampaignDir
from runs.record.manifest import read_manifest
from runs.rounds import CURRENT_ROUND
from tests.conftest import run_here
from tests.support.official import change_benchmarks
from tests.support.runs import orca
from tests.support.runs.submission_runs import SYSTEM, edit
from tests.support.trees.checked_tree import check_submission_tree

STANDARD, INTERACTIVE = BENCHMARKS["llama2-70b"], BENCHMARKS["llama2-70b-interactive"]
SCENARIOS = ("Offline", "Server", "Interactive")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> CampaignDir:
    return orca.make_campaign(tmp_path_factory.mktemp("orca"))


def test_loadgen_logs_have_the_limits_of_the_benchmark(campaign: CampaignDir) -> None:
    for scenario, key in zip(SCENARIOS, ("llama2-70b", "llama2-70b", "llama2-70b-interactive"), strict=True):
        run = campaign.result(orca.BENCHMARK, scenario).performance
        detail, plan = read_detail(run.detail), read_manifest(run.manifest).plan
        assert plan.loadgen_key == key
        assert plan.sampling.max_tokens == 1024
        assert detail.get("requested_performance_sample_count_override") == STANDARD.performance_samples
        limits = BENCHMARKS[key].limits
        if scenario != "Offline":
            assert detail.get("requested_server_ttft_latency") == limits.ttft_ms * 1_000_000
            assert detail.get("requested_server_tpot_latency") == limits.tpot_ms * 1_000_000


def test_a_submission_tree_is_built_and_checked(
    campaign: CampaignDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short runs reach the requirements, and the scores of the dummy engine are the reference."""
    text = campaign.result(orca.BENCHMARK, "Offline").accuracy.accuracy_text.read_text()
    targets = STANDARD.targets_for(read_scores(ROUGE_AND_TOKENS, text))
    change_benchmarks(
        monkeypatch,
        samples=orca.SAMPLES,
        min_duration_ms=100,
        targets=targets,
    )
    copy = CampaignDir(shutil.copytree(campaign.root, tmp_path / "campaign"))
    for path in copy.root.rglob("manifest.json"):  # of one commit, because the checkout may change between two runs
        edit(path, observed={"harness": {"version": "0.1.0", "git_commit": "0" * 40, "git_changed": False}})
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text("print('the code that ran')\n")
    request = SubmitRequest(
        [copy.root], tmp_path / "tree", "Org", "Box", "closed", CURRENT_ROUND,
        read_system_file({"system": SYSTEM}), code, rehearsal=True,
    )  # fmt: skip
    outcome = build_submission(request, lambda text: None)
    assert outcome.all_findings == []
    assert outcome.details.built is not None
    checked = check_submission_tree(tmp_path / "tree", CURRENT_ROUND)
    assert checked.places == [Place("closed", "Org", "Box", orca.BENCHMARK, name) for name in sorted(SCENARIOS)]
    assert {finding.rule for finding in checked.findings} == {"rehearsal"}


def test_runs_are_signed_off(campaign: CampaignDir, tmp_path: Path) -> None:
    result = campaign.result(orca.BENCHMARK, "Server")
    runs = ("--ref", result.performance.root, "--ref", result.accuracy.root)
    finished = run_here("signoff", "--scope", "bundle", *runs, "--out", tmp_path / "verdict.json")
    # A busy host may fail the run, too. Its findings on this benchmark stay equal.
    assert finished.code in (ExitCode.OK, ExitCode.NEGATIVE), finished.stdout + finished.stderr
    record = json.loads((tmp_path / "verdict.json").read_bytes())
    assert (record["audit_scope"], record["auditor_status"]) == ("bundle", "ok")
    assert {"P-6/replayed", "accuracy-no-target", "H-7/output_length"} <= {
        reason["rule"] for reason in record["reasons"]
    }
