"""Directories that tests share: changes by a test are reported, and a change of code or data fills them again."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support import once
from tests.support.files.loaded_code import loaded_files


def fill(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "result.json").write_text("{}")
    (folder / "run" / "manifest.json").write_text("{}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a shared folder of an earlier session."""
    monkeypatch.setattr(once, "KEPT", tmp_path)
    monkeypatch.setattr(once, "_shared", {})
    monkeypatch.setattr(once, "_users", [])
    return once.make_and_keep("example", fill)


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
    assert once.make_and_keep("example", fill) == folder
    assert not (folder / "run" / "signoffs.jsonl").exists()


def test_an_unchanged_folder_is_kept(folder: Path) -> None:
    once._users.pop().close()
    once.remove_unusable()
    assert folder.exists()


# Files of a small checkout.
FILES = {
    "maker.py": "from package import first\n\n\ndef make():\n    import package.second as second\n",
    "package/__init__.py": "",
    "package/first.py": "from package.third import (\n    name,\n)\n",
    "package/second.py": "",
    "package/third.py": "name = 1\n",
    "package/unused.py": "",
    "data.txt": "",
}


@pytest.fixture
def small_checkout(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def test_loaded_code_includes_indirect_imports_and_those_in_functions(small_checkout: Path) -> None:
    files = loaded_files([small_checkout / "maker.py"], small_checkout)
    assert {path.relative_to(small_checkout).as_posix() for path in files} == FILES.keys() - {
        "package/unused.py",
        "data.txt",
    }


@pytest.mark.parametrize("name", ["tests.support.runs.dummy_runs", "tests.support.trees.any_tree"])
def test_loaded_code_includes_each_module_that_python_imports(name: str) -> None:
    code = f"import sys, {name}; print(*(getattr(module, '__file__', None) for module in [*sys.modules.values()]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {Path(file) for file in done.stdout.split() if Path(file).is_relative_to(ROOT)}
    imported = {path for path in imported if path.relative_to(ROOT).parts[0] != ".venv"}
    assert len(imported) > 50
    assert imported <= {*loaded_files([ROOT / f"{name.replace('.', '/')}.py"])}


@pytest.mark.parametrize(
    ("changed", "is_kept"), [("package/third.py", False), ("data.txt", False), ("other.txt", True)]
)
def test_a_folder_is_kept_until_its_code_or_data_changes(
    small_checkout: Path, changed: str, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest() -> str:
        once._content.cache_clear()
        return once._content(small_checkout / "maker.py", (), ("data.txt",))

    monkeypatch.setattr(once, "ROOT", small_checkout)
    monkeypatch.setattr(once, "loaded_files", partial(loaded_files, root=small_checkout))
    before = digest()
    (small_checkout / changed).write_text("changed")
    assert (digest() == before) is is_kept
    once._content.cache_clear()
