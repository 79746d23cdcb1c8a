"""The front door: commands, exit codes, and no traceback for a user's mistake."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import main
from runs.environment import HARNESS_VERSION
from runs.errors import ExecutionError, HarnessError, Interrupted, SetupError
from scenarios.leg import parent as leg_module
from scenarios.leg.config import RunConfig
from tests.conftest import ROOT, Finished

Capture = pytest.CaptureFixture[str]


def test_from_anywhere(run_main: Callable[..., Finished]) -> None:
    finished = run_main("--help")
    assert finished.code == 0
    assert "doctor" in finished.stdout
    assert "run" in finished.stdout
    finished = run_main("docter")
    assert (finished.code, finished.stdout) == (2, "")
    assert "did you mean 'doctor'?" in finished.stderr


def test_version(capsys: Capture) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out.split()[-1] == HARNESS_VERSION


@pytest.mark.parametrize("arguments", [["run", "--help"], ["--scenario", "Server", "--help"]])
def test_help_of_a_command_stands_on_its_own(arguments: list[str], capsys: Capture) -> None:
    assert main.main(arguments) == 0
    text = capsys.readouterr().out
    assert "Exit codes: 0 VALID or passed" in " ".join(text.split())
    assert "--config" in text
    assert "Examples:" in text
    everything = {name: "--" + name.replace("_", "-") for name in RunConfig.model_fields}
    few = {"batch_size", "num_workers"} | {name for name in everything if name.startswith("dummy_")}
    assert {name for name, flag in everything.items() if f" {flag} " not in text} == few
    assert main.main([*arguments[:-1], "--help-all"]) == 0
    text = capsys.readouterr().out
    assert all(f" {flag} " in text for flag in everything.values())


def test_a_mistake_says_how_to_mend_it(capsys: Capture) -> None:
    assert main.main(["--scenario", "Offline", "--engine", "dummy", "--user-conf", "none"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == "error: cannot read --user-conf none: No such file or directory"
    assert second == "  fix: name a readable file"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ExecutionError("engine died"), 4),
        (SetupError("no engine"), 3),
        (Interrupted("interrupted by SIGTERM"), 130),
        (KeyboardInterrupt(), 130),
        (OSError(28, "No space left on device"), 4),
        (MemoryError(), 4),
        (ImportError("libfoo.so: cannot open shared object file"), 3),
        (KeyError("a fault of ours"), 4),  # never 1, which is a verdict
    ],
)
def test_exit_code_of_each_error(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(leg_module, "run_leg", fail)
    assert main.main(["--scenario", "Offline", "--engine", "dummy"]) == code
    captured = capsys.readouterr().err
    assert isinstance(error, KeyboardInterrupt) or str(error) in captured
    assert isinstance(error, KeyboardInterrupt | HarnessError) or "\n  fix: " in captured
    assert "Traceback" not in captured


def test_without_a_place_for_temporary_files(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def no_place(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/var/tmp']")

    monkeypatch.setattr(leg_module, "run_leg", no_place)
    assert main.main(["--scenario", "Offline", "--engine", "dummy"]) == 4
    assert "fix: set TMPDIR to a directory that can be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("scenario: Server\ntarget_qsp: 2\n", "run.yaml:2: target_qsp: there is no such key; did you mean target_qps?"),
        ("scenario: Sever\n", "run.yaml:1: scenario Sever"),
        ("scenario: Server\ntarget_qps: fast\n", "run.yaml:2: target_qps fast"),
        ("scenario: Server\nconfig: other.yaml\n", "run.yaml:2: config: there is no such key"),
        ("just text", "expected keys and values"),
        ("scenario: [", "is not YAML"),
    ],
)
def test_mistakes_in_yaml(content: str, words: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(content)
    assert main.main(["--config", str(path)]) == 2
    assert words in capsys.readouterr().err


def test_the_front_door_imports_nothing_heavy() -> None:
    code = "import sys, main; sys.exit(bool({'vllm', 'torch', 'transformers', 'mlperf_loadgen'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, check=False)
    assert done.returncode == 0


def test_a_leg_is_started_before_what_only_its_end_or_other_commands_need_is_imported() -> None:
    code = """
import sys, main, scenarios.leg.parent, scenarios.leg.supervisor
class Enough(SystemExit): pass
def start(self): raise Enough
scenarios.leg.supervisor.EarlyLeg.__enter__ = start
try:
    main.main(["--scenario", "Offline", "--engine", "dummy"])
except Enough:
    late = {"nltk", "rouge_score", "transformers", "scenarios.leg.plan", "scenarios.commands.tune"}
    late.add("compliance.signoff")
    sys.exit(len(late & set(sys.modules)))
sys.exit(-1)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, check=False)
    assert done.returncode == 0
