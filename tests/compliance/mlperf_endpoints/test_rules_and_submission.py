"""Requirements of a round for real run directories, missing parts of a submission, and the official checker."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from compliance.accuracy.scores import score_texts
from compliance.judge.record import record
from compliance.judge.text import text
from compliance.judge.verdict import not_applied
from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
from compliance.mlperf_endpoints.point_rules import ACCURACY, rescored
from compliance.mlperf_endpoints.round_tables import round_tables
from compliance.mlperf_endpoints.submission import (
    CURVE,
    add_official_checker,
    check_folders,
    regions,
    run_checker,
)
from main import main as run_command
from runs.errors import ExecutionError, ExitCode, InputError
from runs.mlperf_endpoints.find_folders import is_for_endpoints, run_folders
from runs.mlperf_endpoints.folder import EndpointsRun
from runs.mlperf_endpoints.layout import SUMMARY
from tests.support.documents.json_shapes import differences
from tests.support.mlperf_endpoints.endpoints_client import write_data
from tests.support.mlperf_endpoints.folder_changes import Change, combined, in_config, in_json, set_at_path
from tests.support.mlperf_endpoints.verdicts import judge_folder

CopyOf = Callable[[str], Path]
NAME, RUNTIME, PATTERN = "model_params/name", "settings/runtime", "settings/load_pattern"
PUBLISHED = round_tables().seed_sets[0].seeds
SEEDS = {
    "scheduler_random_seed": PUBLISHED["scheduler_rng_seed"],
    "dataloader_random_seed": PUBLISHED["sample_index_rng_seed"],
}
AS_ASKED = combined(
    in_config(NAME, "meta-llama/Llama-3.1-8B-Instruct"),
    in_config("datasets/0/name", "cnn_dailymail::llama3_8b"),
    in_config(RUNTIME, lambda old: old | SEEDS),
)
# Rules that the recorded directory violates: it is small, and its order follows from other seeds.
ALWAYS = {"dataset", "duration"}
CHANGES: dict[str, tuple[Change, set[str]]] = {
    "nothing": (combined(), ALWAYS),
    "another model": (in_config(NAME, "other"), {"model", "duration"}),  # its dataset has no requirement
    "poisson": (in_config(PATTERN, {"type": "poisson", "target_qps": 1.0}), {"pattern", "dataset"}),
    "temperature": (in_config("model_params/temperature", 1.0), {"sampling", *ALWAYS}),
    "longer answers": (in_config("model_params/max_new_tokens", 256), {"sampling", *ALWAYS}),
    "one seed": (in_config(f"{RUNTIME}/scheduler_random_seed", 42), {"seeds", *ALWAYS}),
    "the client's own seeds": (
        in_config(RUNTIME, lambda old: old | round_tables().client_seed_sets["mlperf-inference-v6.1"]),
        {"seeds", *ALWAYS},
    ),
    "another seed of the model": (in_config("model_params/seed", 42), {"seeds", *ALWAYS}),
    "the published seed of the model": (
        in_config("model_params/seed", PUBLISHED["model_seed"]),
        ALWAYS,
    ),
    "the published seed of the model as a signed number": (
        in_config("model_params/seed", PUBLISHED["model_seed"] - 2**64),
        ALWAYS,
    ),
    "no streaming": (in_config("model_params/streaming", "off"), {"streaming", *ALWAYS}),
    "warm-up of the data": (
        in_config("settings/warmup", lambda old: old | {"enabled": True, "n_requests": 1}),
        {"warm-up", *ALWAYS},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_deviation_from_the_round_violates_its_rule(change: str, copy_of: CopyOf) -> None:
    edit, rules = CHANGES[change]
    combined(AS_ASKED, edit)(folder := copy_of("concurrency"))
    verdict = judge_folder(folder, official=True)
    broken = {finding.rule for finding in verdict.of("error", "warning") if finding.kind == "official"}
    assert broken == {f"endpoints-rule-{rule}" for rule in rules}
    left = {entry.what for entry in not_applied(verdict)}
    assert "power" in left
    assert ("dataset" in left) == (change == "another model")


def test_failed_requests_and_partial_passes_violate_rules(recorded: Path) -> None:
    broken = {finding.rule for finding in judge_folder(recorded / "server-died", official=True).of("error")}
    assert {"endpoints-rule-failures", "endpoints-rule-samples"} <= broken


def test_an_unknown_round_is_refused() -> None:
    with pytest.raises(InputError, match=r"v1\.0"):
        round_tables(name="v9")


@pytest.mark.parametrize(
    ("changed", "broken"), [({}, ""), ({"rouge1": "38.3"}, "rouge1"), ({"gen_len": "9000000"}, "gen_len")]
)
def test_scores_below_their_targets_violate_rules(changed: dict[str, str], broken: str, copy_of: CopyOf) -> None:
    AS_ASKED(folder := copy_of("accuracy"))
    good = {"rouge1": "38.8", "rouge2": "16.0", "rougeL": "24.5", "rougeLsum": "35.9", "gen_len": "8000000"}
    entry = {"dataset_name": "scored", "dataset_type": "accuracy", "num_samples": 13368, "score": good | changed}
    (folder / ACCURACY).parent.mkdir(exist_ok=True)
    (folder / ACCURACY).write_text(json.dumps({"accuracy_scores": [entry]}))
    findings = [finding for finding in judge_folder(folder).findings if finding.rule == "endpoints-rule-accuracy"]
    assert [finding.text for finding in findings if not finding.passed] == ([f"scored: {broken}"] if broken else [])
    assert len(findings) == 1 + len(good)


WITH_ROUGE = in_config("datasets/1/accuracy_config/eval_method", "rouge")


@pytest.mark.parametrize("changed", [None, "rouge1", "rougeLsum", "gen_len"])
def test_rouge_scores_are_recomputed_from_the_responses(changed: str | None, copy_of: CopyOf, tmp_path: Path) -> None:
    folder, data = copy_of("accuracy"), tmp_path / "prompts.jsonl"
    write_data(data)
    WITH_ROUGE(folder)
    run = EndpointsRun(folder)
    assert run.events is not None
    index = run.sample_index("scored")
    rows = [json.loads(line)["highlights"] for line in data.read_text().splitlines()]
    pairs = [(response.text, rows[index[row]]) for row, response in run.events.responses() if index[row] >= 0]
    scores = score_texts([text for text, _ in pairs], [reference for _, reference in pairs])
    reported = {name: f"{value + 1 if name == changed else value}" for name, value in scores.items()}
    (folder / ACCURACY).parent.mkdir(exist_ok=True)
    content = {"accuracy_scores": [{"dataset_name": "scored", "dataset_type": "accuracy", "score": reported}]}
    (folder / ACCURACY).write_text(json.dumps(content))
    findings = list(rescored(EndpointsEvidence(run, dataset_path=data)))
    assert len(pairs) == len(rows)
    assert len(findings) == len(scores)
    assert {finding.text.split()[1] for finding in findings if not finding.passed} == ({changed} if changed else set())


def test_a_dataset_with_too_few_rows_is_refused(copy_of: CopyOf, tmp_path: Path) -> None:
    folder, data = copy_of("accuracy"), tmp_path / "prompts.jsonl"
    data.write_text('{"highlights": "one"}\n{"highlights": "two"}\n')
    WITH_ROUGE(folder)
    with pytest.raises(InputError, match="2 rows"):
        list(rescored(EndpointsEvidence(EndpointsRun(folder), dataset_path=data)))


def test_run_directories_are_found_without_those_of_audits(recorded: Path) -> None:
    assert run_folders(recorded / "audit-honest") == [recorded / "audit-honest"]
    assert {folder.name for folder in run_folders(recorded)} == {path.name for path in recorded.iterdir()}
    assert not is_for_endpoints(recorded / "nowhere")


def test_missing_files_and_points_are_listed(recorded: Path) -> None:
    checked = check_folders([recorded])
    broken = {finding.rule for finding in checked.of("error", "warning", "note")}
    assert {"endpoints-file", "endpoints-points", "endpoints-offline", "endpoints-tree"} <= broken
    assert any("point.yaml" in line for line in text(checked, CURVE).splitlines())
    assert record(checked)["official"] == {"run": False}


def test_regions_of_concurrency_follow_the_official_rules() -> None:
    """The rates are example B of §5.4 of the rules, and one of 32."""
    assert regions([1, 256], 32) == {"ultra low": (1, 32), "low": (2, 7), "medium": (8, 41), "high": (42, 256)}
    assert list(regions([8, 32], 32)) == ["ultra low"]


def checker(folder: Path, output: str, code: int) -> str:
    """Write a program that prints this text in place of the official checker."""
    path = folder / "checker"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


def test_findings_of_the_official_checker_are_reported(tmp_path: Path, recorded: Path) -> None:
    results = [
        {"severity": "info", "rule": "path-exists", "message": "there", "passed": True},
        {"severity": "error", "rule": "src-dir", "message": "Missing src/ directory", "passed": False},
    ]
    checked = check_folders([recorded / "concurrency"])
    checked.details.root = recorded
    add_official_checker(checked, checker(tmp_path, json.dumps({"results": results}), 1))
    official = checked.details.official
    assert official is not None
    assert (official["outcome"], official["exit_code"]) == ("errors", 1)
    assert checked.outcome == "FAIL"
    assert any("error src-dir: Missing src/ directory" in line for line in text(checked, CURVE).splitlines())
    assert record(checked)["official"]["run"] is True


@pytest.mark.parametrize("output", ["a traceback", "{}", '{"results": [1]}'])
def test_an_official_checker_without_json_is_an_error(output: str, tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="no JSON in its output"):
        run_checker(checker(tmp_path, output, 2), tmp_path)


def test_submit_writes_points_that_follow_from_the_runs(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree, folders = tmp_path / "tree", [str(recorded / name) for name in ("concurrency", "offline")]
    command = ["submit", *folders, "--organization", "ORG", "--system-name", "BOX", "--output", str(tree)]
    assert run_command(command) == ExitCode.NEGATIVE
    assert "endpoints-rule-model" in capsys.readouterr().out
    assert not tree.exists()
    record = tmp_path / "record.json"
    assert run_command([*command, "--rehearsal", "--json", str(record)]) == ExitCode.OK
    assert "division" in capsys.readouterr().out
    assert differences(json.loads(record.read_bytes()), "check, submit (MLPerf Endpoints)") == []
    place = tree / "results" / "BOX" / "model"
    point = yaml.safe_load((place / "r8" / "point.yaml").read_text())
    assert (point["concurrency"], point["max_supported_concurrency"]) == (8, 8)
    assert point["runtime_settings"]["runtime"] == {"scheduler_rng_seed": 42, "sample_index_rng_seed": 42}
    assert yaml.safe_load((place / "r24" / "point.yaml").read_text())["offline"] == "dedicated"
    summary = place / "r8" / "result_summary.json"
    assert summary.read_bytes() == (recorded / "concurrency" / SUMMARY).read_bytes()
    assert (tree / "REHEARSAL.txt").is_file()


def test_submit_refuses_a_run_directory_that_contradicts_itself(copy_of: CopyOf, tmp_path: Path) -> None:
    in_json(SUMMARY, set_at_path("n_samples_failed", 1))(folder := copy_of("concurrency"))
    command = ["submit", str(folder), "--organization", "ORG", "--system-name", "BOX", "--rehearsal"]
    assert run_command([*command, "--output", str(tmp_path / "tree")]) == ExitCode.NEGATIVE


def test_multiple_run_directories_are_signed_off_as_one_system(recorded: Path, copy_of: CopyOf) -> None:
    in_config("model_params/temperature", 1.0)(folder := copy_of("concurrency"))
    command = ["signoff", "--scope", "harness", "--ref", str(recorded / "poisson")]
    assert run_command([*command, str(recorded / "concurrency")]) == ExitCode.OK
    assert run_command([*command, str(folder)]) == ExitCode.NEGATIVE
    assert run_command(["signoff", "--scope", "baseline", *command[3:]]) == ExitCode.BAD_INPUT


def test_the_store_adds_run_directories_once(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--db", str(tmp_path / "results.sqlite")]
    assert run_command(["store", "ingest", *store, str(recorded / "poisson"), str(recorded / "offline")]) == ExitCode.OK
    assert run_command(["store", "ingest", *store, str(recorded / "poisson")]) == ExitCode.OK
    assert "unchanged" in capsys.readouterr().out
    assert run_command(["store", "query", *store, "--json"]) == ExitCode.OK
    rows = {row["scenario"]: row for row in json.loads(capsys.readouterr().out)["answer"]["rows"]}
    summary = json.loads((recorded / "poisson" / SUMMARY).read_text())
    assert rows["poisson at 30/s"]["samples_per_second"] == summary["qps"]
    assert rows["poisson at 30/s"]["valid"] == 1
    assert rows["max throughput"]["ttft_p99_ms"] is None
