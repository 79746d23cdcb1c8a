"""`curve URL` and `init --kind endpoints`, which write curve.yaml."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from runs.errors import ExitCode
from tests.conftest import run_here


def test_a_new_file_has_the_given_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--model", "my model", "--dataset-path", "a b.jsonl", "--client", "bin/client #1")
    written = run_here("curve", "http://host:1", *options)
    assert written.code == ExitCode.OK
    assert "system_desc.json: no such file" in written.stdout
    content: dict[str, Any] = yaml.safe_load(Path("curve.yaml").read_text())
    assert (content["server"], content["model"]) == ("http://host:1", "my model")
    assert content["client"] == "bin/client #1"
    assert [Path(dataset["path"]).name for dataset in content["datasets"]] == ["a b.jsonl"] * 2
    assert run_here("curve", "http://host:1").code == ExitCode.REFUSED  # the file exists


@pytest.mark.parametrize(
    "words", [(), ("--config", ""), ("--config", "x.yaml", "--model", "m"), ("--config", "x.yaml")]
)
def test_missing_and_contradicting_options_are_refused(words: tuple[str, ...]) -> None:
    assert run_here("curve", *words).code == ExitCode.BAD_INPUT


def test_the_example_is_printed_and_is_valid_yaml(tmp_path: Path) -> None:
    printed = run_here("init", "--kind", "endpoints")
    assert yaml.safe_load(printed.stdout)["division"] == "Standardized"
    assert run_here("init", tmp_path / "x", "--kind", "endpoints").code == ExitCode.BAD_INPUT
