"""The example configurations of audits: their counts and names agree, and each one runs with the dummy engine."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from runs.errors import ExitCode
from tests.conftest import ROOT, RunMain

FOLDER = ROOT / "configs/audits"
AUDITS = {"Offline": "offline-output-caching", "SingleStream": "singlestream-output-caching"}
CAMPAIGN = "campaign-output-caching"
DUMMY = "engine: dummy"
DUMMY_IN_CAMPAIGN = f"{DUMMY}\ndummy_ttft_ms: 80\ndummy_slots: 1"  # only an audit has a pace of its own


def read_example(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))


def test_each_example_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {*AUDITS.values(), CAMPAIGN}


def test_examples_have_equal_counts_and_consistent_names() -> None:
    for name in (*AUDITS.values(), CAMPAIGN):
        assert read_example(name)["output_log_dir"] == f"output/{name}"
        assert f" --config configs/audits/{name}.yaml" in (FOLDER / f"{name}.yaml").read_text()
    for scenario, name in AUDITS.items():
        options = read_example(name)["audit"]
        assert read_example(name)["scenario"] == scenario
        assert read_example(CAMPAIGN)["scenarios"][scenario]["audits"] == [options]


@pytest.mark.parametrize("name", [*AUDITS.values(), pytest.param(CAMPAIGN, marks=pytest.mark.long)])
def test_each_example_runs(name: str, run_main: RunMain, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.yaml"
    engine = DUMMY_IN_CAMPAIGN if name == CAMPAIGN else DUMMY
    file.write_text((FOLDER / file.name).read_text().replace("engine: vllm", engine))
    command = "campaign" if name == CAMPAIGN else "audit"
    finished = run_main(command, "--config", file)
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    records = [json.loads(path.read_bytes()) for path in tmp_path.rglob("audit_output_caching.json")]
    assert len(records) == (len(AUDITS) if name == CAMPAIGN else 1)
    for record in records:
        assert record["passed"]
        assert record["ref_requested"] == record["audit_requested"] == 32
        assert {run["label"] for run in record["runs"]} >= {"reference-n32-round1", "reference-n32-round2"}
