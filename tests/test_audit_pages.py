"""The pages on the audit framework: the documented audit runs as written, and the named tests exist."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runs.errors import ExitCode
from tests.conftest import ROOT
from tests.support.documents.documentation import WORKED_EXAMPLE

DESIGN = ROOT / "docs/audits-design.md"
PACKAGES = ("compliance", "configs", "qsl", "runs", "scenarios", "sut")
FILES = ("main.py", "pyproject.toml", "user.conf", "tests/conftest.py")
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy the package, and the files that a new test needs."""
    for name in (*PACKAGES, "tests/support"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copyfile(ROOT / name, tmp_path / name)
    (tmp_path / "tests/compliance/audits").mkdir(parents=True)
    return tmp_path


def test_the_documented_audit_runs_as_written(copy: Path) -> None:
    """The audit needs two new files, and no edit of another."""
    page = WORKED_EXAMPLE.read_text()
    blocks = re.findall(r"^Write `([\w/.]+)`:\n\n```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for name, content in blocks:
        assert not (copy / name).exists()
        (copy / name).write_text(content)
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    done = []
    for line in commands.splitlines():
        words = shlex.split(line)
        assert words[0] == ".venv/bin/python"
        done.append(subprocess.run([sys.executable, *words[1:]], cwd=copy, capture_output=True, text=True))
    tested, passed, refused = done
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert passed.returncode == ExitCode.OK, passed.stdout + passed.stderr
    assert "PASS" in passed.stdout
    assert refused.returncode == ExitCode.BAD_INPUT
    assert "--repeats 10: " in refused.stderr


def test_the_documented_audit_has_the_code_style(tmp_path: Path) -> None:
    page = WORKED_EXAMPLE.read_text()
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL)):
        file = tmp_path / f"block_{number}.py"
        file.write_text(block)
        for words in (("check", "-q"), ("format", "--check", "-q")):
            ruff = Path(sys.executable).with_name("ruff")
            done = subprocess.run([ruff, *words, "--config", ROOT / "pyproject.toml", file], capture_output=True)
            assert done.returncode == 0, done.stdout.decode()


def test_tests_and_files_named_by_the_design_exist() -> None:
    text = DESIGN.read_text()
    assert len(text.split()) <= 700
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 25
    for row in rows:
        _, requirement, met_by, shown_by, _ = row.split("|")
        named = NAMED.findall(shown_by)
        assert named, requirement
        for file, test in named:
            assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(), (file, test)
        assert all((ROOT / path).is_file() for path in re.findall(r"`([^`]+)`", met_by)), met_by
