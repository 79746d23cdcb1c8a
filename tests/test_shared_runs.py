"""Runs that tests share: a test that changes them fails, and the next session makes them again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import once


def fill(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "result.json").write_text("{}")
    (folder / "run" / "manifest.json").write_text("{}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `recorded()` returns it, of an earlier session."""
    monkeypatch.setattr(once, "KEPT", tmp_path)
    monkeypatch.setattr(once, "_shared", {})
    monkeypatch.setattr(once, "_users", [])
    return once.make_and_keep("example", fill, ())


def replace_result(folder: Path) -> None:
    (folder / "result.json").write_text("{}")
    (folder / "result.json").rename(folder / "run" / "result.json")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "new": (lambda folder: (folder / "run" / "signoffs.jsonl").touch(), "run/signoffs.jsonl"),
    "new below a new directory": (lambda folder: (folder / "a" / "b").mkdir(parents=True), ""),
    "replaced": (replace_result, "run/result.json"),
    "removed": (lambda folder: (folder / "run" / "result.json").unlink(), "run/result.json"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_files_written_into_shared_runs_are_reported(folder: Path, name: str) -> None:
    assert once.find_changes(by_directory=True) == []
    change, path = CHANGES[name]
    change(folder)
    assert once.find_changes(by_directory=True) == [str(folder / path)] * bool(path)
    assert once.find_changes() == []  # once, for the test that changed it


def test_a_file_edited_in_place_is_reported(folder: Path) -> None:
    path = folder / "run" / "manifest.json"
    path.write_text("[]")
    assert once.find_changes() == [str(path)]


def test_a_changed_folder_is_recreated_when_unused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once.remove_unusable()
    (folder / "run" / "signoffs.jsonl").touch()
    once.remove_unusable()
    assert folder.exists()
    once._users.pop().close()  # as the process ends
    once.remove_unusable()
    assert not folder.exists()
    monkeypatch.setattr(once, "_shared", {})
    assert once.make_and_keep("example", fill, ()) == folder
    assert not (folder / "run" / "signoffs.jsonl").exists()


def test_an_unchanged_folder_is_kept(folder: Path) -> None:
    once._users.pop().close()
    once.remove_unusable()
    assert folder.exists()
