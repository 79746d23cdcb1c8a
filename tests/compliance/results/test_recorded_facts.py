"""Facts of a manifest that contradict the other files of the run: forged copies of a recorded run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.results.recorded_facts import recorded_facts
from compliance.results.run_evidence import RunEvidence
from runs.attestation.statements import attest
from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.manifest import RECORD_VERSION
from tests.conftest import run_here
from tests.support.files.editing import SIGNER, edit_lines, reseal, set_at, set_record
from tests.support.runs.dummy_runs import DummyRuns

Forge = Callable[[RunDir], object]


def recorded(values: dict[str, Any]) -> Forge:
    return lambda run: set_record(run, values)


def printed(line: str) -> Forge:
    def change(run: RunDir) -> None:
        run.engine_log.write_text(f"{line}\n")
        reseal(run)

    return change


def requests_with(**fields: object) -> Forge:
    def change(run: RunDir) -> None:
        edit_lines(run.requests, lambda line: line | fields)
        reseal(run)

    return change


def result_with(place: str, value: object) -> Forge:
    def change(run: RunDir) -> None:
        set_at(run.result, place, value)
        reseal(run)

    return change


def signed_for_another_commit(run: RunDir) -> None:
    set_record(run, {"observed.harness.git_commit": "f" * 40})
    attest(run, SIGNER, record_version=RECORD_VERSION, harness_commit="e" * 40, previous=None)


FORGERIES: dict[str, tuple[Forge, str]] = {
    "CPU times that add up to less": (
        recorded({"observed.contention.busy_cpu_s": 50.0, "observed.contention.own_cpu_s": 1.0}),
        "busy_cpu_s - own_cpu_s is 49",
    ),
    "contention on other cores": (
        recorded({"observed.host.cores_usable": 128}), "observed.contention.usable_cores is 2"
    ),
    "a warm-up that was too short": (recorded({"plan.warmup_prompts": 10_000}), "engine.warm_up.prompts is"),
    "the engine log of another run": (printed("(MainProcess pid=1) INFO vLLM"), "engine.log is from process 1"),
    "times of a closed loop": (requests_with(submit_ns=1), "requests.jsonl has submit_ns"),
    "a replica that was not planned": (requests_with(replica=3), "requests.jsonl has replica 3"),
    "a faster result.json": (result_with("reported.samples_per_second", 1e6), "reported.samples_per_second is 1000000"),
    "a signature for another commit": (signed_for_another_commit, f"observed.harness.git_commit is {'f' * 40}"),
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return DummyRuns().copy(tmp_path / "run", "Offline")


def contradictions(run: RunDir) -> list[str]:
    return [finding.sentence for finding in recorded_facts(RunEvidence(run))]


def test_an_unchanged_run_has_no_contradiction(run: RunDir) -> None:
    assert contradictions(run) == []


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_fact_contradicts_another_file(name: str, run: RunDir) -> None:
    forge, text = FORGERIES[name]
    forge(run)
    assert any(text in contradiction for contradiction in contradictions(run)), contradictions(run)


def test_other_scores_in_accuracy_json_contradict_the_responses(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "accuracy", "Offline", "accuracy")
    assert contradictions(run) == []
    result_with("verdict", "DONE")(run)
    set_at(run.accuracy_json, "scores.rouge1", 99.0)
    reseal(run)
    assert contradictions(run)[0].startswith("rouge1 is 99")


def test_the_result_of_a_changed_record_is_marked(run: RunDir) -> None:
    set_at(run.result, "reported.samples_per_second", 1e6)
    shown = run_here("results", run.root)
    assert "VALID, but result.json changed since the attestation" in shown.stdout


def test_verify_reports_forged_facts_as_contradictions(run: RunDir) -> None:
    set_record(run, {"observed.host.cores_usable": 128})
    verified = run_here("verify", run.root, "--performance-only")
    assert verified.code == ExitCode.FAILED
    assert "record-facts" in verified.stdout
