"""The files of a verdict survive a loss of power: the system calls in their order."""

import os
from pathlib import Path

import pytest

from runs.files.writing import write_atomic
from runs.record.layout import SIGNOFF_LEDGER
from tests.conftest import run_here
from tests.support.runs.dummy_runs import DummyRuns

runs = DummyRuns()
Call = tuple[str, Path]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Return the synced files and folders, and the new names of files."""
    recorded: list[Call] = []
    fsync, replace = os.fsync, os.replace

    def sync(descriptor: int) -> None:
        recorded.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def rename(source: Path, target: Path) -> None:
        recorded.append(("rename", Path(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    return recorded


def test_content_name_and_folder_are_synced_in_order(calls: list[Call], tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    write_atomic(path, "{}")
    (_, temporary), *rest = calls
    assert temporary.parent == tmp_path
    assert temporary != path
    assert rest == [("rename", path), ("sync", tmp_path)]


def test_a_folder_that_cannot_be_synced_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def refused(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == tmp_path:
            raise OSError(22, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refused)
    write_atomic(tmp_path / "verdict.json", "{}")
    assert (tmp_path / "verdict.json").read_text() == "{}"


@pytest.mark.parametrize(
    "words",
    [
        "verify PERFORMANCE --output {}/verify --json {}/verify.json --document {}/verify.md",
        "audit --test output_length --ref ACCURACY --run PERFORMANCE --output-log-dir {}/audit",
        "signoff --scope harness --ref PERFORMANCE ACCURACY --out {}/signoff.json --feedback {}/feedback.json",
        "gate PERFORMANCE --out {}/gate.json",
        "check {}/tree --json {}/check.json --report {}/check.html",
    ],
)
def test_each_file_of_a_verdict_is_synced(words: str, calls: list[Call], tmp_path: Path) -> None:
    tree = tmp_path / "tree/closed/submitter/README.md"
    tree.parent.mkdir(parents=True)
    tree.touch()
    places = {"PERFORMANCE": runs("Offline"), "ACCURACY": runs("Offline", "accuracy")}
    finished = run_here(*(places.get(word, word.format(tmp_path)) for word in words.split()))
    assert finished.code in (0, 1), finished.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != tree]
    assert len(written) >= words.count("{}") - words.count("{}/tree")
    for path in written:
        # A ledger grows in its place. Other files are renamed.
        last = ("sync" if path.name == SIGNOFF_LEDGER else "rename", path)
        assert ("sync", path.parent) in calls[calls.index(last) :], path
