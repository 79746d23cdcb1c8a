"""The files for contributors: workflows, hooks, issue forms, and the citation."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from runs.harness import HARNESS_VERSION
from tests.conftest import ROOT

GITHUB = ROOT / ".github"
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def read_yaml_file(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(path.read_text())
    return values


def test_workflows_call_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    jobs = [job for path in (GITHUB / "workflows").glob("*.yml") for job in read_yaml_file(path)["jobs"].values()]
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    targets = [re.fullmatch(r"make ([\w-]+)(?: \w+=\S+(?: \S+ \}\})?)*", command) for command in commands]
    assert all(targets), commands
    called = {target[1] for target in targets if target}
    assert called >= {"setup", "lint", "test", "docs", "test-engines", "test-long"}
    assert all(f"\n{name}:" in makefile for name in called)


def test_hooks_check_changed_files_with_the_locked_tools() -> None:
    (repository,) = read_yaml_file(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert set(hooks) == {"ruff-format", "ruff-check", "mypy"}
    for hook in hooks.values():
        assert hook["entry"].startswith(f".venv/bin/python -m {hook['id'].partition('-')[0]}")
    checked = [name for name in PROJECT["tool"]["mypy"]["files"] if not name.endswith(".py")]
    assert all(re.match(hooks["mypy"]["files"], f"{name}/a.py") for name in (*checked,))
    assert re.match(hooks["mypy"]["files"], "main.py")
    assert not re.match(hooks["mypy"]["files"], "tests/test_contributor_files.py")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_ask_for_doctor_output_and_run_directory(path: Path) -> None:
    fields = {field["id"]: field for field in read_yaml_file(path)["body"]}
    assert "main.py doctor --json" in fields["doctor"]["attributes"]["label"]
    assert fields["doctor"]["validations"]["required"]
    assert "Run directory" in fields["run"]["attributes"]["label"]


def test_the_citation_names_the_current_version() -> None:
    cited = read_yaml_file(ROOT / "CITATION.cff")
    assert (cited["title"], str(cited["version"])) == (PROJECT["project"]["name"], HARNESS_VERSION)
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
