"""`main.py gate` on run directories and on rows: declarations, and the records of engines."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from compliance.techniques.technique_registry import REGISTRY_DIR
from runs.benchmark import Target
from runs.record.layout import ResultDir
from tests.conftest import ROOT
from tests.support.files.editing import say_in_manifest
from tests.support.official import targets_with_share
from tests.support.runs.dummy_runs import DummyRuns

FP8 = ("--mechanism", "kv_quantization", "--mechanism-variant", "fp8_e4m3", "--quality-eval-id", "mlperf_cnndm_rouge")
COMPLETED = (*FP8, "--quality-eval-status", "completed", "--support-status", "supported", "--strict")


def test_a_run_without_declaration_is_an_open_baseline(call: Any, runs: DummyRuns) -> None:
    code, text = call("gate", runs("Offline"), "--strict")
    assert code == 0, text
    assert "pass: baseline/none, Offline" in text
    assert "closed division: technique allowed" in text


def test_a_declared_technique_unused_by_the_engine_closes_the_gate(
    call: Any, runs: DummyRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("gate", runs("Offline"), *FP8)[0] == 1
    monkeypatch.setenv("MECHANISM", "kv_quantization")
    monkeypatch.setenv("MECHANISM_VARIANT", "fp8_e4m3")
    code, text = call("gate", runs("Offline"))
    assert code == 1
    assert "effective technique: none (kv_cache_dtype unknown), required: kv_quantization/fp8_e4m3" in text
    assert call("gate", runs("Offline"), "--mechanism", "baseline", "--mechanism-variant", "none")[0] == 0


def test_the_shipped_declaration_remains_a_preview(call: Any, result: ResultDir) -> None:
    say_in_manifest(result.performance, kv_cache_dtype="fp8")
    declaration = ("--declaration", ROOT / "configs" / "mechanism-fp8-kv.yaml")
    assert call("gate", result.performance.root, *declaration, "--strict")[0] == 0
    promoted = (*declaration, "--support-status", "supported")
    code, text = call("gate", result.performance.root, *promoted)
    assert code == 1
    assert "gate/quality_evaluated: " in text


def test_a_completed_evaluation_must_pass_when_rescored(
    call: Any, result: ResultDir, with_target: Callable[[Mapping[str, Target]], None]
) -> None:
    for run in (result.performance, result.accuracy):
        say_in_manifest(run, kv_cache_dtype="fp8")
    with_target(targets_with_share(result.accuracy, 0.995))
    code, text = call("gate", result.root, *COMPLETED, "--division", "closed")
    assert code == 0, text
    with_target(targets_with_share(result.accuracy, 0.985))
    assert f"rescored accuracy run {result.accuracy.root}: does not pass: rouge1" in call("gate", result.root, *FP8)[1]
    code, text = call("gate", result.root, *COMPLETED[:-1])  # contradicted, so closed without --strict
    assert code == 1
    assert "completed_evaluation_passes" in text
    assert "rouge1" in text


def test_an_edited_score_does_not_pass_the_gate(
    call: Any, result: ResultDir, with_target: Callable[[Mapping[str, Target]], None]
) -> None:
    for run in (result.performance, result.accuracy):
        say_in_manifest(run, kv_cache_dtype="fp8")
    with_target(targets_with_share(result.accuracy, 0.98))
    text = result.accuracy.accuracy_text.read_text()
    scores = json.loads(result.accuracy.accuracy_json.read_text())["scores"]
    better = text.replace(str(round(scores["rouge1"], 4)), str(round(scores["rouge1"] * 1.02, 4)))
    assert better != text
    result.accuracy.accuracy_text.write_text(better)
    code, output = call("gate", result.root, *COMPLETED)
    assert code == 1
    (line,) = [line for line in output.splitlines() if "completed_evaluation_passes" in line]
    assert "accuracy.txt" in line


def test_accuracy_of_another_system_does_not_pass_the_gate(
    call: Any, result: ResultDir, with_target: Callable[[Mapping[str, Target]], None]
) -> None:
    say_in_manifest(result.performance, kv_cache_dtype="fp8")
    with_target(targets_with_share(result.accuracy, 1.0))
    code, text = call("gate", result.root, *COMPLETED)
    assert code == 1
    assert "resolved.kv_cache_dtype: " in text


def test_a_completed_evaluation_requires_an_accuracy_run(call: Any, result: ResultDir) -> None:
    say_in_manifest(result.performance, kv_cache_dtype="fp8")
    code, text = call("gate", result.performance.root, *COMPLETED)
    assert code == 1
    assert "accuracy run of the result: missing" in text


def test_a_run_without_manifest_closes_only_a_strict_gate(call: Any, runs: DummyRuns, tmp_path: Path) -> None:
    bare = runs.copy(tmp_path / "bare", "Offline", bare=True).root
    code, text = call("gate", bare)
    assert code == 0
    assert "engine_record_missing" in text
    assert call("gate", bare, "--strict")[0] == 1


@pytest.mark.parametrize("damage", ["failed", "manifest", "changed"])
def test_a_failed_or_damaged_run_closes_the_gate(call: Any, result: ResultDir, damage: str) -> None:
    run = result.performance
    if damage == "failed":
        run.manifest.write_text(run.manifest.read_text().replace('"status": "finished"', '"status": "failed"'))
    elif damage == "manifest":
        run.manifest.write_text(run.manifest.read_text()[:-100])
    else:
        run.requests.write_text("\n".join(run.requests.read_text().splitlines()[:-1]) + "\n")
    code, text = call("gate", run.root)
    assert code == 1
    assert "run_verified" in text


ROWS: list[tuple[Any, int, int]] = [  # rows, exit code without and with --strict
    ([], 0, 1),
    ({"mechanism": "baseline"}, 0, 0),
    ([{"throughput": 1.0}], 0, 1),
    ([{"mechanism": "baseline", "status": "failed"}], 1, 1),
    ([{"mechanism": "baseline", "certification": "mlcommons"}], 1, 1),
    ([{"mechanism": "baseline", "run_id": ["x"]}], 0, 1),
    ([{"mechanism": "baseline", "speculative": "yes"}], 1, 1),
    ([{"mechanism": "kv_quantization", "mechanism_variant": "fp4"}], 1, 1),
    ([{"mechanism": "baseline"}, {"mechanism": "baseline", "kv_cache_dtype": "fp8_e4m3"}], 1, 1),
]


@pytest.mark.parametrize(("rows", "advisory", "strict"), ROWS)
def test_row_files_have_exit_codes_with_and_without_strict(
    call: Any, tmp_path: Path, rows: Any, advisory: int, strict: int
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows))
    assert call("gate", path)[0] == advisory
    code, text = call("gate", path, "--strict", "--format", "json", "--out", tmp_path / "report.json")
    assert code == strict
    assert json.loads(text) == json.loads((tmp_path / "report.json").read_text())


def test_invalid_arguments_are_refused(call: Any, runs: DummyRuns, tmp_path: Path) -> None:
    assert call("gate", tmp_path / "nothing")[0] == 2
    assert call("gate", tmp_path)[0] == 2  # contains no run
    assert call("gate", runs("Offline"), "--expect", "baseline")[0] == 2
    assert call("gate", runs("Offline"), "--declaration", tmp_path / "nothing.yaml")[0] == 2
    assert call("gate", runs("Offline"), "--out", runs("Offline") / "manifest.json" / "report")[0] == 3


def test_a_custom_registry_is_applied(call: Any, tmp_path: Path) -> None:
    path, registry = tmp_path / "rows.json", tmp_path / "registry"
    path.write_text(json.dumps([{"mechanism": "kv_quantization", "mechanism_variant": "fp4"}]))
    shutil.copytree(REGISTRY_DIR, registry)
    variants = registry / "mechanism_variant_registry.json"
    variants.write_text(variants.read_text().replace('"turboquant_class"', '"fp4"'))
    assert call("gate", path, "--strict", "--registry", registry)[0] == 0
    content = variants.read_text()
    for old, new in (
        ('"kv_quantization", "kv', '"kv'),  # a technique without kind would have no requirements
        ('["speculative_decoding"]', '["speculative_decoding", "magic"]'),
        ('["speculative_decoding"]', '["speculative_decoding", "kv_compression"]'),
        ('["speculative_decoding"]', '"speculative_decoding"'),
        ('"mechanism": "baseline"', '"mechanism": "baseline "'),
        ('"mechanism_variant": "none"', '"mechanism_variant": 0'),
    ):
        assert old in content
        variants.write_text(content.replace(old, new, 1))
        assert call("gate", path, "--registry", registry)[0] == 2
    variants.unlink()
    for options in ((), ("--strict",)):
        assert call("gate", path, *options, "--registry", registry)[0] == 2
