"""A finished leg is judged whole or not at all: a field or file that is left out does not switch a check off."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.verify.legs import find_results
from compliance.verify.verdict import Verdict, verify_result
from runs.files import sha256_of
from runs.record.layout import RunDir
from tests.support.editing import reseal
from tests.support.verify_legs import DummyLegs


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> DummyLegs:
    return DummyLegs(tmp_path_factory.mktemp("legs"))


def judged(run: RunDir) -> Verdict:
    return verify_result(find_results([run.root])[0])


def rules(verdict: Verdict) -> set[str]:
    return {finding.rule for part in verdict.parts for finding in part.contradictions}


SEALED = ["manifest.json", "user.conf", "engine.log", "progress.json", "result.json", "requests.jsonl"]


@pytest.mark.parametrize("name", [*SEALED, "mlperf_log_trace.json"])
def test_one_byte_more_is_found_by_its_file(legs: DummyLegs, tmp_path: Path, name: str) -> None:
    run = legs.copy(tmp_path / "leg", "Offline")
    with (run.root / name).open("a") as stream:
        stream.write("\n")
    verdict = judged(run)
    assert verdict.exit_code in (2, 4)
    if verdict.error is None:
        assert "record-seal" in rules(verdict)
        assert any(finding.files[0].name == name for part in verdict.parts for finding in part.contradictions)


def without(name: str) -> Callable[[dict[str, Any]], None]:
    """Take a field out; dots lead into parts."""

    def edit(manifest: dict[str, Any]) -> None:
        *path, last = name.split(".")
        part = manifest
        for step in path:
            part = part[step]
        del part[last]

    return edit


def with_value(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    def edit(manifest: dict[str, Any]) -> None:
        *path, last = name.split(".")
        part = manifest
        for step in path:
            part = part[step]
        part[last] = value

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        without("observed.cached_prompt_tokens"),
        without("observed.log_sha256"),
        with_value("observed.log_sha256", {}),
        with_value("observed", {}),
        with_value("loadgen_settings", {}),
        without("loadgen_settings.schedule_rng_seed"),
        with_value("engine.prefix_caching", None),
        with_value("engine.prefix_caching", "no"),
        with_value("engine", {}),
        without("resolved.sampling.max_tokens"),
        with_value("resolved.sampling.temperature", "greedy"),
        with_value("host", {}),
        with_value("host.hostname", ""),
        with_value("software", None),
        with_value("dataset.sha256", ""),
        with_value("pid", None),
        with_value("exit_code", "0"),
        with_value("more", 1),
    ],
)
def test_a_manifest_that_lacks_anything_allows_no_verdict(
    legs: DummyLegs, tmp_path: Path, edit: Callable[[dict[str, Any]], None]
) -> None:
    run = legs.copy(tmp_path / "leg", "Offline")
    manifest = json.loads(run.manifest.read_bytes())
    edit(manifest)
    run.manifest.write_text(json.dumps(manifest))
    reseal(run)
    verdict = judged(run)
    assert verdict.exit_code == 2
    assert verdict.error is not None
    assert str(run.manifest) in verdict.error.message


@pytest.mark.parametrize(
    "content",
    ["{}", "no JSON", "null", '{"phase": "done"}', None],
)
def test_a_heartbeat_that_lacks_anything_is_a_contradiction(
    legs: DummyLegs, tmp_path: Path, content: str | None
) -> None:
    run = legs.copy(tmp_path / "leg", "Offline")
    run.progress.unlink() if content is None else run.progress.write_text(content)
    reseal(run)
    verdict = judged(run)
    assert verdict.exit_code == 4
    assert rules(verdict) == {"record-progress"}


@pytest.mark.parametrize(("name", "value"), [("phase", "running"), ("pid", 1), ("completed", 63), ("elapsed_s", "1")])
def test_a_heartbeat_of_another_leg_is_a_contradiction(
    legs: DummyLegs, tmp_path: Path, name: str, value: object
) -> None:
    run = legs.copy(tmp_path / "leg", "Offline")
    run.progress.write_text(json.dumps({**json.loads(run.progress.read_bytes()), name: value}))
    reseal(run)
    assert rules(judged(run)) == {"record-progress"}


def test_a_leg_without_its_seal_is_a_contradiction(legs: DummyLegs, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Offline")
    run.seal.unlink()
    assert rules(judged(run)) == {"record-seal"}


def test_the_official_truncation_breaks_no_seal(legs: DummyLegs, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Server", "accuracy")
    whole = sha256_of(run.accuracy_log)
    content = run.accuracy_log.read_bytes()
    run.accuracy_log.write_bytes(content[:4096] + b"\n\n...\n\n" + content[-4096:])
    with run.accuracy_text.open("a") as stream:
        stream.write(f"\nhash={whole}\n")
    assert "record-seal" not in rules(judged(run))
    run.accuracy_text.write_text(run.accuracy_text.read_text().replace("'rouge1': ", "'rouge1': 1"))
    assert "record-seal" in rules(judged(run))


def test_a_leg_from_before_there_were_seals_is_judged_and_is_no_official_one(legs: DummyLegs, tmp_path: Path) -> None:
    run = legs.copy(tmp_path / "leg", "Offline")
    run.manifest.write_text(json.dumps({**json.loads(run.manifest.read_bytes()), "schema_version": 1}))
    run.seal.unlink()
    verdict = judged(run)
    assert verdict.outcome == "PASS"
    assert any("version of the record" in reason for reason in verdict.unofficial)
    assert verify_result(find_results([run.root])[0], official=True).exit_code == 1
