"""The criteria of the gate on rows, and the recorded engine configuration."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.judge.record import record
from compliance.techniques import row_file
from compliance.techniques.declaration import FIELD_NAMES
from compliance.techniques.declaration_rules import validate
from compliance.techniques.engine_facts import facts_of_run, misdeclared
from compliance.techniques.quality_gate import (
    GateVerdict,
    closing_findings,
    gate_markdown,
    gate_status,
    gate_text,
    is_closed,
    judge_rows,
)
from compliance.techniques.row import row_of_plan
from compliance.techniques.row_file import read_rows
from compliance.techniques.technique_registry import (
    REGISTRY_DIR,
    VARIANTS_FILE,
    eligibility,
    load_registries,
    registries_or_error,
)
from runs.errors import InputError
from runs.record.finished_run import FinishedRun
from runs.record.layout import RunDir
from runs.record.manifest import Manifest
from tests.support.runs.records import run_plan
from tests.support.runs.technique_rows import eagle3, fp8, int8, judged_row, manifest, row, write_engine_log

REGISTRIES = load_registries()


def judge_at_gate(*rows: dict[str, Any], **options: Any) -> GateVerdict:
    return judge_rows([judged_row(row) for row in rows], REGISTRIES, **options)


def criteria(*rows: dict[str, Any], **options: Any) -> list[str]:
    return [failure.slug for part in judge_at_gate(*rows, **options).parts for failure in part.failed]


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()) | st.binary()


@given(st.dictionaries(st.sampled_from([*FIELD_NAMES, "support_status", "run_directory", "speculative"]), anything))
def test_arbitrary_row_values_raise_no_exception(fields: dict[str, Any]) -> None:
    gate_text(judge_rows([judged_row(fields)], REGISTRIES))


def supported_row(quality_id: str | None, status: str | None) -> dict[str, Any]:
    return fp8(support_status="supported", quality_eval_id=quality_id, quality_eval_status=status)


def twice(content: dict[str, Any], **changed: str) -> dict[str, Any]:
    return {**content, "variants": [*content["variants"], {**content["variants"][1], **changed}]}


@pytest.mark.parametrize(
    "damaged",
    [
        lambda content: None,
        lambda content: "no object",
        lambda content: {**content, "schema_version": "2.0.0"},
        twice,
        lambda content: twice(content, mechanism_variant="FP8_E4M3"),
    ],
    ids=["missing", "not an object", "of another schema", "an entry twice", "in other case"],
)
def test_a_damaged_registry_closes_the_gate_for_lossy_rows_only(tmp_path: Path, damaged: Callable[..., Any]) -> None:
    path = shutil.copytree(REGISTRY_DIR, tmp_path / "registry") / VARIANTS_FILE
    content = damaged(json.loads(path.read_text()))
    path.unlink() if content is None else path.write_text(json.dumps(content))
    registries = registries_or_error(tmp_path / "registry")
    *flags, issues = validate(fp8(), registries).values()
    assert flags == [None, None, None]
    assert issues[0].startswith(f"registry_load_error: {'cannot read ' * (content is None)}{path}")
    lossy, plain = (judge_rows([judged_row(value)], registries, strict=True) for value in (fp8(), row()))
    assert (gate_status(lossy), is_closed(lossy)) == ("fail", True)
    assert (gate_status(plain), is_closed(plain)) == ("pass", False)
    assert [registries.compresses(mechanism) for mechanism in ("baseline", "magic")] == [False, True]


_DECLARED = {"pair_registered", "status_known", "draft_model_declared"}  # rules on the declaration alone


@pytest.mark.parametrize(
    ("given_row", "failed"),
    [
        (row(), []),
        (row(mechanism_variant="none"), []),
        (row(kv_cache_dtype="bfloat16", speculative=0), []),
        (row(mechanism_variant="fp8_e4m3"), ["pair_registered"]),
        (row("kv_quantization", mechanism_variant="fp4"), ["pair_registered"]),
        (row("magic"), ["pair_registered"]),
        (row(compression_ratio=4.0), ["pair_registered"]),
        (row(compression_method="int4"), ["pair_registered"]),
        (row(draft_model_id="draft", speculative_acceptance_rate=0.7), ["pair_registered"] * 2),
        (row(status="success", certification="loadgen_run_verified"), []),
        (row(status="success", certification=None), ["run_verified"]),
        (row(status=None), ["run_verified"]),
        (row(run_directory=["/runs"]), ["run_verified"]),
        (row(throughput_tok_s="fast", tp=1.5, hostname={"name": "h"}), ["run_verified"] * 3),
        (fp8(quality_eval_status="pending"), []),
        (fp8(quality_eval_status="passed"), ["status_known"]),
        (fp8(support_status="gold"), ["status_known"]),
        (fp8(support_status="reviewed_preview", quality_eval_id="ruler_v1", quality_eval_status="pending"), []),
        (fp8(support_status="reviewed_preview", quality_eval_id="mine"), ["quality_evaluated"]),
        (supported_row("ruler_v1", "pending"), ["quality_evaluated"]),
        (supported_row(None, None), ["quality_evaluated"] * 2),
        (row("magic", support_status="supported"), ["pair_registered", *["quality_evaluated"] * 2]),
        (supported_row("ruler_v1", "completed"), ["completed_evaluation_passes"]),
        (supported_row("mlperf_cnndm_rouge", "completed"), ["completed_evaluation_passes"]),
        (eagle3(), ["draft_model_declared"] * 2),
        (eagle3(draft_model_id="draft"), ["draft_model_declared"]),
        (eagle3(draft_model_id="draft", speculative_acceptance_rate=0), []),
        (eagle3(draft_model_id="draft", speculative_acceptance_rate=1.2), ["draft_model_declared"]),
        (eagle3(draft_model_id="draft", speculative_acceptance_rate=0.7, support_status="supported"), []),
    ],
)
def test_each_row_fails_exactly_its_criteria(given_row: dict[str, Any], failed: list[str]) -> None:
    strict, outcome = judge_at_gate(given_row, strict=True), judge_at_gate(given_row)
    assert [failure.slug for failure in closing_findings(strict.parts[0], True)] == failed
    assert is_closed(strict) is bool(failed)
    claimed = given_row.get("support_status") == "supported"
    unsupported = claimed and given_row["mechanism"] in ("kv_quantization", "magic")
    assert is_closed(outcome) is (unsupported or not _DECLARED.isdisjoint(failed))  # only warnings remain
    for judged_rows in (strict, outcome):
        assert ("FAIL" in gate_text(judged_rows)) is is_closed(judged_rows)
        assert gate_status(judged_rows) == ("fail" if is_closed(judged_rows) else "pass")


def test_rows_without_declaration_close_only_a_strict_gate() -> None:
    old = ({"run_id": "old", "throughput_tok_s": 1.0}, row(None))
    legacy = judge_at_gate(*old)
    assert (gate_status(legacy), legacy.details.not_matched, is_closed(legacy)) == ("no_rows", 2, False)
    assert record(legacy)["overall"] == "partial"
    assert is_closed(judge_at_gate(*old, strict=True))
    assert is_closed(judge_at_gate(row(), *old, strict=True))
    assert is_closed(judge_at_gate(strict=True))
    assert not is_closed(judge_at_gate())


@pytest.mark.parametrize(
    "shown",
    [
        {"quantization": "awq"},
        {"kv_cache_dtype": "fp8"},
        {"kv_cache_dtype": "FP8_E5M2"},
        {"kv_cache_dtype": "int4_per_token_head"},
        {"speculative": 1},
        {"speculative_config": '{"method": "ngram"}'},
        {"attention_backend": "FLASHMLA_SPARSE"},
        {"engine_options": '{"kv_cache_dtype": "fp8"}'},
        {"engine_options": '{"speculative_config": {"method": "eagle"}}'},
    ],
)
def test_a_baseline_row_with_a_lossy_option_closes_the_gate(shown: dict[str, Any]) -> None:
    outcome = judge_at_gate(row(**shown))
    assert [failure.slug for failure in closing_findings(outcome.parts[0], False)] == ["mechanism_misdeclared"]
    assert is_closed(outcome)


FP8_CACHE = {"kv_cache_dtype": "fp8", "speculative": False}
DRAFTING = {"kv_cache_dtype": "auto", "speculative": True}
STORED = "quantization=compressed-tensors"


def drafted_by(method: str, **more: str) -> dict[str, Any]:
    return {"speculative_config": {"method": method, **more}}


def run_with(manifest: Manifest, folder: Path) -> FinishedRun:
    """Return a run that has a manifest and the engine log in a folder."""
    run = FinishedRun(RunDir(folder))
    vars(run)["manifest"] = manifest
    return run


@pytest.mark.parametrize(
    ("declared", "recorded", "log", "contradicted"),
    [
        (row(), {}, "kv_cache_dtype=auto", 0),
        (row(), {"configuration": FP8_CACHE}, "kv_cache_dtype=fp8", 1),
        (row(), {}, "kv_cache_dtype=fp8", 2),  # the manifest contradicts the log
        (row(), {"options": {"kv_cache_dtype": "fp8"}}, "kv_cache_dtype=auto", 2),
        (row(), {"configuration": DRAFTING}, "kv_cache_dtype=auto", 1),
        (row(), {"configuration": {"kv_cache_dtype": "auto"}, "options": drafted_by("eagle3")}, "x=1", 1),
        (row(), {"options": {"hf_overrides": {"sliding_window": 64}}}, "x=1", 1),
        (fp8(), {"configuration": FP8_CACHE, "options": {"kv_cache_dtype": "fp8"}}, "kv_cache_dtype=fp8", 0),
        (fp8(), {}, "kv_cache_dtype=auto", 1),
        (fp8(), {"configuration": {**FP8_CACHE, "kv_cache_dtype": "fp8_e5m2"}}, "x=1", 1),
        (fp8(), {"configuration": {**FP8_CACHE, "speculative": True}}, "x=1", 1),
        (eagle3(), {"configuration": DRAFTING, "options": drafted_by("mtp")}, "x=1", 1),
        (eagle3(), {"configuration": DRAFTING, "options": drafted_by("eagle")}, "x", 0),
        (eagle3(draft_model_id="org/draft-1"),
         {"configuration": DRAFTING, "options": drafted_by("eagle3", model="/models/draft-2")}, "x=1", 1),
        (row("compressed_attention", mechanism_variant="triattention_class"), {}, "x=1", 0),
        (row(), {"configuration": {"kv_cache_dtype": "auto", "told_by_the_server":
                                   {"cache_configuration": {"cache_dtype": "fp8"}}}}, "x=1", 2),
        (row(), {}, "quantization=fp8", 1),
        (row(), {"configuration": {"kv_cache_dtype": "auto", "quantization": None}}, "quantization=fp8", 2),
        (row(), {"options": {"quantization": "awq"}}, "x=1", 2),  # the weights are plain
        (row(), {"precision": "int8_w8a8"}, STORED, 1),
        (int8(), {"precision": "int8_w8a8"}, STORED, 0),
        (int8("fp8_w8a8"), {"precision": "int8_w8a8"}, STORED, 1),
        (int8("fp8_w8a8"), {}, "quantization=fp8", 0),
        (int8(), {"precision": "int8_w8a8", "configuration": FP8_CACHE}, f"{STORED}, kv_cache_dtype=fp8", 1),
        (int8("int8_w8a8_kv_fp8"), {"precision": "int8_w8a8", "configuration": FP8_CACHE},
         f"{STORED}, kv_cache_dtype=fp8", 0),
        (int8(), {}, "quantization=None", 1),
        (int8(), {}, STORED, 1),  # these weights are not stored in this format
    ],
)  # fmt: skip
def test_the_engine_record_contradicts_a_wrong_declaration(
    tmp_path: Path, declared: dict[str, Any], recorded: dict[str, Any], log: str, contradicted: int
) -> None:
    write_engine_log(tmp_path, log)
    facts = facts_of_run(run_with(manifest(**recorded), tmp_path))
    assert facts.gaps == ()
    assert len(list(misdeclared(declared, facts))) == contradicted


@pytest.mark.parametrize(
    ("declared", "options", "closed"),
    [
        ({}, {}, []),
        ({}, {"kv_cache_dtype": "fp8"}, ["mechanism_misdeclared"]),
        (fp8(), {"kv_cache_dtype": "fp8"}, []),
        (fp8(), {}, []),  # the weights may decide the type
        (fp8(), {"kv_cache_dtype": "fp8", **drafted_by("ngram")}, ["mechanism_misdeclared", "eligible_in_division"]),
        (
            fp8(support_status="supported", quality_eval_id="mlperf_cnndm_rouge", quality_eval_status="completed"),
            {},
            [],
        ),
    ],
)
def test_a_planned_row_is_judged_as_if_its_accuracy_run_passes(
    declared: dict[str, Any], options: dict[str, Any], closed: list[str]
) -> None:
    plan = run_plan(engine="vllm", engine_options=options)
    planned = row_of_plan(declared, plan, None, "mlperf_cnndm_rouge", REGISTRIES)
    (gate_row,) = judge_rows([planned], REGISTRIES, division="closed").parts
    assert [finding.slug for finding in gate_row.of("error")] == closed


def test_missing_engine_facts_are_not_contradictions(tmp_path: Path) -> None:
    facts = facts_of_run(run_with(manifest(configuration={}), tmp_path))
    assert len(facts.gaps) == 2  # engine.log and kv_cache_dtype are missing
    assert not any(misdeclared(fp8(), facts))
    assert facts_of_run(FinishedRun(RunDir(tmp_path))).gaps
    write_engine_log(tmp_path)
    record = manifest()
    record.observed.model = record.model.model_copy(update={"weights": None})
    assert "model.weights is missing" in facts_of_run(run_with(record, tmp_path)).gaps[0]


@pytest.mark.parametrize(
    ("mechanism", "accurate", "in_force", "closed"),
    [
        ("baseline", None, set(), True),
        ("baseline", None, {"kv_quantization"}, False),
        ("kv_quantization", True, set(), True),
        ("kv_quantization", False, set(), False),
        ("kv_quantization", None, set(), False),
        ("weight_quantization", True, {"weight_quantization"}, True),
        ("weight_quantization", False, set(), False),
        ("baseline", True, {"weight_quantization"}, True),
        ("kv_compression", True, set(), False),
        ("compressed_attention", True, set(), False),
        ("speculative_decoding", True, set(), False),
        ("magic", True, set(), False),
    ],
)
def test_divisions_follow_from_technique_and_accuracy(
    mechanism: str, accurate: bool | None, in_force: set[str], closed: bool
) -> None:
    divisions = eligibility(mechanism, accurate, in_force)
    assert divisions["closed"]["eligible"] is closed
    assert ("does not meet them" in divisions["closed"]["reason"]) is (accurate is False)
    assert divisions["open"]["eligible"] is True


def test_missing_engine_records_make_eligibility_unknown() -> None:
    assert eligibility("baseline", None, set(), recorded=False)["closed"]["eligible"] is None
    assert eligibility("speculative_decoding", True, set(), recorded=False)["closed"]["eligible"] is False
    bare = judged_row(row(kv_cache_dtype=None, speculative=None, attention_backend=None))
    outcome = judge_rows([bare], REGISTRIES, division="closed")
    assert "  closed division: unknown: the recorded engine configuration is incomplete" in gate_text(outcome)
    assert "| unknown | technique allowed |" in gate_markdown(outcome)
    assert (gate_status(outcome), is_closed(outcome)) == ("pass", False)  # missing evidence is only advice
    assert is_closed(judge_rows([bare], REGISTRIES, division="closed", strict=True))


def test_a_row_without_its_run_is_not_eligible_for_closed() -> None:
    alone = row(kv_cache_dtype="auto", speculative=0, run_id="1", run_directory="/gone", throughput_tok_s=1e9)
    assert not is_closed(judge_at_gate(alone, strict=True))
    assert [finding.slug for finding in judge_at_gate(alone, division="closed").parts[0].findings] == [
        "eligible_in_division"
    ]
    assert is_closed(judge_at_gate(alone, division="closed", strict=True))


def test_row_files_above_the_size_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million small rows in 50 MB needed 4 GB of memory."""
    file = tmp_path / "rows.json"
    file.write_text("[{}, {}, {}]")
    monkeypatch.setattr(row_file, "MAX_PARTS", 2)
    with pytest.raises(InputError, match="4 objects and lists"):
        read_rows(file, REGISTRIES)


def test_missing_and_unexpected_techniques_are_reported() -> None:
    outcome = judge_at_gate(row(), expected=["baseline/none", "kv_quantization/fp8_e4m3"], strict=True)
    (report,) = record(outcome)["gates"]
    assert (report["missing_coverage"], report["unexpected_coverage"]) == (["kv_quantization/fp8_e4m3"], [])
    assert is_closed(outcome)
    more = judge_at_gate(row(), fp8(), expected=["baseline/none"], strict=True)
    (report,) = record(more)["gates"]
    assert (gate_status(more), report["unexpected_coverage"]) == ("pass", ["kv_quantization/fp8_e4m3"])


def test_the_report_states_the_failed_criterion() -> None:
    outcome = judge_at_gate(supported_row("ruler_v1", "pending"), row())
    sentence = "gate/quality_evaluated: quality_eval_status of supported kv_quantization: pending, required: completed"
    report = record(outcome)
    assert (report["overall"], report["advisory"], report["closed"]) == ("fail", True, True)
    (only,) = report["gates"]
    assert (only["id"], only["status"], only["matched_rows"]) == ("mechanism_compression_quality", "fail", 2)
    assert [failing["failed_criteria"] for failing in only["failing_rows"]] == [[sentence]]
    assert f"- {sentence}" in gate_markdown(outcome)
    assert f"  FAIL {sentence}" in gate_text(outcome)
    assert record(judge_at_gate(row(), strict=True))["overall"] == "pass"
