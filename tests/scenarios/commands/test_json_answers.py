"""`--json`: one object on the standard output of every command, whatever happens; `-q`: nothing but errors."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import main
from runs.record.layout import RunDir
from scenarios.command_line.dispatch import COMMANDS
from tests.conftest import ROOT, Finished, run_here
from tests.support.legs import arguments
from tests.support.verify_legs import DummyLegs

RunMain = Callable[..., Finished]


def answer_of(finished: Finished) -> dict[str, Any]:
    (line,) = finished.stdout.splitlines()
    whole: dict[str, Any] = json.loads(line)
    assert list(whole) == ["command", "exit_code", "error", "answer"]
    assert whole["exit_code"] == finished.code
    return whole


@pytest.fixture(scope="module")
def leg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return DummyLegs().copy(tmp_path_factory.mktemp("runs") / "leg", "Offline").root


def test_a_leg(tmp_path: Path, run_main: RunMain) -> None:
    out = tmp_path / "leg"
    finished = run_main(*arguments("Offline", out, "--json"))
    whole = answer_of(finished)
    assert (whole["command"], whole["exit_code"], whole["error"]) == ("run", 0, None)
    assert whole["answer"]["run_directory"] == str(out)
    assert whole["answer"]["result"] == json.loads(RunDir(out).result.read_bytes())
    assert "Offline performance: VALID" in finished.stderr


def test_a_plan(tmp_path: Path) -> None:
    whole = answer_of(run_here(*arguments("Offline", tmp_path / "leg", "--json", "--dry-run")))
    assert whole["answer"]["plan"]["count"]["samples"] == 64
    assert whole["answer"]["plan"]["invalid_because"] == []


@pytest.mark.parametrize("command", [*COMMANDS, "store query"])
def test_a_mistake_in_any_command(command: str) -> None:
    whole = answer_of(run_here(*command.split(), "--no-such-option", "--json"))
    assert (whole["command"], whole["exit_code"]) == (command.split()[0], 2)
    assert "--no-such-option" in whole["error"]["message"]
    assert whole["error"]["fix"]


@pytest.mark.parametrize(
    ("words", "code", "names"),
    [
        (("doctor",), 0, {"findings"}),
        (("verify", "LEG"), 0, {"schema_version", "exit_code", "results"}),
        (("results", "LEG"), 0, None),
        (("status", "LEG"), 0, None),
        (("report", "LEG"), 0, {"page"}),
        (("gate", "LEG"), 0, None),
        (("signoff", "--scope", "harness", "--ref", "LEG"), 1, None),
        (("store", "ingest", "LEG", "--db", "DB"), 0, {"runs"}),
        (("store", "query", "--db", "DB"), 0, {"rows"}),
        (("store", "summary", "--db", "DB"), 0, {"runs", "best"}),
        (("check", "REPOSITORY"), 1, None),
        (
            shlex.split("submit LEG --organisation O --system-name S --output TREE --system FACTS --source CODE"),
            1,
            None,
        ),
        (("run", "--scenario", "Offline", "--engine", "dummy", "--dry-run"), 0, None),
        (("audit", "--test", "output_caching", "--scenario", "Offline", "--engine", "dummy", "--dry-run"), 0, None),
        (("tune", "--scenario", "Server", "--engine", "dummy", "--dry-run", "--output-log-dir", "TREE"), 0, None),
        (("init", "TREE"), 0, {"directory", "files"}),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple | list) else "",
)
def test_every_command_answers(
    words: tuple[str, ...],
    code: int,
    names: set[str] | None,
    leg: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {"LEG": leg, "DB": leg.parent / "store.sqlite", "TREE": tmp_path / "tree"}
    places |= {"CODE": ROOT / "configs", "FACTS": tmp_path / "system.yaml", "REPOSITORY": tmp_path / "tree"}
    places["FACTS"].write_text("system: {status: available, host_memory_configuration: 1, cooling: air}\n")
    if "REPOSITORY" in words:
        (tmp_path / "tree" / "closed" / "Org").mkdir(parents=True)
        (tmp_path / "tree" / "closed" / "Org" / "file").write_text("x")
    assert main.main([*(str(places.get(word, word)) for word in words), "--json"]) == code
    whole = json.loads(capsys.readouterr().out)
    assert words[0] in ("status", "results") or whole["error"] is None
    if names is not None:
        assert set(whole["answer"]) == names
    assert whole.get("answer", whole)


def test_the_log_of_the_engine_is_shown(tmp_path: Path, run_main: RunMain) -> None:
    told = run_main(*arguments("Offline", tmp_path / "leg", "-v", "--dummy-fault", "raise@5"))
    assert told.code == 4
    assert "| Traceback (most recent call last):" in told.stdout
    assert "Traceback" not in told.stderr


def test_quiet(tmp_path: Path, run_main: RunMain) -> None:
    finished = run_main(*arguments("Offline", tmp_path / "leg", "-q"))
    assert (finished.code, finished.stdout, finished.stderr) == (0, "", "")
    refused = run_main("run", "--scenario", "Offlin", "-q")
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: ")
