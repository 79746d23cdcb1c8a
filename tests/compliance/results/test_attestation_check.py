"""The files of a finished run: a missing field or file does not disable a check."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compliance.judge.verdict import not_applied
from compliance.results.details import ResultVerdict
from runs.errors import ExitCode, InputError
from runs.files.writing import sha256_of
from runs.record.layout import LOADGEN_LOGS, RunDir
from runs.record.manifest import read_manifest
from runs.record.unattested import NotAttestedError
from tests.support.files.editing import reseal, set_at, set_record
from tests.support.runs.dummy_runs import DummyRuns, verify_one_result
from tests.support.runs.signoff_fixtures import FrozenRuns


@pytest.fixture
def run(runs: DummyRuns, tmp_path: Path) -> RunDir:
    return runs.copy(tmp_path / "run", "Server")


def rules(verdict: ResultVerdict) -> set[str]:
    return {finding.rule for part in verdict.parts for finding in part.contradictions}


SEALED = ["manifest.json", "user.conf", "engine.log", "progress.json", "result.json", "requests.jsonl"]


@pytest.mark.parametrize("name", [*SEALED, *LOADGEN_LOGS])
def test_an_additional_byte_is_found_in_each_attested_file(run: RunDir, name: str) -> None:
    with (run.root / name).open("a") as stream:
        stream.write("\n")
    verdict = verify_one_result(run.root)
    assert verdict.exit_code() in (2, 4)
    if verdict.error is None:
        assert "attested" in rules(verdict)
        assert any(finding.files[0].name == name for part in verdict.parts for finding in part.contradictions)


# Mappings of the manifest whose keys the user, the engine, LoadGen or the host decides
OPEN = {
    "asked", "plan.engine_options", "plan.environment", "observed.software", "observed.model.sha256", "error",
    "engine.configuration", "engine.versions", "observed.start_stages",
}  # fmt: skip


TWICE = "a value that stands nowhere"


def parts_of(part: dict[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object of the manifest that has fields of its own, with its place."""
    yield place, part
    for name, value in part.items():
        where = f"{place}.{name}".lstrip(".")
        if isinstance(value, dict) and where not in OPEN:
            yield from parts_of(value, where)


# Fields that are missing in manifests of earlier versions of the harness
ADDED = {".trial", "plan.rows", "plan.concurrency", "plan.trial", "observed.loadgen.build"}


def is_refused(run: RunDir, content: str) -> bool:
    run.manifest.write_text(content)
    try:
        read_manifest(run.manifest)
    except InputError as error:
        return str(run.manifest) in error.message
    return False


@pytest.mark.parametrize("mode", ["performance", "accuracy"])
def test_a_manifest_with_a_missing_mistyped_or_unknown_field_is_refused(
    runs: DummyRuns, tmp_path: Path, mode: str
) -> None:
    """Each field is removed, has another type, or occurs twice. Each part has an unknown field once."""
    run = runs.copy(tmp_path / "run", "Server", mode)
    manifest = json.loads(run.manifest.read_bytes())
    passed_over = []
    for place, part in list(parts_of(manifest)):
        for name, value in list(part.items()):
            del part[name]
            if not is_refused(run, json.dumps(manifest)):
                passed_over.append(f"{place}.{name} absent")
            part[name] = [[[]]]
            if not is_refused(run, json.dumps(manifest)):
                passed_over.append(f"{place}.{name} of another type")
            part[name] = TWICE
            text = json.dumps(manifest).replace(f'"{TWICE}"', f'{json.dumps(value)}, "{name}": {json.dumps(value)}')
            if not is_refused(run, text):
                passed_over.append(f"{place}.{name} twice")
            part[name] = value
        part["more"] = 1
        if not is_refused(run, json.dumps(manifest)):
            passed_over.append(f"{place}.more")
        del part["more"]
    assert {text.removesuffix(" absent") for text in passed_over} == ADDED
    assert not is_refused(run, json.dumps(manifest))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("plan.sampling.temperature", "greedy"),
        ("observed.host.hostname", ""),
        ("observed.host.cores_usable", 0),
        ("observed.software.python", ""),
        ("plan.dataset_sha256", ""),
        ("observed.contention", {}),
        ("observed.contention.foreign_cpu_s", -1.0),
        ("engine.warm_up", None),
        ("plan.engine", "vllm"),  # without a hash of its weights
        ("observed.software", {}),
        ("pid", None),
        *(("observed.model.weights", value) for value in ({"x": 1}, {}, "bfloat16", [1])),
    ],
)
def test_a_manifest_with_an_empty_or_wrong_value_is_refused(run: RunDir, place: str, value: object) -> None:
    set_at(run.manifest, place, value)
    assert is_refused(run, run.manifest.read_text())
    verdict = verify_one_result(run.root)
    assert (verdict.exit_code(), verdict.error is not None) == (2, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"seq":0,', '"seq":0,"seq":0,'),
        ('"seq":0,', '"seq":0,"more":1,'),
        ('"replica":null', '"replica":true'),
        ('"finish_reason":', '"reason":'),
    ],
)
def test_a_request_with_unknown_fields_is_refused(run: RunDir, old: str, new: str) -> None:
    text = run.requests.read_text()
    assert old in text
    run.requests.write_text(text.replace(old, new, 1))
    reseal(run)
    assert verify_one_result(run.root).exit_code() in (2, 4)


def test_the_heartbeat_does_not_affect_the_verdict(run: RunDir) -> None:
    (run.root / "progress.json").write_text("{}")
    reseal(run)
    assert verify_one_result(run.root).outcome == "PASS"


def test_a_valid_attestation_is_noted_with_additional_files(run: RunDir) -> None:
    (run.root / "verify_performance.txt").write_text("an earlier verdict")
    (fits,) = [note for note in verify_one_result(run.root).parts[0].details.notes if "seal.json" in note]
    assert sha256_of(run.seal) in fits
    assert "the key is not checked" in fits
    (run.root / "remarks.md").write_text("mine")
    notes = verify_one_result(run.root).parts[0].details.notes
    assert fits in notes
    assert "files that seal.json does not list were not checked: remarks.md" in notes
    run.audit_config.write_text("")
    assert not [note for note in verify_one_result(run.root).parts[0].details.notes if "seal.json" in note]
    run.audit_config.unlink()
    run.seal.unlink()
    unsigned = verify_one_result(run.root)
    assert isinstance(unsigned.error, NotAttestedError)
    assert unsigned.exit_code() == ExitCode.REFUSED


def test_an_edited_time_is_reported_with_sample_and_line(run: RunDir) -> None:
    lines = run.requests.read_text().splitlines()
    record = json.loads(lines[5])
    lines[5] = json.dumps(record | {"complete_ns": record["complete_ns"] + 30 * 10**9})
    run.requests.write_text("\n".join(lines) + "\n")
    reseal(run)
    (part,) = verify_one_result(run.root).parts
    longest = next(contradiction for contradiction in part.contradictions if "latency_ns.max" in contradiction.text)
    assert f"sample {record['sample_index']} (seq {record['seq']})" in longest.text
    assert "(tolerance: times may be off by 20 ms, in a single sample by 1 s)" in longest.text
    assert [path.name for path in longest.files] == ["requests.jsonl", "mlperf_log_detail.txt"]
    assert longest.line == 6


@pytest.mark.parametrize(("field", "version"), [("schema_version", 3), ("record", 5), ("record", None)])
def test_a_record_of_another_version_is_refused(run: RunDir, field: str, version: int | None) -> None:
    manifest = json.loads(run.manifest.read_bytes())
    del manifest["record"]
    run.manifest.write_text(json.dumps(manifest | {field: version}))
    verdict = verify_one_result(run.root)
    assert verdict.exit_code() == 2
    assert f"has version {version}; this harness reads version 4" in str(verdict.error)


@pytest.mark.parametrize("name", ["vllm-off", "vllm-off-acc"])
def test_changed_model_files_are_found_if_the_folder_exists(frozen: FrozenRuns, tmp_path: Path, name: str) -> None:
    run = RunDir(frozen.copy(tmp_path / "run", name))
    (tmp_path / "config.json").write_text("{}")
    for folder, broken in ((tmp_path / "gone", False), (tmp_path, True)):
        set_record(run, {"observed.model.folder": str(folder)})
        (part,) = verify_one_result(run.root).parts
        assert ("record-model" in {finding.rule for finding in part.findings if not finding.passed}) is broken
        left = [entry.why for entry in not_applied(part) if "record-model" in entry.rules]
        assert any("its files were not compared with the manifest" in why for why in left) is not broken
