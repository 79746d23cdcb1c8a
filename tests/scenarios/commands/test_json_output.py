"""`--json`: one object on the standard output of every command, whatever happens; `-q`: nothing but errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from runs.record.layout import RunDir
from scenarios.command_line.dispatch import COMMANDS
from tests.conftest import Finished, RunMain, run_here
from tests.support.run_commands import arguments


def output_of(finished: Finished) -> dict[str, Any]:
    (line,) = finished.stdout.splitlines()
    whole: dict[str, Any] = json.loads(line)
    assert list(whole) == ["command", "exit_code", "error", "answer"]
    assert whole["exit_code"] == finished.code
    return whole


def test_a_run(tmp_path: Path, run_main: RunMain) -> None:
    out = tmp_path / "run"
    finished = run_main(*arguments("Offline", out, "--json"))
    whole = output_of(finished)
    assert (whole["command"], whole["exit_code"], whole["error"]) == ("run", 0, None)
    assert whole["answer"]["run_directory"] == str(out)
    assert whole["answer"]["result"] == json.loads(RunDir(out).result.read_bytes())
    assert "Offline performance: VALID" in finished.stderr


def test_a_plan(tmp_path: Path) -> None:
    whole = output_of(run_here(*arguments("Offline", tmp_path / "run", "--json", "--dry-run")))
    assert whole["answer"]["plan"]["count"]["samples"] == 64
    assert whole["answer"]["plan"]["invalid_because"] == []


@pytest.mark.parametrize("command", [*COMMANDS, "store query"])
def test_a_mistake_in_any_command(command: str) -> None:
    whole = output_of(run_here(*command.split(), "--no-such-option", "--json"))
    assert (whole["command"], whole["exit_code"]) == (command.split()[0], 2)
    assert "--no-such-option" in whole["error"]["message"]
    assert whole["error"]["fix"]


def test_the_log_of_the_engine_is_shown(tmp_path: Path, run_main: RunMain) -> None:
    told = run_main(*arguments("Offline", tmp_path / "run", "-v", "--dummy-fault", "raise@5"))
    assert told.code == 4
    assert "| Traceback (most recent call last):" in told.stdout
    assert "Traceback" not in told.stderr


def test_quiet(tmp_path: Path, run_main: RunMain) -> None:
    finished = run_main(*arguments("Offline", tmp_path / "run", "-q"))
    assert (finished.code, finished.stdout, finished.stderr) == (0, "", "")
    refused = run_main("run", "--scenario", "Offlin", "-q")
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: ")
