"""The front door: commands, exit codes, and no traceback for a user's mistake."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import main
from runs.environment import HARNESS_VERSION
from runs.errors import ExecutionError, HarnessError, Interrupted, SetupError
from scenarios.command_line.dispatch import COMMANDS, cli
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


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "--scenario is missing"),
        (["run"], 2, "--scenario is missing"),
        (["--scenario", "Offlin"], 2, "--scenario Offlin"),
        (["--scenario", "MultiStream"], 2, "MultiStream is not part of this benchmark"),
        (["--scenario", "Offline", "--no-such-flag"], 2, "--no-such-flag"),
        (["--scenario"], 2, "--scenario"),
        (["--scenario", "Offline", "extra"], 2, "extra"),
        (["--scenario", "Offline", "--total-sample-count", "many"], 2, "many"),
        (["--scenario", "Offline", "--target-qps", "0"], 2, "--target-qps 0"),
        (["--scenario", "Offline", "--engine-arg", "x"], 2, "--engine-arg x"),
        (["--scenario", "Offline", "--config", "none.yaml"], 2, "--config none.yaml"),
        (["--scenario", "Offline", "--engine", "dummy", "--audit-conf", "none"], 2, "--audit-conf none"),
        (["--scenario", "Offline", "--engine", "dummy", "--user-conf", "none"], 2, "--user-conf none"),
        (["--scenario", "Offline", "--engine", "dummy", "--dummy-fault", "boom"], 2, "boom"),
        (["--scenario", "Offline", "--vllm", "--engine", "dummy"], 2, "contradict"),
        (["--scenario", "Offline", "--model-path", "/no/model"], 2, "--model-path /no/model"),
        (["--scenario", "Offline", "--lg-model-name", "llama3.1-8b"], 2, "llama3_1-8b"),
        (["--scenario", "Offline", "--vllm", "--api-server", "http://localhost:8000"], 2, "--api-server"),
        (["--scenario", "Offline", "--engine", "dummy", "--output-log-dir", "/dev/null/run"], 3, "/dev/null/run"),
        (["doctor", "--dataset-path", "none.json"], 3, "none.json"),
        (["doctor", "--no-such-flag"], 2, "--no-such-flag"),
    ],
)
def test_a_users_mistake(arguments: list[str], code: int, words: str, capsys: Capture) -> None:
    assert main.main(arguments) == code
    captured = capsys.readouterr()
    assert words in (captured.err if arguments[:1] != ["doctor"] else captured.err + captured.out)
    assert "Traceback" not in captured.err


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
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(leg_module, "run_leg", fail)
    assert main.main(["--scenario", "Offline", "--engine", "dummy"]) == code
    captured = capsys.readouterr().err
    assert isinstance(error, KeyboardInterrupt) or str(error) in captured
    assert isinstance(error, KeyboardInterrupt | HarnessError) or "\n  fix: " in captured
    assert "Traceback" not in captured


def test_without_a_place_for_temporary_files(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def no_place(*arguments: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/var/tmp']")

    monkeypatch.setattr(leg_module, "run_leg", no_place)
    assert main.main(["--scenario", "Offline", "--engine", "dummy"]) == 4
    assert "fix: set TMPDIR to a directory that can be written" in capsys.readouterr().err


def test_yaml_and_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RunConfig] = []

    class Stop(ExecutionError):
        pass

    def note(config: RunConfig, *_: object) -> None:
        seen.append(config)
        raise Stop("enough")

    monkeypatch.setattr(leg_module, "run_leg", note)
    path = tmp_path / "run.yaml"
    path.write_text("scenario: Server\nengine: dummy\ntarget_qps: 2\n")
    assert main.main(["--config", str(path), "--target-qps", "3", "--accuracy"]) == 4
    assert seen == [RunConfig(scenario="Server", engine="dummy", target_qps=3.0, accuracy=True)]


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


def test_doctor(run_main: Callable[..., Finished], make_dataset: Callable[..., Path]) -> None:
    finished = run_main("doctor", "--dataset-path", make_dataset([1, 2, 3]))
    assert finished.stderr == ""
    lines = {line.split()[1]: line for line in finished.stdout.splitlines()}
    assert lines["LoadGen"].startswith("ok ")
    assert "1 row, longest prompt 3 tokens" in finished.stdout
    assert finished.code == (3 if "MISSING" in finished.stdout else 0)


def test_the_front_door_imports_nothing_heavy() -> None:
    code = "import sys, main; sys.exit(bool({'vllm', 'torch', 'transformers', 'mlperf_loadgen'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_found_under_its_name(name: str) -> None:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    assert found.name == name


def test_an_unknown_command_is_not_found() -> None:
    assert cli.get_command(click.Context(cli), "docter") is None


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
