"""The seal of a finished leg: any byte changed is found by its file's name."""

from pathlib import Path

import pytest

from runs.errors import InputError
from runs.files import sha256_of
from runs.record.layout import RunDir
from runs.record.seal import broken_files, read_seal, write_seal


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    leg = RunDir(tmp_path)
    for name in sorted(leg.own_names - {"audit.config"}):
        (tmp_path / name).write_text(name)
    (tmp_path / "replicas").mkdir()
    (tmp_path / "replicas" / "0.log").write_text("a log")
    return leg


def test_an_unchanged_leg_keeps_its_seal(run: RunDir) -> None:
    assert write_seal(run) == sha256_of(run.seal)
    (run.root / "verify_performance.txt").write_text("a verdict, written later")
    assert list(broken_files(run, read_seal(run))) == []


@pytest.mark.parametrize("name", sorted({*RunDir(Path()).own_names - {"audit.config"}, "replicas/0.log"}))
def test_one_changed_byte_is_found_by_its_name(run: RunDir, name: str) -> None:
    write_seal(run)
    with (run.root / name).open("r+b") as stream:
        stream.write(b"X")
    assert [(broken.name, broken.state) for broken in broken_files(run, read_seal(run))] == [(name, "changed")]


def test_a_file_taken_away_or_added_is_found(run: RunDir) -> None:
    write_seal(run)
    run.engine_log.unlink()
    run.audit_config.write_text("*.*.mode = 2")
    found = [(broken.name, broken.state) for broken in broken_files(run, read_seal(run))]
    assert found == [("engine.log", "missing"), ("audit.config", "added")]


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        "null",
        '{"schema_version": 1, "sealed_ns": 1}',
        '{"schema_version": 2, "sealed_ns": 1, "files": {}}',
        '{"schema_version": 1, "sealed_ns": 1, "files": {"a": {"bytes": 1, "sha256": ""}}}',
        '{"schema_version": 1, "sealed_ns": 1, "files": {}, "more": 1}',
    ],
)
def test_a_seal_of_another_form_is_none(run: RunDir, content: str) -> None:
    run.seal.write_text(content)
    with pytest.raises(InputError) as caught:
        read_seal(run)
    assert str(run.seal) in caught.value.message
