"""The gate's criteria on rows, and what the engine's record says of them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.mechanisms import row as row_file
from compliance.mechanisms.declaration import FIELD_NAMES, declare, read_declaration_file, validate
from compliance.mechanisms.engine_facts import facts_of_run, misdeclared
from compliance.mechanisms.quality_gate import GateOutcome, judge_rows
from compliance.mechanisms.row import read_rows
from compliance.mechanisms.technique_registry import (
    REGISTRY_DIR,
    VARIANTS_FILE,
    eligibility,
    load_registries,
    registries_or_error,
)
from runs.errors import InputError
from runs.record.layout import RunDir
from tests.conftest import ROOT
from tests.support.mechanism_rows import eagle3, fp8, int8, judged, manifest, row, write_engine_log

REGISTRIES = load_registries()


def gate(*rows: dict[str, Any], **options: Any) -> GateOutcome:
    return judge_rows([judged(one) for one in rows], REGISTRIES, **options)


def criteria(*rows: dict[str, Any], **options: Any) -> list[str]:
    return [failure.slug for one in gate(*rows, **options).matched for failure in one.failed]


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()) | st.binary()


@given(st.dictionaries(st.sampled_from([*FIELD_NAMES, "support_status", "run_directory", "speculative"]), anything))
def test_nothing_in_a_row_raises(fields: dict[str, Any]) -> None:
    judge_rows([judged(fields)], REGISTRIES).as_text()


def test_declaration_files_that_are_shipped_are_registered() -> None:
    for name, mechanism in (("baseline", "baseline"), ("fp8-kv", "kv_quantization")):
        fields = read_declaration_file(ROOT / "configs" / f"mechanism-{name}.yaml")
        assert fields["mechanism"] == mechanism
        assert validate(declare(fields).values, REGISTRIES)["issues"] == []
        assert criteria(fields) == []


@pytest.mark.parametrize("damage", ["missing", "not json", "of another schema", "an entry twice", "in other case"])
def test_a_broken_registry_closes_the_gate_for_lossy_rows_only(tmp_path: Path, damage: str) -> None:
    shutil.copytree(REGISTRY_DIR, tmp_path / "registry")
    path = tmp_path / "registry" / VARIANTS_FILE
    content = json.loads(path.read_text())
    path.unlink()
    if damage == "not json":
        path.write_text("{")
    elif damage == "of another schema":
        path.write_text(json.dumps({**content, "schema_version": "2.0.0"}))
    elif damage == "in other case":
        other = {**content["variants"][1], "mechanism_variant": content["variants"][1]["mechanism_variant"].upper()}
        path.write_text(json.dumps({**content, "variants": [*content["variants"], other]}))
    elif damage == "an entry twice":
        path.write_text(json.dumps({**content, "variants": [*content["variants"], content["variants"][0]]}))
    registries = registries_or_error(tmp_path / "registry")
    record = validate(fp8(), registries)
    assert [record[name] for name in list(record)[:3]] == [None, None, None]
    (issue,) = record["issues"]
    assert issue.startswith(f"registry_load_error: {'cannot read ' * (damage == 'missing')}{path}")
    lossy = judge_rows([judged(fp8())], registries, strict=True)
    assert (lossy.status, lossy.closed) == ("fail", True)
    plain = judge_rows([judged(row())], registries, strict=True)
    assert (plain.status, plain.closed) == ("pass", False)


@pytest.mark.parametrize(
    ("given_row", "failed"),
    [
        (row(), []),
        (row(mechanism_variant="none"), []),
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
        (
            fp8(support_status="supported", quality_eval_id="ruler_v1", quality_eval_status="pending"),
            ["quality_evaluated"],
        ),
        (fp8(support_status="supported"), ["quality_evaluated"] * 2),
        (
            fp8(support_status="supported", quality_eval_id="ruler_v1", quality_eval_status="completed"),
            ["completed_evaluation_passes"],
        ),
        (
            fp8(support_status="supported", quality_eval_id="mlperf_cnndm_rouge", quality_eval_status="completed"),
            ["completed_evaluation_passes"],
        ),
        (eagle3(), ["draft_model_declared"] * 2),
        (eagle3(draft_model_id="draft"), ["draft_model_declared"]),
        (eagle3(draft_model_id="draft", speculative_acceptance_rate=0), []),
        (eagle3(draft_model_id="draft", speculative_acceptance_rate=1.2), ["draft_model_declared"]),
        (eagle3(draft_model_id="draft", speculative_acceptance_rate=0.7, support_status="supported"), []),
    ],
)
def test_criteria(given_row: dict[str, Any], failed: list[str]) -> None:
    outcome = gate(given_row)
    assert [failure.slug for failure in outcome.matched[0].failed] == failed
    assert not outcome.closed  # nothing is refuted by evidence
    assert gate(given_row, strict=True).closed is bool(failed)


def test_the_gate_gives_the_same_verdict_without_a_word(wordless: Callable[[], None]) -> None:
    rows = [row(), row(kv_cache_dtype="fp8"), fp8(support_status="gold"), eagle3(), row("kv_magic")]

    def outcomes() -> list[object]:
        found: list[object] = []
        for one in rows:
            for strict in (False, True):
                outcome = gate(one, strict=strict, division="closed")
                failures = [(failure.rule, failure.severity) for failure in outcome.matched[0].findings]
                found.append((outcome.status, outcome.closed, failures))
        return found

    before = outcomes()
    assert len({str(one) for one in before}) > len(rows)
    wordless()
    assert outcomes() == before


def test_rows_without_a_declaration_are_not_judged_and_close_a_strict_gate() -> None:
    old = ({"run_id": "old", "throughput_tok_s": 1.0}, row(None))
    legacy = gate(*old)
    assert (legacy.status, legacy.not_matched, legacy.closed) == ("no_rows", 2, False)
    assert legacy.record()["overall"] == "partial"
    assert gate(*old, strict=True).closed
    assert gate(row(), *old, strict=True).closed
    assert gate(strict=True).closed
    assert not gate().closed


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
def test_a_baseline_whose_own_row_shows_something_lossy_closes_the_gate(shown: dict[str, Any]) -> None:
    outcome = gate(row(**shown))
    assert [failure.slug for failure in outcome.matched[0].failed] == ["mechanism_misdeclared"]
    assert outcome.closed


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", None, "float16"])
def test_plain_caches_are_a_baseline(dtype: str | None) -> None:
    assert criteria(row(kv_cache_dtype=dtype, speculative=0)) == []


@pytest.mark.parametrize(
    ("declared", "configuration", "options", "log", "contradicted"),
    [
        (row(), None, {}, "kv_cache_dtype=auto", 0),
        (row(), {"kv_cache_dtype": "fp8", "speculative": False}, {}, "kv_cache_dtype=fp8", 1),
        (row(), None, {}, "kv_cache_dtype=fp8", 2),  # the manifest denies what the log shows
        (row(), None, {"kv_cache_dtype": "fp8"}, "kv_cache_dtype=auto", 2),
        (row(), {"kv_cache_dtype": "auto", "speculative": True}, {}, "kv_cache_dtype=auto", 1),
        (row(), {"kv_cache_dtype": "auto"}, {"speculative_config": {"method": "eagle3"}}, "x=1", 1),
        (row(), None, {"hf_overrides": {"sliding_window": 64}}, "x=1", 1),
        (fp8(), {"kv_cache_dtype": "fp8", "speculative": False}, {"kv_cache_dtype": "fp8"}, "kv_cache_dtype=fp8", 0),
        (fp8(), None, {}, "kv_cache_dtype=auto", 1),
        (fp8(), {"kv_cache_dtype": "fp8_e5m2", "speculative": False}, {}, "x=1", 1),
        (fp8(), {"kv_cache_dtype": "fp8", "speculative": True}, {}, "x=1", 1),
        (
            eagle3(),
            {"kv_cache_dtype": "auto", "speculative": True},
            {"speculative_config": {"method": "mtp"}},
            "x=1",
            1,
        ),
        (
            eagle3(),
            {"kv_cache_dtype": "auto", "speculative": True},
            {"speculative_config": {"method": "eagle"}},
            "x",
            0,
        ),
        (
            eagle3(draft_model_id="org/draft-1"),
            {"kv_cache_dtype": "auto", "speculative": True},
            {"speculative_config": {"method": "eagle3", "model": "/models/draft-2"}},
            "x=1",
            1,
        ),
        (row("compressed_attention", mechanism_variant="triattention_class"), None, {}, "x=1", 0),
        (row(), None, {}, "quantization=fp8", 1),
        (row(), {"kv_cache_dtype": "auto", "quantization": None}, {}, "quantization=fp8", 2),
        (row(), None, {"quantization": "awq"}, "x=1", 2),  # and the weights are plain ones
        (int8(), None, {}, "quantization=None", 1),
    ],
)
def test_the_engine_record_decides(
    tmp_path: Path,
    declared: dict[str, Any],
    configuration: dict[str, Any] | None,
    options: dict[str, Any],
    log: str,
    contradicted: int,
) -> None:
    write_engine_log(tmp_path, log)
    facts = facts_of_run(RunDir(tmp_path), manifest(configuration=configuration, options=options))
    assert len(misdeclared(declared, facts)) == contradicted


@pytest.mark.parametrize(
    ("declared", "precision", "log", "contradicted"),
    [
        (row(), "int8_w8a8", "quantization=compressed-tensors", 1),
        (int8(), "int8_w8a8", "quantization=compressed-tensors", 0),
        (int8("fp8_w8a8"), "int8_w8a8", "quantization=compressed-tensors", 1),
        (int8("fp8_w8a8"), "bfloat16", "quantization=fp8", 0),
        (int8(), "int8_w8a8", "quantization=compressed-tensors, kv_cache_dtype=fp8", 1),
        (int8("int8_w8a8_kv_fp8"), "int8_w8a8", "quantization=compressed-tensors, kv_cache_dtype=fp8", 0),
        (int8(), "bfloat16", "quantization=None", 1),
        (int8(), "bfloat16", "quantization=compressed-tensors", 1),  # these weights are none that are stored so
    ],
)
def test_the_headers_of_the_weights_decide(
    tmp_path: Path, declared: dict[str, Any], precision: str, log: str, contradicted: int
) -> None:
    write_engine_log(tmp_path, log)
    configuration = {"kv_cache_dtype": "fp8" if "fp8" in log.partition("kv_cache")[2] else "auto", "speculative": False}
    facts = facts_of_run(RunDir(tmp_path), manifest(configuration=configuration, precision=precision))
    assert facts.gaps == ()
    assert len(misdeclared(declared, facts)) == contradicted


def test_a_record_without_the_weights_precision_has_a_gap(tmp_path: Path) -> None:
    write_engine_log(tmp_path)
    record = manifest()
    record.observed.model = record.model.model_copy(update={"weights": None})
    assert "model.weights is missing" in facts_of_run(RunDir(tmp_path), record).gaps[0]


def test_a_record_with_gaps_is_no_contradiction_but_is_told(tmp_path: Path) -> None:
    facts = facts_of_run(RunDir(tmp_path), manifest(configuration={}))
    assert len(facts.gaps) == 2  # no engine.log, no kv_cache_dtype
    assert misdeclared(fp8(), facts) == []
    assert facts_of_run(RunDir(tmp_path), None).gaps


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
def test_eligibility(mechanism: str, accurate: bool | None, in_force: set[str], closed: bool) -> None:
    found = eligibility(mechanism, accurate, in_force)
    assert found["closed"]["eligible"] is closed
    assert found["open"]["eligible"] is True


def test_without_a_record_it_is_not_known_what_may_be_submitted() -> None:
    assert eligibility("baseline", None, set(), recorded=False)["closed"]["eligible"] is None
    assert eligibility("speculative_decoding", True, set(), recorded=False)["closed"]["eligible"] is False
    bare = judged(row(kv_cache_dtype=None, speculative=None, attention_backend=None))
    outcome = judge_rows([bare], REGISTRIES, division="closed")
    assert "  closed division: not known, nothing tells what the engine ran with" in outcome.as_text()
    assert "| not known | eligible |" in outcome.as_markdown()
    assert (outcome.status, outcome.closed) == ("fail", False)  # lacking evidence is advice
    assert judge_rows([bare], REGISTRIES, division="closed", strict=True).closed


def test_a_row_without_its_run_is_a_word_that_opens_no_closed_division() -> None:
    told = row(kv_cache_dtype="auto", speculative=0, run_id="1", run_directory="/gone", throughput_tok_s=1e9)
    assert not gate(told, strict=True).closed
    assert [one.slug for one in gate(told, division="closed").matched[0].findings] == ["eligible_in_division"]
    assert gate(told, division="closed", strict=True).closed


@pytest.mark.parametrize(("limit", "said"), [("MOST_ROWS", "3 rows"), ("MOST_PARTS", "4 objects and lists")])
def test_more_rows_than_fit_into_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, said: str
) -> None:
    """A million small ones in 50 MB took 4 GB."""
    file = tmp_path / "rows.json"
    file.write_text("[{}, {}, {}]")
    monkeypatch.setattr(row_file, limit, 2)
    with pytest.raises(InputError, match=said):
        read_rows(file, REGISTRIES)


def test_coverage() -> None:
    outcome = gate(row(), expected=["baseline/none", "kv_quantization/fp8_e4m3"], strict=True)
    assert (outcome.missing_coverage, outcome.unexpected_coverage) == (["kv_quantization/fp8_e4m3"], [])
    assert outcome.closed
    more = gate(row(), fp8(), expected=["baseline/none"], strict=True)
    assert (more.status, more.unexpected_coverage) == ("pass", ["kv_quantization/fp8_e4m3"])


def test_report_quotes_the_failing_criterion() -> None:
    promoted = fp8(support_status="supported", quality_eval_id="ruler_v1", quality_eval_status="pending")
    outcome = gate(promoted, row())
    sentence = "gate/quality_evaluated: supported kv_quantization needs a completed evaluation, it is pending"
    report = outcome.record()
    assert (report["overall"], report["advisory"], report["closed"]) == ("fail", True, False)
    (only,) = report["gates"]
    assert (only["id"], only["status"], only["matched_rows"]) == ("mechanism_compression_quality", "fail", 2)
    assert [failing["failed_criteria"] for failing in only["failing_rows"]] == [[sentence]]
    assert f"- {sentence}" in outcome.as_markdown()
    assert f"  warning {sentence}" in outcome.as_text()
    assert gate(row(), strict=True).record()["overall"] == "pass"
