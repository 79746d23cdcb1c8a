"""What a leg declares: in its manifest, its row, the gate and its sign-off."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.mechanisms.declaration import Declaration, declare
from compliance.mechanisms.row import rows_of_runs
from compliance.mechanisms.technique_registry import registries_or_error
from compliance.signoff import sign_off
from runs.errors import ExitCode
from runs.record.layout import RunDir
from tests.conftest import Finished
from tests.support.legs import arguments
from tests.support.signoff_fixtures import FrozenLegs, as_word

FP8 = {"mechanism": "kv_quantization", "mechanism_variant": "fp8_e4m3"}


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    return FrozenLegs(tmp_path_factory)


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
    given = {**FP8, "quality_eval_status": "pending", "support_status": "supported"}
    leg = legs.copy(tmp_path / "leg", "off-1", ["set_manifest", "asked.mechanism", given])
    silent = row_of(leg, declare())
    assert {name: silent[name] for name in given} == given
    more = row_of(leg, declare({"quality_eval_status": "completed", "support_status": "reviewed_preview"}))
    assert {name: more[name] for name in given} == {
        **FP8, "quality_eval_status": "completed", "support_status": "reviewed_preview"
    }  # fmt: skip
    other = row_of(leg, declare({"mechanism": "baseline"}))
    assert (other["mechanism"], other["mechanism_variant"], other["quality_eval_status"]) == ("baseline", None, None)
    assert other["support_status"] == "supported"
    (issue,) = other["mechanism_eval_validation"]["issues"]
    assert issue == "declared baseline here, the run's own record declares kv_quantization"


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        ([["set_manifest", "engine.configuration.kv_cache_dtype", "fp8"]], "declared baseline, but kv_quantization"),
        ([["set_manifest", "engine.configuration.speculative", True]], "declared baseline, but speculative_decoding"),
        ([["set_manifest", "asked.mechanism", FP8]], "but the engine ran without it"),
        (
            [["set_manifest", "asked.mechanism", FP8], ["set_manifest", "engine.configuration.kv_cache_dtype", "fp8"]],
            None,
        ),
    ],
)
@pytest.mark.parametrize(("scope", "name"), [("harness", "off-1"), ("bundle", "off-acc")])
def test_sign_off_names_a_declaration_that_the_engine_contradicts(
    legs: FrozenLegs, tmp_path: Path, faults: list[list[object]], why: str | None, scope: Any, name: str
) -> None:
    leg = legs.copy(tmp_path / name, name, *faults)
    verdict = sign_off(scope, [leg if one == name else legs(one) for one in ("off-1", "off-acc")])
    found = [one for one in verdict.findings if one.rule == "gate/mechanism_misdeclared"]
    if why is None:
        assert found == []
        return
    (finding,) = found
    assert (as_word(finding), finding.where) == ("FAIL", str(RunDir(leg).manifest))
    assert why in finding.text
