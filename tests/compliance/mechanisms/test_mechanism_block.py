"""The block `mechanism`: from a run's configuration to its manifest, its row and its sign-off."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from compliance.mechanisms.declaration import Declaration, MechanismBlock, declare
from compliance.mechanisms.row import rows_of_runs
from compliance.mechanisms.technique_registry import registries_or_error
from compliance.signoff import sign_off
from runs.errors import ExitCode, InputError
from runs.record.layout import RunDir
from scenarios.leg.config import load_yaml, make_config
from tests.conftest import ROOT, Finished
from tests.support.legs import arguments
from tests.support.signoff_fixtures import FrozenLegs, as_word

FP8 = {"mechanism": "kv_quantization", "mechanism_variant": "fp8_e4m3"}


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    return FrozenLegs(tmp_path_factory)


def block(given: object) -> dict[str, Any]:
    return MechanismBlock.model_validate(given).root


def declared(**fields: Any) -> dict[str, Any]:
    return {"mechanism": "baseline", "mechanism_variant": "none", **fields}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("baseline", declared()),
        ("kv_quantization/fp8_e4m3", FP8),
        (" kv_quantization / fp8_e4m3 ", FP8),
        ({}, declared()),
        ({"quality-eval-id": "mlperf_cnndm_rouge"}, declared(quality_eval_id="mlperf_cnndm_rouge")),
        ({**FP8, "compression_ratio": "2", "support_status": "supported"},
         {**FP8, "compression_ratio": 2.0, "support_status": "supported"}),
        ({**FP8, "mechanism_notes": ""}, FP8),
    ],
)  # fmt: skip
def test_what_is_given_is_kept_and_the_rest_is_a_baseline(given: object, expected: dict[str, Any]) -> None:
    assert block(given) == expected
    assert block(expected) == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "neither MECHANISM/VARIANT nor a file"),
        ("a/b/c", "neither MECHANISM/VARIANT nor a file"),
        ("kv_quantization/", "neither MECHANISM/VARIANT nor a file"),
        (["baseline"], "give MECHANISM/VARIANT"),
        (7, "give MECHANISM/VARIANT"),
        ({"mechanism": "baseline", "colour": "red"}, "there is no field 'colour'"),
        ({"compression_ratio": "much"}, "compression_ratio 'much': Input should be a valid number"),
        ({"speculative_acceptance_rate": 1.5}, "speculative_acceptance_rate 1.5: Input should be less"),
        ({"speculative_wasted_tokens": 1.5}, "speculative_wasted_tokens 1.5: Input should be a valid integer"),
        ({"mechanism": 4}, "mechanism 4: Input should be a valid string"),
        ({"support_status": "certified"}, "support_status 'certified': Input should be 'supported'"),
    ],
)
def test_before_a_run_a_mistake_is_refused(given: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        block(given)
    with pytest.raises(InputError, match=said) as refused:
        make_config({"scenario": "Offline", "mechanism": given})
    assert refused.value.message.startswith("--mechanism")


def test_a_yaml_declaration_is_read_when_it_is_named(tmp_path: Path) -> None:
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


def test_a_real_leg_records_what_it_declares_and_the_gate_reads_it_there(
    run_main: Callable[..., Finished], tmp_path: Path
) -> None:
    leg = tmp_path / "leg"
    done = run_main(*arguments("Offline", leg, "--mechanism", "speculative_decoding/eagle3"))
    assert done.code == ExitCode.OK, done.stderr
    eagle3 = {"mechanism": "speculative_decoding", "mechanism_variant": "eagle3"}
    manifest = json.loads((leg / "manifest.json").read_bytes())
    assert manifest["asked"]["mechanism"] == eagle3
    judged = run_main("gate", leg)
    assert judged.code == ExitCode.NEGATIVE
    assert "mechanism_misdeclared: declared speculative_decoding/eagle3, but the engine ran without it" in judged.stdout
    assert run_main("gate", leg, "--mechanism", "baseline", "--mechanism-variant", "none").code == ExitCode.OK
    refused = run_main(*arguments("Offline", tmp_path / "refused", "--mechanism", "a/b/c"))
    assert refused.code == ExitCode.BAD_INPUT
    assert "--mechanism a/b/c: neither MECHANISM/VARIANT nor a file" in refused.stderr
    assert not (tmp_path / "refused").exists()


def row_of(leg: Path, declaration: Declaration) -> dict[str, Any]:
    (found,) = rows_of_runs([leg], declaration, registries_or_error())
    return found.row


def test_the_row_takes_the_run_s_own_word_and_the_command_line_wins(legs: FrozenLegs, tmp_path: Path) -> None:
    said = {**FP8, "quality_eval_status": "pending", "support_status": "supported"}
    leg = legs.copy(tmp_path / "leg", "off-1", ["set_manifest", "asked.mechanism", said])
    silent = row_of(leg, declare())
    assert {name: silent[name] for name in said} == said
    more = row_of(leg, declare({"quality_eval_status": "completed", "support_status": "reviewed_preview"}))
    assert {name: more[name] for name in said} == {
        **FP8, "quality_eval_status": "completed", "support_status": "reviewed_preview"
    }  # fmt: skip
    other = row_of(leg, declare({"mechanism": "baseline"}))
    assert (other["mechanism"], other["mechanism_variant"], other["quality_eval_status"]) == ("baseline", None, None)
    assert other["support_status"] == "supported"
    (issue,) = other["mechanism_eval_validation"]["issues"]
    assert issue == "declared baseline here, the run's own record declares kv_quantization"


@pytest.mark.parametrize("garbage", [{"mechanism": 4}, {"support_status": 4}, {"colour": "red"}, {}])
def test_a_record_that_somebody_edited_is_read_like_any_other_row(garbage: dict[str, Any]) -> None:
    found = declare().over(garbage)
    assert found.values["mechanism"] in ("baseline", "4")
    assert found.support_status in ("supported", "reviewed_preview")


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ([["set_manifest", "engine.configuration.kv_cache_dtype", "fp8"]], "declared baseline, but kv_quantization"),
        ([["set_manifest", "engine.configuration.speculative", True]], "declared baseline, but speculative_decoding"),
        ([["set_manifest", "asked.mechanism", FP8]], "but the engine ran without it"),
    ],
)
@pytest.mark.parametrize("scope", ["harness", "bundle"])
def test_sign_off_names_a_declaration_that_the_engine_contradicts(
    legs: FrozenLegs, tmp_path: Path, faults: list[list[object]], said: str, scope: Any
) -> None:
    leg = legs.copy(tmp_path / "leg", "off-1", *faults)
    verdict = sign_off(scope, [leg, legs("off-acc")])
    assert verdict.outcome == "FAIL"
    (reason,) = [one for one in verdict.findings if one.slug == "mechanism_misdeclared"]
    assert (reason.rule.partition("/")[0], as_word(reason)) == ("gate", "FAIL")
    assert said in reason.text
    assert reason.where == str(RunDir(leg).manifest)


def test_a_true_declaration_is_no_finding(legs: FrozenLegs, tmp_path: Path) -> None:
    leg = legs.copy(
        tmp_path / "leg", "off-1",
        ["set_manifest", "asked.mechanism", FP8], ["set_manifest", "engine.configuration.kv_cache_dtype", "fp8"],
    )  # fmt: skip
    assert "mechanism_misdeclared" not in {one.slug for one in sign_off("harness", [leg, legs("off-acc")]).findings}
