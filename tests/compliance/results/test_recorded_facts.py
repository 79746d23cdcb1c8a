"""Facts of a manifest that contradict the other files of the run: forged copies of a recorded run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.report.run_section import run_section
from compliance.results.recorded_facts import recorded_dates, recorded_facts
from compliance.results.run_evidence import RunEvidence
from runs.attestation.statements import attest
from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.manifest import RECORD_VERSION
from runs.record.progress import PHASES
from tests.conftest import run_here
from tests.support.files.editing import (
    SIGNER,
    edit_detail,
    edit_lines,
    read_records,
    reseal,
    say_in_manifest,
    set_at,
    set_record,
)
from tests.support.runs.dummy_runs import DummyRuns

Forge = Callable[[RunDir], object]


def recorded(values: dict[str, Any]) -> Forge:
    return lambda run: set_record(run, values)


def printed(line: str) -> Forge:
    def change(run: RunDir) -> None:
        run.engine_log.write_text(f"{line}\n")
        reseal(run)

    return change


def printed_beside(line: str, configuration: dict[str, Any]) -> Forge:
    """Return a change of the engine's log beside a configuration in the manifest."""

    def change(run: RunDir) -> None:
        say_in_manifest(run, **configuration)
        printed(line)(run)

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


TIMES = {"queries": 1, "queued_s": 0.0, "prefill_s": 0.0, "decode_s": 0.0}
REPLICA = {
    "replica": 0, "host": "host", "pid": 1, "devices": [], "cores": [], "start_s": 1.0, "weights_sha256": {},
    "environment": {}, "cpu_s": 0.0,
}  # fmt: skip
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
    "an option that the engine printed with another value": (
        printed_beside("Initializing a V1 LLM engine (v1) with config: dtype=torch.float16", {"dtype": "bfloat16"}),
        "the engine printed dtype = float16",
    ),
    "hits of a prefix cache that was off": (
        printed_beside("Prefix cache hit rate: 31.5%", {"enable_prefix_caching": False}),
        "the engine printed a prefix cache hit rate of 31.5%",
    ),
    "times of a closed loop": (requests_with(submit_ns=1), "requests.jsonl has submit_ns"),
    "a replica that was not planned": (requests_with(replica=3), "requests.jsonl has replica 3"),
    "a faster result.json": (result_with("reported.samples_per_second", 1e6), "reported.samples_per_second is 1000000"),
    "another version of LoadGen": (
        recorded({"observed.loadgen.version": "6.0.16"}), "observed.loadgen.version is 6.0.16"
    ),
    "another mode": (recorded({"plan.mode": "accuracy"}), "plan.mode is accuracy"),
    "another dataset size": (recorded({"plan.sample_count": 13368}), "plan.sample_count is 13368"),
    "an audit without its settings": (recorded({"plan.audit": True}), "plan.audit is True"),
    "a closed loop without its times": (recorded({"plan.concurrency": 8}), "plan.concurrency is 8"),
    "shorter prompts in the plan": (recorded({"plan.longest_prompt_tokens": 1}), "plan.longest_prompt_tokens is 1"),
    "another process": (recorded({"pid": 1}), "process"),
    "replicas that were not planned": (recorded({"replicas": [REPLICA]}), "replicas are [0], but 0 were planned"),
    "times in the engine above all latencies": (
        recorded({"observed.engines": [{"query_times": TIMES | {"decode_s": 1e6}, "client": None}]}),
        "observed.engines.query_times adds up to 1000000.000 s",
    ),
    "more queries in the engine": (
        recorded({"observed.engines": [{"query_times": TIMES | {"queries": 10**6}, "client": None}]}),
        "observed.engines.query_times.queries is 1000000",
    ),
    "more cached tokens than prompt tokens": (
        recorded({"observed.cached_prompt_tokens": 10**9}), "observed.cached_prompt_tokens is 1000000000"
    ),
    "a p99 above the maximum": (recorded({"observed.loop_lag.worst_ms": 0.0}), "observed.loop_lag.p99_ms is"),
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


def dates(run: RunDir) -> list[str]:
    return [f"{finding.severity} {finding.sentence}" for finding in recorded_dates(RunEvidence(run))]


def test_dates_of_an_honest_run_agree(run: RunDir) -> None:
    assert dates(run) == []


def test_a_log_of_another_day_than_the_run_is_a_warning(run: RunDir) -> None:
    edit_detail(run, "test_datetime", "2026-01-01T12:00:00Z")
    assert dates(run)[0].startswith("warning test_datetime is 2026-01-01 12:00")


def test_a_start_after_half_of_the_queries_is_a_warning(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "server", "Server")
    issued_ns = sorted(record["issue_ns"] for record in read_records(run))
    set_at(run.manifest, "start_time_ns", issued_ns[len(issued_ns) // 2])
    assert any("the first query was issued" in text for text in dates(run)), dates(run)


def test_an_end_before_the_last_completion_is_a_warning(run: RunDir) -> None:
    completed_ns = max(record["complete_ns"] for record in read_records(run))
    set_at(run.manifest, "end_time_ns", completed_ns - 5_000_000_000)
    assert "warning the last query was completed 5.0 s after end_time_ns" in dates(run)


def test_stages_longer_than_the_run_are_a_warning(run: RunDir) -> None:
    set_at(run.manifest, "observed.start_stages", {"starting": 1e5})
    assert dates(run)[0].startswith("warning observed.start_stages adds up to 100000.0 s")


def test_an_import_that_began_long_before_the_run_is_no_warning(run: RunDir) -> None:
    set_at(run.manifest, "observed.start_stages", {PHASES["importing"]: 1e5})
    assert not dates(run)


def test_cpu_times_of_a_part_of_the_run_are_a_warning(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "server", "Server")
    set_at(run.manifest, "observed.contention.window_s", 0.5)
    assert dates(run)[0].startswith("warning observed.contention.window_s is 0.500, but the requests took")


def test_other_scores_in_accuracy_json_contradict_the_responses(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "accuracy", "Offline", "accuracy")
    assert contradictions(run) == []
    result_with("verdict", "DONE")(run)
    set_at(run.accuracy_json, "scores.rouge1", 99.0)
    reseal(run)
    assert contradictions(run)[0].startswith("rouge1 is 99")


@pytest.mark.parametrize("command", ["results", "status"])
def test_the_result_of_a_changed_record_is_marked(run: RunDir, command: str) -> None:
    set_at(run.result, "reported.samples_per_second", 1e6)
    shown = run_here(command, run.root)
    assert "VALID, but result.json changed since the attestation" in shown.stdout


def test_the_page_of_a_changed_record_is_marked(run: RunDir) -> None:
    set_at(run.result, "reported.samples_per_second", 1e6)
    section = run_section(run.root, "run", "run")
    assert section.outcome == "VALID, but result.json changed since the attestation"
    assert not section.is_good


def test_verify_reports_forged_facts_as_contradictions(run: RunDir) -> None:
    set_record(run, {"observed.host.cores_usable": 128})
    verified = run_here("verify", run.root, "--performance-only")
    assert verified.code == ExitCode.FAILED
    assert "record-facts" in verified.stdout
