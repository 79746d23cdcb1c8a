"""`main.py gate` and `main.py store` on run directories: from a leg to its row, and from the row to the gate."""

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

import compliance.evidence.accuracy
from compliance.mechanisms.declaration import FIELDS
from compliance.mechanisms.registry import REGISTRY_DIR
from runs.benchmark import Target
from runs.errors import HarnessError
from runs.record.layout import ResultDir, RunDir
from scenarios.commands.gate import gate
from scenarios.commands.store import store
from tests.conftest import ROOT
from tests.support import warm
from tests.support.editing import reseal
from tests.support.official import targets_at
from tests.support.verify_legs import USER_CONF, DummyLegs

FP8 = ("--mechanism", "kv_quantization", "--mechanism-variant", "fp8_e4m3", "--quality-eval-id", "mlperf_cnndm_rouge")
COMPLETED = (*FP8, "--quality-eval-status", "completed", "--support-status", "supported", "--strict")


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> DummyLegs:
    return DummyLegs(tmp_path_factory)


@pytest.fixture(autouse=True)
def _no_declaration_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for entry in FIELDS:
        monkeypatch.delenv(entry.variable, raising=False)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs `gate …` or `store …`; returns the exit code, and what was printed or the error's message."""

    def run(name: str, *arguments: object) -> tuple[int, str]:
        command: click.Command = {"gate": gate, "store": store}[name]
        try:
            code = int(command.main([str(one) for one in arguments], standalone_mode=False) or 0)
        except HarnessError as error:
            return int(error.exit_code), str(error)
        return code, capsys.readouterr().out

    return run


@pytest.fixture
def result(legs: DummyLegs, tmp_path: Path) -> ResultDir:
    """A performance and an accuracy leg of one result, to change."""
    found = ResultDir(tmp_path / "result")
    legs.copy(found.performance.root, "Offline")
    legs.copy(found.accuracy.root, "Offline", "accuracy")
    return found


def say_in_manifest(run: RunDir, **configuration: Any) -> None:
    """Make the engine's record say something else."""
    manifest = json.loads(run.manifest.read_text())
    manifest["engine"]["configuration"] |= configuration
    run.manifest.write_text(json.dumps(manifest))
    reseal(run)


def reachable(run: RunDir, share: float) -> Mapping[str, Target]:
    """Reference scores of which a leg reaches this share."""
    scores = json.loads(run.accuracy_json.read_text())["scores"]
    rouge = {name: scores[name] / share for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")}
    return targets_at({**scores, **rouge})


@pytest.fixture
def with_target(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, Target]], None]:
    """Gives the dummy engine's made-up model reference scores, which no real data set has."""
    return lambda target: monkeypatch.setattr(
        compliance.evidence.accuracy, "target_of", lambda _: (target, "reference of this test")
    )


def test_a_leg_that_declares_nothing_is_an_open_baseline(call: Any, legs: DummyLegs) -> None:
    code, text = call("gate", legs("Offline"), "--strict")
    assert code == 0, text
    assert "pass: baseline/none, Offline" in text
    assert "closed division: eligible" in text


def test_an_fp8_cache_declared_as_baseline_closes_the_gate(call: Any, result: ResultDir) -> None:
    say_in_manifest(result.performance, kv_cache_dtype="fp8")
    code, text = call("gate", result.performance.root)
    assert code == 1
    assert "mechanism_misdeclared: declared baseline, but kv_quantization was in force" in text
    assert "engine.configuration: kv_cache_dtype fp8" in text


def test_a_draft_model_in_the_accuracy_leg_alone_closes_it_too(call: Any, result: ResultDir) -> None:
    say_in_manifest(result.accuracy, speculative=True)
    code, text = call("gate", result.root, "--format", "json")
    (failing,) = json.loads(text)["gates"][0]["failing_rows"]
    assert code == 1
    assert failing["refuted"] is True
    assert "speculative_decoding was in force" in failing["failed_criteria"][0]


def test_a_technique_that_the_engine_did_not_run_closes_the_gate(
    call: Any, legs: DummyLegs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("gate", legs("Offline"), *FP8)[0] == 1
    monkeypatch.setenv("MECHANISM", "kv_quantization")
    monkeypatch.setenv("MECHANISM_VARIANT", "fp8_e4m3")
    code, text = call("gate", legs("Offline"))
    assert code == 1
    assert "the engine ran without it" in text
    assert call("gate", legs("Offline"), "--mechanism", "baseline", "--mechanism-variant", "none")[0] == 0


def test_the_shipped_declaration_is_held_at_preview_and_not_promoted(call: Any, result: ResultDir) -> None:
    say_in_manifest(result.performance, kv_cache_dtype="fp8")
    declaration = ("--declaration", ROOT / "configs" / "mechanism-fp8-kv.yaml")
    assert call("gate", result.performance.root, *declaration, "--strict")[0] == 0
    promoted = (*declaration, "--support-status", "supported")
    assert call("gate", result.performance.root, *promoted)[0] == 0  # advice
    code, text = call("gate", result.performance.root, *promoted, "--strict")
    assert code == 1
    assert "quality_evaluated: supported kv_quantization needs a completed evaluation, it is pending" in text


def test_a_completed_evaluation_has_to_pass_when_derived_again(
    call: Any, result: ResultDir, with_target: Callable[[Mapping[str, Target]], None]
) -> None:
    for run in (result.performance, result.accuracy):
        say_in_manifest(run, kv_cache_dtype="fp8")
    with_target(reachable(result.accuracy, 0.995))
    code, text = call("gate", result.root, *COMPLETED, "--division", "closed")
    assert code == 0, text
    with_target(reachable(result.accuracy, 0.985))
    assert "and " + str(result.accuracy.root) + " does not pass: rouge1" in call("gate", result.root, *FP8)[1]
    code, text = call("gate", result.root, *COMPLETED[:-1])  # refuted: closed without --strict
    assert code == 1
    assert "completed_evaluation_passes" in text
    assert "rouge1" in text


def test_a_claimed_score_is_no_evidence(
    call: Any, result: ResultDir, with_target: Callable[[Mapping[str, Target]], None]
) -> None:
    for run in (result.performance, result.accuracy):
        say_in_manifest(run, kv_cache_dtype="fp8")
    with_target(reachable(result.accuracy, 0.98))
    text = result.accuracy.accuracy_text.read_text()
    scores = json.loads(result.accuracy.accuracy_json.read_text())["scores"]
    better = text.replace(str(round(scores["rouge1"], 4)), str(round(scores["rouge1"] * 1.02, 4)))
    assert better != text
    result.accuracy.accuracy_text.write_text(better)
    code, said = call("gate", result.root, *COMPLETED)
    assert code == 1
    (line,) = [line for line in said.splitlines() if "completed_evaluation_passes" in line]
    assert "accuracy.txt does not belong to these answers" in line


def test_accuracy_of_another_system_is_no_evidence(
    call: Any, result: ResultDir, with_target: Callable[[Mapping[str, Target]], None]
) -> None:
    say_in_manifest(result.performance, kv_cache_dtype="fp8")
    with_target(reachable(result.accuracy, 1.0))
    code, text = call("gate", result.root, *COMPLETED)
    assert code == 1
    assert "the performance leg ran with kv_quantization/fp8_e4m3, the accuracy leg with nothing lossy" in text


def test_a_completed_evaluation_without_an_accuracy_leg(call: Any, result: ResultDir) -> None:
    say_in_manifest(result.performance, kv_cache_dtype="fp8")
    code, text = call("gate", result.performance.root, *COMPLETED)
    assert code == 1
    assert "the result has no accuracy leg" in text


def test_a_leg_without_a_manifest_is_advice_until_strict(call: Any, legs: DummyLegs, tmp_path: Path) -> None:
    bare = legs.copy(tmp_path / "bare", "Offline", bare=True).root
    code, text = call("gate", bare)
    assert code == 0
    assert "engine_record_missing" in text
    assert call("gate", bare, "--strict")[0] == 1


@pytest.mark.parametrize("damage", ["failed", "manifest", "changed"])
def test_a_run_that_is_none_closes_the_gate(call: Any, result: ResultDir, damage: str) -> None:
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
    ([{"mechanism": "baseline", "speculative": "yes"}], 1, 1),
    ([{"mechanism": "kv_quantization", "mechanism_variant": "fp4"}], 0, 1),
    ([{"mechanism": "baseline"}, {"mechanism": "baseline", "kv_cache_dtype": "fp8_e4m3"}], 1, 1),
]


@pytest.mark.parametrize(("rows", "advisory", "strict"), ROWS)
def test_exit_codes_of_row_files(call: Any, tmp_path: Path, rows: Any, advisory: int, strict: int) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows))
    assert call("gate", path)[0] == advisory
    code, text = call("gate", path, "--strict", "--format", "json", "--out", tmp_path / "report.json")
    assert code == strict
    assert json.loads(text) == json.loads((tmp_path / "report.json").read_text())


@pytest.mark.parametrize("text", ["{", "[1]", '"row"', "null"])
def test_a_file_that_holds_no_rows(call: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text)
    code, said = call("gate", path)
    assert code == 2
    assert str(path) in said


def test_bad_arguments(call: Any, legs: DummyLegs, tmp_path: Path) -> None:
    assert call("gate", tmp_path / "nothing")[0] == 2
    assert call("gate", tmp_path)[0] == 2  # holds no run
    assert call("gate", legs("Offline"), "--expect", "baseline")[0] == 2
    assert call("gate", legs("Offline"), "--declaration", tmp_path / "nothing.yaml")[0] == 2
    assert call("gate", legs("Offline"), "--out", legs("Offline") / "manifest.json" / "report")[0] == 3


def test_registries_of_ones_own(call: Any, tmp_path: Path) -> None:
    path, registry = tmp_path / "rows.json", tmp_path / "registry"
    path.write_text(json.dumps([{"mechanism": "kv_quantization", "mechanism_variant": "fp4"}]))
    shutil.copytree(REGISTRY_DIR, registry)
    variants = registry / "mechanism_variant_registry.json"
    variants.write_text(variants.read_text().replace('"turboquant_class"', '"fp4"'))
    assert call("gate", path, "--strict", "--registry", registry)[0] == 0
    known = variants.read_text()
    for old, new in (
        ('"kv_quantization", "kv', '"kv'),  # a technique of no kind would be held to nothing
        ('["speculative_decoding"]', '["speculative_decoding", "magic"]'),
        ('["speculative_decoding"]', '["speculative_decoding", "kv_compression"]'),
        ('["speculative_decoding"]', '"speculative_decoding"'),
        ('"mechanism": "baseline"', '"mechanism": "baseline "'),
        ('"mechanism_variant": "none"', '"mechanism_variant": 0'),
    ):
        assert old in known
        variants.write_text(known.replace(old, new, 1))
        assert call("gate", path, "--registry", registry)[0] == 2
    variants.unlink()
    for options in ((), ("--strict",)):
        assert call("gate", path, *options, "--registry", registry)[0] == 2


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Path]:
    return tmp_path / "results.sqlite"


def exported(call: Any, db: Path) -> list[dict[str, Any]]:
    code, text = call("store", "export", "--db", db, "--format", "json")
    assert code == 0
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def test_from_leg_to_row_to_gate(call: Any, result: ResultDir, db: Path, tmp_path: Path) -> None:
    for run in (result.performance, result.accuracy):
        say_in_manifest(run, kv_cache_dtype="fp8")
    declaration = ("--declaration", ROOT / "configs" / "mechanism-fp8-kv.yaml")
    assert call("store", "ingest", "--db", db, result.root, *declaration)[1].startswith("added: ")
    assert call("store", "ingest", "--db", db, result.root, *declaration)[1].startswith("unchanged: ")
    (row,) = exported(call, db)
    leg = json.loads(result.performance.result.read_text())
    assert row["throughput_tok_s"] == leg["derived"]["tokens_per_second"]
    assert row["latency_p99_ms"] == leg["derived"]["latency_ns"]["p99"] / 1e6
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
        rows.write_text(json.dumps([{**row, **lie, "kv_cache_dtype": "auto"}]))  # the files say otherwise
        assert call("gate", rows)[0] == 1
    shutil.rmtree(result.root)
    rows.write_text(json.dumps([{**row, "mechanism": "baseline", "mechanism_variant": None}]))
    assert call("gate", rows)[0] == 1  # its own column still tells


@pytest.mark.parametrize(
    "change",
    [
        {"throughput_tok_s": 9e9}, {"ttft_p99_ms": 0.1}, {"samples": 10**6}, {"scenario": "Server"},
        {"gpu_type": "NVIDIA H100"}, {"dataset_sha256": "0" * 64}, {"model": "another"},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_a_row_is_held_against_its_run(
    call: Any, legs: DummyLegs, db: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    call("store", "ingest", "--db", db, legs("SingleStream"))
    (row,) = exported(call, db)
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([row]))
    assert call("gate", rows, "--strict")[0] == 0
    rows.write_text(json.dumps([{**row, **change}]))
    code, text = call("gate", rows)
    assert (code, f"run_verified: {next(iter(change))} is " in text) == (1, True)
    rows.write_text(json.dumps([row, {**row, **change, "run_directory": "/nowhere"}]))
    assert call("gate", rows)[0] == 2


def test_a_changed_declaration_needs_replace(call: Any, legs: DummyLegs, db: Path) -> None:
    assert call("store", "ingest", "--db", db, legs("Offline"))[0] == 0
    changed = ("store", "ingest", "--db", db, legs("Offline"), "--mechanism-notes", "second look")
    code, text = call(*changed)
    assert code == 2
    assert "mechanism_notes None → 'second look'" in text
    assert call(*changed, "--replace")[1].startswith("replaced: ")


def test_a_leg_that_failed_is_a_row_too(call: Any, result: ResultDir, db: Path) -> None:
    manifest = json.loads(result.performance.manifest.read_text())
    error = {"cause": "stall", "message": "3 of 64 queries open, nothing moved for 20 s"}
    manifest |= {"status": "failed", "error": error}
    result.performance.manifest.write_text(json.dumps(manifest))
    assert call("store", "ingest", "--db", db, result.performance.root)[0] == 0
    (row,) = exported(call, db)
    assert (row["status"], row["valid"], row["scenario"]) == ("timeout", None, "Offline")
    assert "nothing moved" in row["error_message"]


@pytest.mark.slow
def test_an_audit_is_judged_again_from_its_legs(call: Any, result: ResultDir, db: Path, tmp_path: Path) -> None:
    record = {"schema_version": 1, "test": "TEST06", "passed": True, "official": True, "required": True, "reason": "r",
              "rule": "", "checks": [], "legs": [{"label": "performance"}]}  # fmt: skip
    folder = result.audit("TEST06")
    folder.mkdir(parents=True)
    (folder / "audit_TEST06.json").write_text(json.dumps(record))
    call("store", "ingest", "--db", db, result.root)
    assert exported(call, db)[0]["audits"] == '{"TEST06":"unreadable"}'
    shutil.copytree(result.performance.root, folder / "performance")
    call("store", "ingest", "--db", db, result.root, "--replace")
    assert exported(call, db)[0]["audits"] == '{"TEST06":"unreadable"}'
    shutil.rmtree(folder)
    conf = tmp_path / "audited.conf"
    conf.write_text(USER_CONF)
    real = ["audit", "--test", "TEST06", "--scenario", "Offline", "--engine", "dummy", "--user-conf", conf]
    code, _, stderr = warm.run([*real, "--output-log-dir", result.root], ROOT, 120)
    assert code == 0, stderr
    call("store", "ingest", "--db", db, result.root, "--replace")
    assert exported(call, db)[0]["audits"] == '{"TEST06":"PASS"}'


def test_query_export_and_summary(call: Any, legs: DummyLegs, db: Path, tmp_path: Path) -> None:
    call("store", "ingest", "--db", db, legs("Offline"), legs("SingleStream"))
    assert "2 runs" in call("store", "query", "--db", db)[1]
    assert "1 run\n" in call("store", "query", "--db", db, "--where", "scenario=Offline")[1]
    groups = json.loads(call("store", "query", "--db", db, "--group-by", "scenario,mechanism", "--format", "json")[1])
    assert {one["scenario"]: one["runs"] for one in groups} == {"Offline": 1, "SingleStream": 1}
    code, text = call("store", "query", "--db", db, "--group-by", "colour")
    assert code == 2
    assert "mechanism_variant" in text  # the message names what there is
    assert call("store", "query", "--db", db, "--where", "scenario")[0] == 2
    assert call("store", "query", "--db", tmp_path / "other.sqlite")[0] == 2
    rows = list(csv.DictReader(io.StringIO(call("store", "export", "--db", db)[1])))
    assert sorted(row["scenario"] for row in rows) == ["Offline", "SingleStream"]
    call("store", "export", "--db", db, "--output", tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().splitlines()[0].startswith("id,run_id,timestamp")
    assert "2 runs" in call("store", "summary", "--db", db)[1]


def test_compare(call: Any, legs: DummyLegs, db: Path) -> None:
    call("store", "ingest", "--db", db, legs("Offline"), legs("SingleStream"))
    first, second = (row["run_id"] for row in exported(call, db))
    code, text = call("store", "compare", "--db", db, first, first[:8])
    assert (code, text.splitlines()[0]) == (0, "same conditions")
    code, text = call("store", "compare", "--db", db, first, second, "--format", "json")
    assert code == 1
    assert "scenario" in {one["name"] for one in json.loads(text)["conditions"]}
    assert call("store", "compare", "--db", db, first, "nothing")[0] == 2


def test_scores_of_the_row_are_those_of_the_answers(
    call: Any, result: ResultDir, db: Path, with_target: Callable[[Mapping[str, Target]], None]
) -> None:
    target = reachable(result.accuracy, 0.995)
    with_target(target)
    call("store", "ingest", "--db", db, result.root)
    (row,) = exported(call, db)
    assert row["accuracy_passed"] == 1
    assert "rouge1 -0.50 %" in row["quality_delta_summary"]
    assert target["gen_num"].reference == row["gen_num"]


def test_the_run_id_stays_when_the_accuracy_leg_fails_or_comes_later(call: Any, result: ResultDir, db: Path) -> None:
    call("store", "ingest", "--db", db, result.performance.root)
    before = result.accuracy.manifest.read_text()
    for text in (before.replace('"status": "finished"', '"status": "failed"'), before):
        result.accuracy.manifest.write_text(text)
        assert call("store", "ingest", "--db", db, result.root)[0] == 2  # other values
        assert call("store", "ingest", "--db", db, result.root, "--replace")[1].startswith("replaced: ")
    assert [row["status"] for row in exported(call, db)] == ["success"]
