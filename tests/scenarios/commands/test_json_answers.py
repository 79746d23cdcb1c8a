"""`--json`: one object on the standard output of every command, whatever happens; `-q`: nothing but errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs.record.layout import RunDir
from scenarios.commands.command_line import COMMANDS
from tests.conftest import Finished
from tests.support.legs import arguments

RunMain = Callable[..., Finished]


def answer_of(finished: Finished) -> dict[str, Any]:
    (line,) = finished.stdout.splitlines()
    whole: dict[str, Any] = json.loads(line)
    assert list(whole) == ["command", "exit_code", "error", "answer"]
    assert whole["exit_code"] == finished.code
    return whole


def test_a_leg(tmp_path: Path, run_main: RunMain) -> None:
    out = tmp_path / "leg"
    finished = run_main(*arguments("Offline", out, "--json"))
    whole = answer_of(finished)
    assert (whole["command"], whole["exit_code"], whole["error"]) == ("run", 0, None)
    assert whole["answer"]["run_directory"] == str(out)
    assert whole["answer"]["result"] == json.loads(RunDir(out).result.read_bytes())
    assert "Offline performance: VALID" in finished.stderr


def test_a_plan(tmp_path: Path, run_main: RunMain) -> None:
    whole = answer_of(run_main(*arguments("Offline", tmp_path / "leg", "--json", "--dry-run")))
    assert whole["answer"]["plan"]["count"]["samples"] == 64
    assert whole["answer"]["plan"]["invalid_because"] == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run", "--scenario", "Offlin"), 2),
        (("run", "--no-such-option"), 2),
        (("runn",), 2),
        (("campaign", "--config", "nothing.yaml"), 2),
        (("init", "/dev/null/x"), 3),
        (("doctor", "--dataset-path", "nothing.json"), 3),
    ],
)
def test_errors_too(words: tuple[str, ...], code: int, run_main: RunMain) -> None:
    whole = answer_of(run_main(*words, "--json"))
    assert whole["exit_code"] == code
    if whole["command"] != "doctor":  # that one has findings to show
        assert whole["error"]["message"]
        assert whole["error"]["fix"]
    else:
        assert any(finding["state"] == "missing" for finding in whole["answer"]["findings"])


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("store",)])
def test_no_command_is_put_off_by_it(command: str, run_main: RunMain) -> None:
    finished = run_main(command, "--no-such-option", "--json")
    assert finished.code == 2
    assert "Traceback" not in finished.stderr


def test_quiet(tmp_path: Path, run_main: RunMain) -> None:
    finished = run_main(*arguments("Offline", tmp_path / "leg", "-q"))
    assert (finished.code, finished.stdout, finished.stderr) == (0, "", "")
    refused = run_main("run", "--scenario", "Offlin", "-q")
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: ")
