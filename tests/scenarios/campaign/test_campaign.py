"""Campaigns of short dummy runs, started as by a user: completed, killed, changed, and with a failed run."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from compliance.signoff.anchored import chained
from compliance.trees.tree import Division
from runs.attestation.attestation import read_attestation
from runs.benchmark import Target
from runs.errors import ExitCode
from runs.record.layout import CampaignDir, ResultDir, RunDir
from runs.record.manifest import read_manifest
from scenarios.campaign.campaign_config import load_campaign
from scenarios.campaign.campaign_plan import plan_campaign
from scenarios.campaign.campaign_state import examine_scenario
from scenarios.resumed import held
from tests.conftest import RunMain, StartedMain, StartMain, run_here
from tests.support.official import DATACENTER as DATACENTER_BENCHMARK
from tests.support.official import change_benchmarks
from tests.support.once import make_once
from tests.support.processes.patience import until
from tests.support.runs.run_commands import LONG_USER_CONF, USER_CONF, processes_of_group, progress, run_pid
from tests.support.runs.submission_runs import edit

DATACENTER: dict[str, Any] = {
    "benchmark": "llama3.1-8b",
    "engine": "dummy",
    "scenarios": {"Offline": {"dummy_ttft_ms": 250}, "Server": None},
}
FP8 = {"mechanism": "kv_quantization", "mechanism_variant": "fp8_e4m3"}
COMPLETED = {"quality_eval_status": "completed"}
RUNS = ["Offline performance", "Offline accuracy", "Offline TEST06"]
RUNS += [name.replace("Offline", "Server") for name in RUNS]


class SmallCampaign:
    """The files of a campaign and its results."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "small.yaml"
        self.conf = folder / "user.conf"
        self.place = CampaignDir(folder / "campaign")
        self.write(DATACENTER)
        self.conf.write_text(USER_CONF)

    def write(self, content: dict[str, Any], **more: Any) -> None:
        self.file.write_text(yaml.safe_dump({"user_conf": str(self.conf), **content, **more}, sort_keys=False))

    def arguments(self, *more: object) -> list[object]:
        return ["campaign", "--config", self.file, "--output-log-dir", self.place.root, *more]

    def result(self, scenario: str) -> ResultDir:
        return self.place.result("llama3.1-8b", scenario)

    def starts(self) -> dict[str, int]:
        """Return the start of each finished run by name. An equal number means that it was not run again."""
        times_ns = {}
        for scenario in ("Offline", "Server"):
            folders = {
                "performance": self.result(scenario).performance.root,
                "accuracy": self.result(scenario).accuracy.root,
                "TEST06": self.result(scenario).audit("TEST06") / "performance",
            }
            for kind, folder in folders.items():
                if (folder / "manifest.json").exists():
                    manifest = read_manifest(folder / "manifest.json")
                    if manifest.status == "finished":
                        times_ns[f"{scenario} {kind}"] = manifest.start_time_ns or 0
        return times_ns

    def chain(self) -> int:
        """Return the number of attestations. Each one but the first names that of the previous run."""
        runs = [RunDir(path.parent) for path in self.place.root.rglob("seal.json")]
        runs.sort(key=lambda run: read_manifest(run.manifest).start_time_ns or 0)
        statements = [read_attestation(run) for run in runs]
        assert [statement.predicate.previous for statement in statements] == [
            None,
            *(statement.digest for statement in statements[:-1]),
        ]
        assert list(chained(runs)) == []
        return len(statements)


@pytest.fixture
def small_campaign(tmp_path: Path) -> SmallCampaign:
    return SmallCampaign(tmp_path)


def _run(folder: Path) -> None:
    finished = StartedMain(tuple(SmallCampaign(folder).arguments()), folder, {}).wait()
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    assert "all 6 runs are done" in finished.stdout


@pytest.fixture
def complete_campaign(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> SmallCampaign:
    """Return a copy of a campaign with complete runs."""
    shutil.copytree(make_once(tmp_path_factory, "campaign", _run), tmp_path, dirs_exist_ok=True)
    return SmallCampaign(tmp_path)


def test_a_campaign_starts_each_run_once(complete_campaign: SmallCampaign) -> None:
    small, starts = complete_campaign, complete_campaign.starts()
    assert sorted(starts) == sorted(RUNS)
    for scenario in ("Offline", "Server"):
        assert "Verifying performance." in (small.result(scenario).root / "verify_performance.txt").read_text()
        assert json.loads((small.result(scenario).audit("TEST06") / "audit_TEST06.json").read_text())["passed"] is True

    kept = json.loads(small.place.configuration.read_bytes())
    assert sorted(run["leg"] for run in kept["legs"]) == sorted(RUNS)
    assert kept["asked"]["scenarios"].keys() == {"Offline", "Server"}
    again = run_here(*small.arguments())
    assert again.code == ExitCode.OK
    assert "6 of 6 runs are done" in again.stdout
    assert small.starts() == starts
    assert not small.result("Offline").discarded.exists()


def test_damaged_and_missing_files_are_run_again(complete_campaign: SmallCampaign, run_main: RunMain) -> None:
    small, starts, chain = complete_campaign, complete_campaign.starts(), complete_campaign.chain()
    assert chain == len(RUNS)
    small.result("Offline").accuracy.requests.unlink()
    detail = small.result("Server").performance.detail
    detail.write_text(detail.read_text().replace("0", "1", 1))
    (small.result("Server").audit("TEST06") / "verify_accuracy.txt").write_text("First token check pass: ")

    assert run_main(*small.arguments()).code == ExitCode.OK
    repeated = {name for name, start in small.starts().items() if start != starts[name]}
    assert repeated == {"Offline accuracy", "Server performance", "Server TEST06"}
    assert small.chain() == chain + len(repeated)
    assert sorted(path.name for path in small.result("Offline").discarded.iterdir() if path.is_dir()) == ["1-accuracy"]
    moved = small.result("Server").discarded
    assert (moved / "1-performance" / detail.name).exists()
    assert (moved / "2-TEST06" / "verify_accuracy.txt").exists()


def test_an_interrupted_campaign_continues_with_the_same_command(
    small_campaign: SmallCampaign, start_main: StartMain, run_main: RunMain
) -> None:
    small_campaign.write(DATACENTER, scenarios={"Server": None})
    small_campaign.conf.write_text(LONG_USER_CONF)
    run = small_campaign.result("Server").performance.root
    campaign = start_main(*small_campaign.arguments())
    until(lambda: progress(run).get("completed", 0) > 5, "the first responses")
    group = run_pid(run)
    campaign.process.send_signal(signal.SIGINT)
    assert campaign.wait().code == ExitCode.INTERRUPTED
    assert not processes_of_group(group)
    assert small_campaign.starts() == {}
    reported = run_here("status", small_campaign.place.root)
    assert reported.stdout.startswith("interrupted "), reported.stdout
    assert "0 of 3 runs done; " in reported.stdout

    small_campaign.conf.write_text(USER_CONF)
    again = run_main(*small_campaign.arguments())
    assert again.code == ExitCode.OK, again.stdout + again.stderr
    assert sorted(small_campaign.starts()) == ["Server TEST06", "Server accuracy", "Server performance"]
    assert (small_campaign.result("Server").discarded / "1-performance" / "manifest.json").exists()


def test_a_changed_configuration_is_refused(complete_campaign: SmallCampaign, run_main: RunMain) -> None:
    small, starts = complete_campaign, complete_campaign.starts()
    small.write(DATACENTER, scenarios={"Offline": {"dummy_ttft_ms": 260}, "Server": {"target_qps": 900}})
    for more in ((), ("--dry-run",)):
        refused = run_main(*small.arguments(*more))
        assert refused.code == ExitCode.BAD_INPUT
        assert "Offline performance: engine_options.ttft_ms: 250.0 then, 260.0 now" in refused.stderr
        assert "Server accuracy: user.conf target_qps: 800 then, 900 now" in refused.stderr
        assert "--restart-changed" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert small.starts() == starts

    small.write(DATACENTER, scenarios={"Offline": {"dummy_ttft_ms": 250}, "Server": {"target_qps": 900}})
    assert run_main(*small.arguments("--restart-changed")).code == ExitCode.OK
    repeated = {name for name, start in small.starts().items() if start != starts[name]}
    assert repeated == {name for name in RUNS if name.startswith("Server")}
    assert (small.result("Server").discarded / "1-performance-verify_performance.txt").exists()


def test_a_commit_between_runs_is_reported(complete_campaign: SmallCampaign) -> None:
    """The difference would refuse the submission hours later. The runs stay unchanged."""
    for path in complete_campaign.place.root.rglob("manifest.json"):
        edit(path, observed={"harness": {"git_commit": "0" * 40}})
    reported = run_here(*complete_campaign.arguments("--dry-run"))
    assert reported.code == ExitCode.OK, reported.stdout + reported.stderr
    assert "6 of 6 runs are done" in reported.stdout
    assert "note: finished runs have commit 0000" in " ".join(reported.stdout.split())


def test_a_run_in_progress_is_neither_complete_nor_failed(complete_campaign: SmallCampaign) -> None:
    here = {"status": "running", "end_time_ns": None, "pid": os.getppid()}
    for folder in (
        complete_campaign.result("Offline").performance.root,
        complete_campaign.result("Offline").audit("TEST06") / "performance",
    ):
        edit(folder / "manifest.json", **here)
    campaign = load_campaign(complete_campaign.file, {"output_log_dir": complete_campaign.place.root})
    runs = [run for run in plan_campaign(campaign, lambda text: None) if run.scenario == "Offline"]
    states = examine_scenario(runs, "closed")[0]
    assert [(state.status, state.done) for state in states.values()] == [
        ("running", False), ("done", True), ("running", False)
    ]  # fmt: skip
    assert states["performance"].text == f"process {os.getppid()}"


@pytest.mark.parametrize(("division", "status"), [("closed", "negative"), ("open", "done")])
def test_an_open_campaign_is_complete_below_the_target_scores(
    complete_campaign: SmallCampaign, division: Division, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`submit` requires no target scores in open. Otherwise such a campaign would never be complete."""
    targets = {**DATACENTER_BENCHMARK.targets, "gen_num": Target(64)}
    change_benchmarks(monkeypatch, samples=64, targets=targets)
    complete_campaign.write(DATACENTER, division=division)
    campaign = load_campaign(complete_campaign.file, {"output_log_dir": complete_campaign.place.root})
    runs = [run for run in plan_campaign(campaign, lambda text: None) if run.scenario == "Offline"]
    state = examine_scenario(runs, division)[0]["accuracy"]
    assert (state.status, "required: at least" in state.text) == (status, status == "negative"), state.text


def test_a_failed_or_invalid_run_does_not_end_the_campaign(small_campaign: SmallCampaign, run_main: RunMain) -> None:
    small_campaign.write(DATACENTER, scenarios={"Offline": {"dummy_fault": ["fail@3"]}, "Server": None})
    small_campaign.conf.write_text(USER_CONF + "llama3_1-8b.Server.min_duration = 100\n")  # too few queries to be VALID
    finished = run_main(*small_campaign.arguments())
    assert finished.code == ExitCode.FAILED, finished.stdout + finished.stderr
    assert "missing: 4 of 6 runs" in finished.stdout
    assert "Server performance: negative" in finished.stdout
    assert f"first change the settings in {small_campaign.file}, or the system" in finished.stdout
    campaign = load_campaign(small_campaign.file, {"output_log_dir": small_campaign.place.root})
    runs = [run for run in plan_campaign(campaign, lambda text: None) if run.scenario == "Offline"]
    audit = examine_scenario(runs, "closed")[0]["TEST06"]
    end = json.loads((small_campaign.result("Offline").audit("TEST06") / "ended.json").read_text())
    assert (audit.status, audit.text) == ("failed", end["message"])
    assert sorted(small_campaign.starts()) == [name for name in sorted(RUNS) if name.startswith("Server")]
    assert not (small_campaign.result("Server").root / "verify_performance.txt").exists()


def test_a_dry_run_writes_no_file(small_campaign: SmallCampaign) -> None:
    finished = run_here(*small_campaign.arguments("--dry-run"))
    assert finished.code == ExitCode.OK, finished.stderr
    for text in (*RUNS, "rounded up to 8 whole datasets of 64", "0 of 6 runs are done"):
        assert text in finished.stdout
    assert not small_campaign.place.root.exists()


def test_a_refused_campaign_writes_no_file(small_campaign: SmallCampaign) -> None:
    assert run_here(*small_campaign.arguments("--dataset-path", small_campaign.conf)).code == ExitCode.BAD_INPUT
    assert not small_campaign.place.root.exists()
    with held(small_campaign.place.lock, "campaign"):
        refused = run_here(*small_campaign.arguments())
    assert (refused.code, "another campaign" in refused.stderr) == (ExitCode.REFUSED, True)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mechanism": {**FP8, "support_status": "supported"}},
         "gate/quality_evaluated: "),
        ({"mechanism": {**FP8, **COMPLETED, "quality_eval_id": "ruler_v1", "support_status": "supported"}},
         "ruler_v1: missing"),
        ({"mechanism": {"mechanism": "kv_compression", "mechanism_variant": "kvtc_class"}},
         "closed division: no"),
    ],
)  # fmt: skip
def test_a_technique_that_fails_the_gate_is_refused_before_the_start(
    small_campaign: SmallCampaign, changes: dict[str, Any], reason: str
) -> None:
    small_campaign.write({**DATACENTER, **changes})
    refused = run_here(*small_campaign.arguments())
    assert refused.code == ExitCode.BAD_INPUT
    assert f"Offline: the gate closes {changes['mechanism']['mechanism']}" in refused.stderr
    assert reason in refused.stderr
    assert not small_campaign.place.root.exists()


def test_a_technique_evaluated_by_its_accuracy_run_may_start(small_campaign: SmallCampaign) -> None:
    shown = {**FP8, **COMPLETED, "quality_eval_id": "mlperf_cnndm_rouge", "support_status": "supported"}
    small_campaign.write({**DATACENTER, "mechanism": shown})
    assert run_here(*small_campaign.arguments("--dry-run")).code == ExitCode.OK
