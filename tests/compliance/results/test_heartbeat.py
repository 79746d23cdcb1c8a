"""The last heartbeat of a run, compared with its request log: honest runs, and forged copies."""

from pathlib import Path

import orjson
import pytest

from compliance.results.heartbeat import last_heartbeat
from compliance.results.run_evidence import RunEvidence
from runs.errors import ExitCode
from runs.record.layout import RunDir
from tests.conftest import run_here
from tests.support.files.editing import reseal, set_at
from tests.support.runs.dummy_runs import DummyRuns

# Field → factor of a forgery.
FORGERIES = {
    "ttft_p50_ms": 0.5,
    "ttft_p99_ms": 1.04,
    "tpot_p99_ms": 0.96,
    "completed": 2,
    "issued": 2,
    "output_tokens": 3,
    "samples_per_second": 1.01,
    "tokens_per_second": 2.0,
    "elapsed_s": 0.5,
}


def rules(run: RunDir) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in last_heartbeat(RunEvidence(run))]


@pytest.mark.parametrize("mode", ["performance", "accuracy"])
@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream"])
def test_the_heartbeat_of_an_honest_run_has_no_contradiction(scenario: str, mode: str, tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "run", scenario, mode)
    assert orjson.loads(run.progress.read_bytes())["phase"] == "done"
    assert rules(run) == []


@pytest.mark.parametrize("field", FORGERIES)
def test_a_changed_number_of_the_heartbeat_is_a_warning(field: str, tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "run", "Server")
    value = orjson.loads(run.progress.read_bytes())[field]
    set_at(run.progress, field, value * FORGERIES[field])
    assert ("record-progress", "warning") in rules(run)


@pytest.mark.parametrize(("factor", "is_contradicted"), [(0.99, False), (1.05, True), (0.95, True)])
def test_a_wrong_p50_of_tpot_is_a_warning(factor: float, is_contradicted: bool, tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "run", "Server")
    requests = RunEvidence(run).requests
    assert requests is not None
    times_ns = sorted(requests.tpot_ns())
    set_at(run.progress, "tpot_p50_ms", float(factor * times_ns[len(times_ns) // 2] / 1e6))
    assert (rules(run) == [("record-progress", "warning")]) == is_contradicted


def test_verify_and_signoff_warn_of_a_forged_heartbeat(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "run", "Server")
    set_at(run.progress, "ttft_p99_ms", 0.1)
    reseal(run)
    verified = run_here("verify", run.root, "--performance-only")
    assert verified.code == ExitCode.OK, verified.stdout + verified.stderr
    assert "warning record-progress" in verified.stdout
    signed = run_here("signoff", "--scope", "harness", "--ref", run.root)
    assert "warning record-progress" in signed.stdout
