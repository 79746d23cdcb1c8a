"""Declarations of runs and rows: their fields and sources, the registries, and the block of a run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from compliance.signoff.judge import sign_off
from compliance.techniques.declaration import (
    FIELD_NAMES,
    Declaration,
    DeclaredFields,
    TechniqueBlock,
    declaration_of,
    from_environment,
    read_declaration_file,
)
from compliance.techniques.declaration_rules import check_declaration, validate
from compliance.techniques.row import rows_of_runs
from compliance.techniques.technique_registry import QUALITY_FILE, REGISTRY_DIR, load_registries, registries_or_error
from runs.attestation.attestation import read_attestation
from runs.errors import ExitCode, InputError
from runs.record.layout import RunDir
from scenarios.launch.run_config import load_yaml, make_config
from tests.conftest import ROOT, Finished
from tests.support.runs.run_commands import arguments
from tests.support.runs.signoff_fixtures import FrozenRuns, label_of
from tests.support.runs.technique_rows import eagle3, fp8, row

REGISTRIES = load_registries()
FP8 = {"mechanism": "kv_quantization", "mechanism_variant": "fp8_e4m3"}

VARIANTS = [
    ("baseline", "none", None, None),
    ("kv_quantization", "fp8_e4m3", "fp8_e4m3", "kv_cache"),
    ("kv_quantization", "turboquant_class", "turboquant_class", "kv_cache"),
    ("kv_compression", "kvtc_class", "kvtc_class", "kv_cache"),
    ("compressed_attention", "triattention_class", "triattention_class", "attention"),
    ("speculative_decoding", "mtp", None, None),
    ("speculative_decoding", "eagle3", None, None),
    ("speculative_decoding", "medusa", None, None),
    ("speculative_decoding", "dflash", None, None),
]


def test_registries_contain_exactly_the_agreed_variants() -> None:
    variants = [
        (entry.mechanism, entry.mechanism_variant, entry.compression_method, entry.compression_scope)
        for entry in REGISTRIES.variants.values()
    ]
    assert variants[: len(VARIANTS)] == VARIANTS
    assert {mechanism for mechanism, *_ in variants[len(VARIANTS) :]} == {"weight_quantization"}
    compression = [name for name in {mechanism for mechanism, *_ in variants} if REGISTRIES.compresses(name)]
    added = {"weight_quantization"}
    assert set(compression) - added == {"kv_quantization", "kv_compression", "compressed_attention"}
    assert REGISTRIES.speculative == ("speculative_decoding",)
    core = json.loads((REGISTRY_DIR / QUALITY_FILE).read_text())["eval_harnesses"]
    assert [entry["quality_eval_id"] for entry in core] == ["ruler_v1", "longbench_v2", "humaneval", "math_500"]
    assert tuple(REGISTRIES.quality_evals)[4:] == ("mlperf_cnndm_rouge", "mlperf_orca_rouge")


def test_each_declared_field_can_be_set_by_the_environment() -> None:
    numbers = [name for name in FIELD_NAMES if not str(DeclaredFields.model_fields[name].annotation).startswith("str")]
    assert (len(FIELD_NAMES), len(numbers)) == (14, 5)
    environment = {name.upper(): "1" for name in FIELD_NAMES}
    declared = declaration_of(from_environment({**environment, "SUPPORT_STATUS": "supported", "MECHANISM": "x"}))
    assert declared.values == {name: 1 if name in numbers else "1" for name in FIELD_NAMES} | {"mechanism": "x"}
    assert (declared.issues, declared.support_status) == ((), "reviewed_preview")


def test_earlier_sources_take_precedence_and_the_default_is_a_baseline() -> None:
    declared = declaration_of(
        {"mechanism": "a", "mechanism_variant": None},
        {"mechanism": "b", "mechanism_variant": "b"},
        {"mechanism": "c", "mechanism_variant": "c", "mechanism_notes": "c"},
    )
    assert [declared.values[name] for name in ("mechanism", "mechanism_variant", "mechanism_notes")] == ["a", "b", "c"]
    nothing = declaration_of({}, {"mechanism": "  "})
    assert nothing.values == dict.fromkeys(FIELD_NAMES)
    assert (nothing.mechanism, nothing.support_status) == ("baseline", None)


@pytest.mark.parametrize(
    ("name", "value", "taken", "reported"),
    [
        ("compression_ratio", "2.5", 2.5, False),
        ("compression_ratio", "two", None, True),
        ("compression_ratio", "nan", None, True),
        ("compression_ratio", True, None, True),
        ("compression_overhead_ms", "inf", None, True),
        ("decompression_overhead_ms", "-1", None, True),
        ("speculative_acceptance_rate", "1.5", None, True),
        ("speculative_acceptance_rate", "1", 1.0, False),
        ("speculative_wasted_tokens", "1e3", 1000, False),
        ("speculative_wasted_tokens", "12.7", 12, True),
        ("speculative_wasted_tokens", "", None, False),
        ("speculative_wasted_tokens", "10" * 400, None, True),
        ("speculative_wasted_tokens", "1e30", None, True),
        ("mechanism_notes", 7, "7", True),
        ("mechanism", "\udcff", "\\udcff", True),
        ("support_status", "gold", None, True),
    ],
)
def test_declared_values_are_converted_to_their_types(name: str, value: Any, taken: Any, reported: bool) -> None:
    declared = declaration_of({name: value})
    assert declared.fields.get(name) == taken
    assert [issue.split()[0] for issue in declared.issues] == ([name] if reported else [])


@pytest.mark.parametrize("text", ["mechanism: [", "just text", "mechanisms: baseline", "support_status: gold"])
def test_an_invalid_declaration_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "declaration.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=str(path)):
        read_declaration_file(path)


@pytest.mark.parametrize(
    ("given_row", "flags", "issues"),
    [
        (row(), (True, None, None), 0),
        (fp8(quality_eval_id="ruler_v1", quality_eval_status="pending"), (True, True, True), 0),
        (row("kv_quantization"), (False, None, None), 1),
        (fp8(quality_eval_id="mine", quality_eval_status="done"), (True, False, False), 2),
        (row(quality_eval_id="mine"), (True, False, None), 1),
        (eagle3(draft_model_id="draft"), (True, None, None), 1),
        (fp8(compression_scope="weights"), (True, None, None), 1),
    ],
)
def test_a_declaration_record_states_validity_and_issues(
    given_row: dict[str, Any], flags: tuple[bool | None, ...], issues: int
) -> None:
    record = validate(given_row, REGISTRIES)
    assert tuple(record.values())[:3] == flags
    assert len(record["issues"]) == issues


def test_shipped_declaration_files_are_registered() -> None:
    for name, mechanism in (("baseline", "baseline"), ("fp8-kv", "kv_quantization")):
        fields = read_declaration_file(ROOT / "configs" / f"mechanism-{name}.yaml")
        assert fields["mechanism"] == mechanism
        assert list(check_declaration(fields, REGISTRIES)) == []


# The block of a run ---------------------------------------------------------------------------------------------------


def block(content: object) -> dict[str, Any]:
    return TechniqueBlock.model_validate(content).root


def declaration_with(**fields: Any) -> dict[str, Any]:
    return {"mechanism": "baseline", "mechanism_variant": "none", **fields}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("baseline", declaration_with()),
        ("kv_quantization/fp8_e4m3", FP8),
        (" kv_quantization / fp8_e4m3 ", FP8),
        ({"mechanism": "kv_quantization/fp8_e4m3"}, FP8),
        ({}, declaration_with()),
        ({"quality-eval-id": "mlperf_cnndm_rouge"}, declaration_with(quality_eval_id="mlperf_cnndm_rouge")),
        ({**FP8, "compression_ratio": "2", "support_status": "supported"},
         {**FP8, "compression_ratio": 2.0, "support_status": "supported"}),
        ({**FP8, "mechanism_notes": ""}, FP8),
    ],
)  # fmt: skip
def test_missing_fields_of_a_declaration_are_those_of_a_baseline(content: object, expected: dict[str, Any]) -> None:
    assert block(content) == expected
    assert block(expected) == expected


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "must be MECHANISM/VARIANT, or a file"),
        ("a/b/c", "must be MECHANISM/VARIANT, or a file"),
        ("kv_quantization/", "must be MECHANISM/VARIANT, or a file"),
        (["baseline"], "must be MECHANISM/VARIANT"),
        (7, "must be MECHANISM/VARIANT"),
        ({"mechanism": "baseline", "colour": "red"}, "unknown field 'colour'"),
        ({"compression_ratio": "much"}, "compression_ratio 'much': "),
        ({"speculative_acceptance_rate": 1.5}, "speculative_acceptance_rate 1.5: Input should be less"),
        ({"speculative_wasted_tokens": 1.5}, "speculative_wasted_tokens 1.5: "),
        ({"mechanism": 4}, "mechanism 4: "),
        ({"support_status": "certified"}, "support_status 'certified': Input should be 'supported'"),
    ],
)
def test_an_invalid_declaration_is_refused_before_a_run(content: object, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        block(content)
    with pytest.raises(InputError, match=why) as refused:
        make_config({"scenario": "Offline", "mechanism": content})
    assert refused.value.message.startswith("--mechanism")


def test_a_declaration_file_named_in_yaml_is_read(tmp_path: Path) -> None:
    shipped = block(str(ROOT / "configs" / "mechanism-fp8-kv.yaml"))
    assert {name: shipped[name] for name in FP8} == FP8
    assert shipped["support_status"] == "reviewed_preview"
    with pytest.raises(InputError, match=r"--mechanism nothing\.yaml: No such file"):
        make_config({"scenario": "Offline", "mechanism": "nothing.yaml"})
    path = tmp_path / "run.yaml"
    path.write_text("scenario: Offline\nmechanism: {mechanism: kv_quantization, mechanism-variant: fp8_e4m3}\n")
    config = make_config(load_yaml(path))
    assert config.mechanism is not None
    assert config.mechanism.root == FP8
    again = make_config(config.model_dump(mode="json", exclude_unset=True))
    assert again == config


@pytest.mark.parametrize("garbage", [{"mechanism": 4}, {"support_status": 4}, {"colour": "red"}, {}])
def test_an_edited_declaration_record_is_read(garbage: dict[str, Any]) -> None:
    declaration = declaration_of().over(garbage)
    assert declaration.values["mechanism"] in ("baseline", "4")
    assert declaration.support_status in ("supported", "reviewed_preview")


# Runs ----------------------------------------------------------------------------------------------------------------


def test_a_run_records_its_declaration_for_the_gate(run_main: Callable[..., Finished], tmp_path: Path) -> None:
    run, declared, results = tmp_path / "run", tmp_path / "eagle3.yaml", tmp_path / "results.json"
    eagle3 = {"mechanism": "speculative_decoding", "mechanism_variant": "eagle3", "quality_results": str(results)}
    declared.write_text(yaml.safe_dump({**eagle3, "quality_results": results.name}))
    missing = run_main(*arguments("Offline", run, "--mechanism", declared))
    assert (missing.code, f"cannot read {results}" in missing.stderr) == (ExitCode.BAD_INPUT, True)
    assert not run.exists()
    results.write_text("{}")
    done = run_main(*arguments("Offline", run, "--mechanism", declared))
    assert done.code == ExitCode.OK, done.stderr
    assert "quality_results.json" in read_attestation(RunDir(run)).files
    manifest = json.loads((run / "manifest.json").read_bytes())
    assert manifest["asked"]["mechanism"] == eagle3
    judged = run_main("gate", run)
    assert judged.code == ExitCode.NEGATIVE
    message = "mechanism_misdeclared: effective technique: none, required: speculative_decoding/eagle3, as declared"
    assert message in judged.stdout
    assert run_main("gate", run, "--mechanism", "baseline", "--mechanism-variant", "none").code == ExitCode.OK
    refused = run_main(*arguments("Offline", tmp_path / "refused", "--mechanism", "a/b/c"))
    assert refused.code == ExitCode.BAD_INPUT
    assert "--mechanism a/b/c: must be MECHANISM/VARIANT, or a file" in refused.stderr
    assert not (tmp_path / "refused").exists()


def row_of(run: Path, declaration: Declaration) -> dict[str, Any]:
    (matched,) = rows_of_runs([run], declaration, registries_or_error())
    return matched.row


def test_command_line_declarations_take_precedence_over_those_of_the_run(frozen: FrozenRuns, tmp_path: Path) -> None:
    fields = {**FP8, "quality_eval_status": "pending", "support_status": "supported"}
    run = frozen.copy(tmp_path / "run", "off-1", ["set_manifest", "asked.mechanism", fields])
    silent = row_of(run, declaration_of())
    assert {name: silent[name] for name in fields} == fields
    more = row_of(run, declaration_of({"quality_eval_status": "completed", "support_status": "reviewed_preview"}))
    assert {name: more[name] for name in fields} == {
        **FP8, "quality_eval_status": "completed", "support_status": "reviewed_preview"
    }  # fmt: skip
    plain = row_of(run, declaration_of({"mechanism": "baseline"}))
    assert (plain["mechanism"], plain["mechanism_variant"], plain["quality_eval_status"]) == ("baseline", None, None)
    assert plain["support_status"] == "supported"
    (issue,) = plain["mechanism_eval_validation"]["issues"]
    assert issue == "the declaration names baseline, but the run's manifest declares kv_quantization"


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        ([["set_manifest", "engine.configuration.kv_cache_dtype", "fp8"]], "kv_quantization/fp8_e4m3 ("),
        ([["set_manifest", "engine.configuration.speculative", True]], "speculative_decoding/unknown variant ("),
        ([["set_manifest", "asked.mechanism", FP8]], "none (kv_cache_dtype unknown)"),
        (
            [["set_manifest", "asked.mechanism", FP8], ["set_manifest", "engine.configuration.kv_cache_dtype", "fp8"]],
            None,
        ),
    ],
)
def test_sign_off_reports_a_declaration_that_contradicts_the_engine(
    frozen: FrozenRuns, tmp_path: Path, faults: list[list[object]], why: str | None
) -> None:
    run = frozen.copy(tmp_path / "off-1", "off-1", *faults)
    verdict = sign_off("harness", [run, frozen("off-acc")])
    findings = [finding for finding in verdict.all_findings if finding.rule == "gate/mechanism_misdeclared"]
    if why is None:
        assert findings == []
        return
    (finding,) = findings
    assert (label_of(finding), finding.where) == ("FAIL", str(RunDir(run).manifest))
    assert finding.found.startswith(why)
