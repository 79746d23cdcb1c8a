"""`main.py store`: from a run to its row, and from the row to the gate."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from compliance.submission.submitted_accuracy import submitted_accuracy
from runs.benchmark import Target
from runs.record.layout import ResultDir, RunDir
from runs.rounds import CURRENT_ROUND
from tests.conftest import ROOT, run_here
from tests.support.files.editing import reseal, say_in_manifest
from tests.support.official import targets_with_share
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.recorded import OVER_HTTP, RESULTS, recorded


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


def exported_rows(call: Any, db: Path) -> list[dict[str, Any]]:
    code, text = call("store", "export", "--db", db, "--format", "json")
    assert code == 0
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def test_repeated_runs_of_a_result_are_one_row(call: Any, result: ResultDir, db: Path) -> None:
    repeat = result.performance.root.with_name("run_2")
    shutil.copytree(result.performance.root, repeat)
    assert call("store", "ingest", "--db", db, result.root)[0] == 0
    assert len(exported_rows(call, db)) == 1
    code, text = call("gate", result.root, "--format", "json")
    assert code == 0
    assert len(json.loads(text)["eligibility"]) == 1
    rows = json.loads(run_here("results", result.root, "--json").stdout)["answer"]["results"]
    assert sorted((row["mode"], row["repeats"]) for row in rows) == [("accuracy", 1), ("performance", 2)]
    RunDir(repeat).seal.unlink()
    assert call("gate", result.root)[0] == 1  # no verdict on the repeated run


def test_a_stored_run_is_judged_by_the_gate(call: Any, result: ResultDir, db: Path, tmp_path: Path) -> None:
    for run in (result.performance, result.accuracy):
        say_in_manifest(run, kv_cache_dtype="fp8")
    declaration = ("--declaration", ROOT / "configs" / "mechanism-fp8-kv.yaml")
    assert call("store", "ingest", "--db", db, result.root, *declaration)[1].startswith("added: ")
    assert call("store", "ingest", "--db", db, result.root, *declaration)[1].startswith("unchanged: ")
    (row,) = exported_rows(call, db)
    recorded = json.loads(result.performance.result.read_text())
    assert row["throughput_tok_s"] == recorded["derived"]["tokens_per_second"]
    assert row["latency_p99_ms"] == recorded["derived"]["latency_ns"]["p99"] / 1e6
    scores = json.loads(result.accuracy.accuracy_json.read_text())["scores"]
    assert {name: row[name] for name in scores} == scores
    assert (row["mechanism"], row["mechanism_variant"], row["kv_cache_dtype"]) == ("kv_quantization", "fp8_e4m3", "fp8")
    assert (row["mechanism_eval_registered"], row["quality_eval_registered"]) == (1, 1)

    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([row]))
    assert call("gate", rows, "--strict")[0] == 0
    rows.write_text(json.dumps([{**row, "support_status": "supported"}]))
    assert call("gate", rows, "--strict")[0] == 1
    for lie in ({"mechanism": "baseline", "mechanism_variant": None}, {"mechanism": None, "mechanism_variant": None}):
        rows.write_text(json.dumps([{**row, **lie, "kv_cache_dtype": "auto"}]))  # the files contradict the declaration
        assert call("gate", rows)[0] == 1
    shutil.rmtree(result.root)
    rows.write_text(json.dumps([{**row, "mechanism": "baseline", "mechanism_variant": None}]))
    assert call("gate", rows)[0] == 1  # its own column still has the value


def test_a_supported_technique_is_stored_with_its_results_file(
    call: Any, result: ResultDir, db: Path, tmp_path: Path
) -> None:
    for run in (result.performance, result.accuracy):
        say_in_manifest(run, kv_cache_dtype="fp8")
    file, rows, missing = tmp_path / "ruler.json", tmp_path / "rows.json", tmp_path / "missing.json"
    file.write_text('{"metric": "ruler_avg_score", "value": 0.927, "n": 6500, "baseline": 0.931}')
    ingest = ("store", "ingest", "--db", db, result.root, "--declaration", ROOT / "configs" / "mechanism-fp8-kv.yaml")
    claim = ("--quality-eval-id", "ruler_v1", "--quality-eval-status", "completed", "--support-status", "supported")
    code, text = call(*ingest, *claim)
    assert code == 0
    assert "stored as reviewed_preview, not as supported: gate/completed_evaluation_passes: " in text
    (row,) = exported_rows(call, db)
    assert (row["support_status"], row["quality_evidence"]) == ("reviewed_preview", "declared only")
    assert "ruler_v1" in row["support_status_reason"]

    assert call(*ingest, *claim, "--quality-results", missing)[0] == 2
    shown = ("--quality-results", file, "--quality-delta-summary=-0.43%", "--replace")
    assert "stored as" not in call(*ingest, *claim, *shown)[1]
    (row,) = exported_rows(call, db)
    assert (row["support_status"], row["support_status_reason"]) == ("supported", None)
    assert (row["quality_evidence"], row["quality_results"]) == ("declared, results file attached", str(file))
    rows.write_text(json.dumps([row]))
    assert call("gate", rows, "--strict")[0] == 0
    file.write_text(file.read_text().replace("0.927", "0.93"))
    code, text = call("gate", rows)
    assert (code, "SHA-256" in text) == (1, True)


def test_a_technique_that_contradicts_the_engine_is_not_certified(call: Any, result: ResultDir, db: Path) -> None:
    say_in_manifest(result.performance, kv_cache_dtype="fp8")
    assert "stored as reviewed_preview" in call("store", "ingest", "--db", db, result.performance.root)[1]
    (row,) = exported_rows(call, db)
    assert (row["mechanism"], row["certification"], row["valid"]) == ("baseline", None, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"throughput_tok_s": 9e9}, {"ttft_p99_ms": 0.1}, {"samples": 10**6}, {"scenario": "Server"},
        {"gpu_type": "NVIDIA H100"}, {"max_num_seqs": 8}, {"dataset_sha256": "0" * 64}, {"model": "another"},
        {"quantization": "fp8"}, {"kv_cache_dtype": "fp8"}, {"speculative": 1}, {"draft_model": "another"},
        {"manifest_sha256": "0" * 64},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_a_row_that_differs_from_its_run_is_reported(
    call: Any, runs: DummyRuns, db: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    call("store", "ingest", "--db", db, runs("SingleStream"))
    (row,) = exported_rows(call, db)
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([row]))
    assert call("gate", rows, "--strict")[0] == 0
    rows.write_text(json.dumps([{**row, **change}]))
    code, text = call("gate", rows)
    assert (code, f"run_verified: {next(iter(change))} of the row: " in text) == (1, True)
    rows.write_text(json.dumps([row, {**row, **change, "run_directory": "/nowhere"}]))
    assert call("gate", rows)[0] == 2


def test_a_changed_declaration_requires_replace(call: Any, runs: DummyRuns, db: Path) -> None:
    assert call("store", "ingest", "--db", db, runs("Offline"))[0] == 0
    changed = ("store", "ingest", "--db", db, runs("Offline"), "--mechanism-notes", "second look")
    code, text = call(*changed)
    assert code == 2
    assert "mechanism_notes None → 'second look'" in text
    assert call(*changed, "--replace")[1].startswith("replaced: ")


def test_a_failed_run_is_stored(call: Any, result: ResultDir, db: Path) -> None:
    manifest = json.loads(result.performance.manifest.read_text())
    error = {"cause": "stall", "message": "3 of 64 queries open, nothing moved for 20 s"}
    manifest |= {"status": "failed", "error": error}
    result.performance.manifest.write_text(json.dumps(manifest))
    assert call("store", "ingest", "--db", db, result.performance.root)[0] == 0
    (row,) = exported_rows(call, db)
    assert (row["status"], row["valid"], row["scenario"]) == ("timeout", None, "Offline")
    assert "nothing moved" in row["error_message"]


def test_a_stored_audit_is_reevaluated_from_its_runs(call: Any, db: Path, tmp_path: Path) -> None:
    result = ResultDir(shutil.copytree(recorded() / RESULTS["Offline"], tmp_path / "audited"))
    run = result.audit("TEST06") / "performance"

    def stored() -> str:
        call("store", "ingest", "--db", db, result.root, "--replace")
        return str(exported_rows(call, db)[0]["audits"])

    assert stored() == '{"TEST06":"PASS"}'
    shutil.rmtree(run)
    assert stored() == '{"TEST06":"unreadable"}'
    shutil.copytree(result.performance.root, run)  # runs without the settings of the audit
    assert stored() == '{"TEST06":"unreadable"}'


def test_a_repeated_run_has_only_the_audits_of_its_result(call: Any, db: Path, tmp_path: Path) -> None:
    result = ResultDir(shutil.copytree(recorded() / RESULTS["Offline"], tmp_path / "audited"))
    repeat = RunDir(result.performance.root.rename(result.performance.root.with_name("run_2")))
    mixed = ResultDir(tmp_path / "other")  # runs and audits of multiple scenarios in one directory
    shutil.copytree(result.audit("TEST06"), mixed.audit("TEST06"))
    shutil.copytree(recorded() / RESULTS["Server"] / "performance" / "run_1", mixed.root / "server")

    def stored(run: Path) -> object:
        call("store", "ingest", "--db", db, run, "--replace")
        (row,) = [exported_row for exported_row in exported_rows(call, db) if exported_row["run_directory"] == str(run)]
        return row["audits"]

    assert stored(repeat.root) == '{"TEST06":"PASS"}'
    assert stored(mixed.root / "server") is None


def test_rows_are_queried_exported_and_summarized(call: Any, runs: DummyRuns, db: Path, tmp_path: Path) -> None:
    call("store", "ingest", "--db", db, runs("Offline"), runs("SingleStream"))
    assert "2 runs" in call("store", "query", "--db", db)[1]
    assert "1 run\n" in call("store", "query", "--db", db, "--where", "scenario=Offline")[1]
    shown = run_here("store", "query", "--db", db, "--group-by", "scenario,mechanism", "--json").stdout
    groups = json.loads(shown)["answer"]["rows"]
    assert {group["scenario"]: group["runs"] for group in groups} == {"Offline": 1, "SingleStream": 1}
    code, text = call("store", "query", "--db", db, "--group-by", "colour")
    assert code == 2
    assert "mechanism_variant" in text  # the message lists the existing IDs
    assert call("store", "query", "--db", db, "--where", "scenario")[0] == 2
    assert call("store", "query", "--db", tmp_path / "other.sqlite")[0] == 2
    rows = list(csv.DictReader(io.StringIO(call("store", "export", "--db", db)[1])))
    assert sorted(row["scenario"] for row in rows) == ["Offline", "SingleStream"]
    call("store", "export", "--db", db, "--output", tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().splitlines()[0].startswith("id,run_id,timestamp")
    assert "2 runs" in call("store", "summary", "--db", db)[1]
    summary = run_here("store", "summary", "--db", db, "--json")
    assert set(json.loads(summary.stdout)["answer"]) == {"runs", "best"}


def test_rows_are_compared_by_their_ids(call: Any, runs: DummyRuns, db: Path) -> None:
    call("store", "ingest", "--db", db, runs("Offline"), runs("SingleStream"))
    first, second = (row["run_id"] for row in exported_rows(call, db))
    code, text = call("store", "compare", "--db", db, first, first[:8])
    assert (code, text.splitlines()[0], text.endswith("\n\n")) == (0, "same conditions", False)
    compared = run_here("store", "compare", "--db", db, first, second, "--json")
    assert compared.code == 1
    assert "scenario" in {condition["name"] for condition in json.loads(compared.stdout)["answer"]["conditions"]}
    assert call("store", "compare", "--db", db, first, "nothing")[0] == 2


def test_stored_scores_are_recomputed_from_the_responses(
    call: Any, result: ResultDir, db: Path, with_target: Callable[[Mapping[str, Target]], None]
) -> None:
    target = targets_with_share(result.accuracy, 0.995)
    with_target(target)
    call("store", "ingest", "--db", db, result.root)
    (row,) = exported_rows(call, db)
    assert row["accuracy_passed"] == 1
    assert "rouge1 -0.50%" in row["quality_delta_summary"]
    assert target["gen_num"].reference == row["gen_num"]


def test_the_run_id_does_not_depend_on_the_accuracy_run(call: Any, result: ResultDir, db: Path) -> None:
    call("store", "ingest", "--db", db, result.performance.root)
    before = result.accuracy.manifest.read_text()
    for text in (before.replace('"status": "finished"', '"status": "failed"'), before):
        result.accuracy.manifest.write_text(text)
        assert call("store", "ingest", "--db", db, result.root)[0] == 2  # changed values
        assert call("store", "ingest", "--db", db, result.root, "--replace")[1].startswith("replaced: ")
    assert [row["status"] for row in exported_rows(call, db)] == ["success"]


def as_bare_logs(runs: DummyRuns, result: ResultDir) -> ResultDir:
    """Return the result with LoadGen's logs and accuracy.txt only, as of another harness."""
    for run, mode in ((result.performance, "performance"), (result.accuracy, "accuracy")):
        shutil.rmtree(run.root)
        runs.copy(run.root, "Offline", mode, bare=True)
    return result


def test_scores_that_cannot_be_rescored_are_unknown(
    call: Any, result: ResultDir, db: Path, with_target: Callable[[Mapping[str, Target]], None]
) -> None:
    """The log is truncated, the dataset is missing, or there is no target for a comparison."""

    def stored() -> tuple[object, object]:
        call("store", "ingest", "--db", db, result.root, "--replace")
        (row,) = exported_rows(call, db)
        assert row["rouge1"] is not None
        return row["accuracy_passed"], row["valid"]

    assert stored() == (None, 1)  # the model of the dummy engine has no target
    with_target(targets_with_share(result.accuracy, 0.995))
    assert stored() == (1, 1)
    with_target(targets_with_share(result.accuracy, 1.5))
    assert stored() == (0, 0)
    with_target(targets_with_share(result.accuracy, 0.995))
    manifests = [run.manifest.read_text() for run in (result.performance, result.accuracy)]
    for run in (result.performance, result.accuracy):
        edit_plan(run, dataset_path="/nowhere/data.json", model_path="/nowhere/model")
    assert stored() == (None, 1)
    for run, text in zip((result.performance, result.accuracy), manifests, strict=True):
        run.manifest.write_text(text)
        reseal(run)
    submitted = submitted_accuracy(result.accuracy)
    result.accuracy.accuracy_log.write_bytes(submitted.log)
    result.accuracy.accuracy_text.write_bytes(submitted.text)
    assert stored() == (None, 1)  # a truncated log is not a fault


def edit_plan(run: RunDir, **plan: str) -> None:
    manifest = json.loads(run.manifest.read_bytes())
    manifest["plan"] |= plan
    run.manifest.write_text(json.dumps(manifest))
    reseal(run)


def test_contradicting_files_make_the_validity_unknown(call: Any, result: ResultDir, db: Path) -> None:
    summary = result.performance.summary
    summary.write_text(re.sub(r"Samples per second: [\d.]+", "Samples per second: 1.5", summary.read_text()))
    call("store", "ingest", "--db", db, result.performance.root)
    (row,) = exported_rows(call, db)
    assert (row["valid"], row["certification"]) == (None, None)
    assert "contradict" in row["error_message"]


def test_logs_of_other_harnesses_fill_only_known_columns(
    call: Any, runs: DummyRuns, result: ResultDir, db: Path
) -> None:
    call("store", "ingest", "--db", db, as_bare_logs(runs, result).performance.root)
    (row,) = exported_rows(call, db)
    shown = {name for name, value in row.items() if value is not None}
    assert shown - {"error_message"} == {
        *("run_id", "ingested_at", "run_directory", "status", "valid", "certification"),
        *("scenario", "lg_model_name", "loadgen_version", "target_qps"),
        *("min_duration_ms", "min_query_count", "performance_sample_count"),
        *("numbers_from", "samples_per_second", "throughput_tok_s", "latency_p50_ms", "latency_p99_ms"),
    }
    named = ("store", "ingest", "--db", db, result.performance.root, "--replace", "--mechanism", "kv_quantization")
    assert "its own record" not in call(*named)[1]
    (row,) = exported_rows(call, db)
    assert (row["mechanism"], row["support_status"], row["mechanism_eval_registered"]) == (
        *("kv_quantization", "reviewed_preview", 0),
    )


def test_a_server_run_has_the_hardware_that_its_operator_declares(call: Any, db: Path, tmp_path: Path) -> None:
    home = next((recorded() / OVER_HTTP).rglob("performance/run_1"))

    def stored() -> dict[str, Any]:
        call("store", "ingest", "--db", db, home, "--replace")
        (row,) = exported_rows(call, db)
        assert row["engine"] == "endpoint"
        names = ("gpu_type", "gpu_count", "speculative", "enable_prefix_caching", "tp", "model_sha256")
        return {name: row[name] for name in names}

    declared = stored()
    assert list(declared.values())[:-1] == ["NVIDIA H100-SXM-80GB", 1, 0, 0, 1]
    assert declared["model_sha256"]
    home = Path(shutil.copytree(home, tmp_path / "silent"))
    manifest = json.loads(RunDir(home).manifest.read_bytes())
    manifest["engine"]["configuration"]["declared"] = None
    RunDir(home).manifest.write_text(json.dumps(manifest))
    assert stored() == dict.fromkeys(declared)


def test_rules_of_the_named_round_are_applied(call: Any, runs: DummyRuns, result: ResultDir, db: Path) -> None:
    """The seeds of the logs are those of the current round."""
    run = as_bare_logs(runs, result).performance.root
    for name, is_reported in ((CURRENT_ROUND.name, False), ("v5.0", True)):
        call("store", "ingest", "--db", db, run, "--round", name, "--replace")
        (row,) = exported_rows(call, db)
        assert row["round"] == name
        assert ("seed" in str(row["error_message"])) == is_reported
    assert call("store", "ingest", "--db", db, run, "--round", "v1")[0] == 2
