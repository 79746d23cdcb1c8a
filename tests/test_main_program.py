"""main.py: any Python, exit codes, no traceback for a mistake of the user, and Ctrl-C before a command has begun."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runs.errors import Ending, ExecutionError, Interrupted, SetupError
from runs.harness import HARNESS_VERSION
from scenarios.launch import parent as run_module
from scenarios.launch.run_config import RunConfig
from tests.conftest import ROOT, Finished, RunMain, StartMain, run_here
from tests.support.runs.run_commands import arguments, environment_with_code

BARE_PYTHON = [str(sys._base_executable), "-S"]  # type: ignore[attr-defined] # no package is found by it


def run_without_packages(folder: Path, *arguments: str) -> Finished:
    """Run a copy of main.py with a Python that has only the standard library."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*BARE_PYTHON, str(folder / "main.py"), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copy(ROOT / "main.py", folder)
    return folder


def test_a_missing_environment_is_refused_with_the_command_to_create_it(checkout: Path) -> None:
    finished = run_without_packages(checkout, "--scenario", "Server", "--vllm")
    assert (finished.code, finished.stdout) == (3, "")
    first, second = finished.stderr.splitlines()
    assert first.startswith("error: ")
    assert first.endswith("package click is missing")
    assert second == f"  fix: make -C {checkout} setup"


def test_a_checkout_continues_in_its_environment(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    python.chmod(0o755)
    finished = run_without_packages(checkout, "--scenario", "a b")
    assert (finished.code, finished.stdout) == (7, f"{checkout}/main.py --scenario a b\n")
    assert finished.stderr.count("\n") == 1
    assert f"continuing with {python}" in finished.stderr


def test_an_environment_without_packages_does_not_start_itself(checkout: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(checkout / ".venv")], check=True)
    python = checkout / ".venv" / "bin" / "python"
    done = subprocess.run([str(python), "-S", str(checkout / "main.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert f"make -C {checkout} clean setup" in done.stderr


def test_a_damaged_environment_is_an_error_without_traceback(tmp_path: Path, run_main: RunMain) -> None:
    code = """
    import sys
    class Finder:
        def find_spec(self, name, path, target=None):
            if name == "pydantic_core":
                raise ImportError("libfoo.so: cannot open shared object file")
    sys.meta_path.insert(0, Finder())
    """
    finished = run_main("--scenario", "Offline", environment=environment_with_code(tmp_path, in_parent=code))
    assert (finished.code, finished.stdout) == (3, "")
    assert "import failed: libfoo.so: cannot open shared object file\n  fix: make -C" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_safe_path_python_finds_the_packages(run_main: RunMain) -> None:
    finished = run_main("--version", environment={"PYTHONSAFEPATH": "1"})
    assert (finished.code, finished.stderr) == (0, "")


def test_an_old_python_can_parse_the_main_program() -> None:
    tree = ast.parse((ROOT / "main.py").read_text(), feature_version=(3, 7))
    imported = {
        name.name.partition(".")[0] for node in tree.body if isinstance(node, ast.Import) for name in node.names
    }
    assert imported == {"os", "signal", "sys"}  # further imports would delay the handling of signals


@pytest.mark.parametrize("module", ["click", "pydantic", "scenarios.dispatch"])
def test_an_interrupt_during_imports_ends_with_exit_code_130(
    module: str, tmp_path: Path, start_main: StartMain
) -> None:
    code = f"""
    import os, signal, sys
    class Finder:
        def find_spec(self, name, path, target=None):
            if name == {module!r} and sys._getframe(1).f_code.co_name != "find_spec":
                os.kill(os.getpid(), signal.SIGINT)
    sys.meta_path.insert(0, Finder())
    """
    finished = start_main("--scenario", "Offline", environment=environment_with_code(tmp_path, in_parent=code)).wait()
    assert (finished.code, finished.stdout) == (130, "")
    assert finished.stderr == "error: interrupted by SIGINT\n"


def test_non_ascii_names_are_printed_in_each_locale(tmp_path: Path) -> None:
    out = tmp_path / "ö"
    done = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), *map(str, arguments("Offline", out, "--dry-run"))],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}, cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(out) in done.stdout.decode()


def test_the_help_is_printed_in_any_working_directory(run_main: RunMain) -> None:
    finished = run_main("--help")
    assert finished.code == 0
    assert "doctor" in finished.stdout
    assert "run" in finished.stdout


def test_the_version_is_printed() -> None:
    assert run_here("--version").stdout.split()[-1] == HARNESS_VERSION


@pytest.mark.parametrize("arguments", [["run"], ["--scenario", "Server"]])
def test_the_help_of_a_command_is_complete(arguments: list[str]) -> None:
    text = run_here(*arguments, "--help").stdout
    assert "Exit codes: 0 VALID, or the accuracy targets are met" in " ".join(text.split())
    assert "--scenario" in text
    assert "Examples:" in text
    text = run_here(*arguments, "--help-all").stdout
    everything = ("--config", *("--" + name.replace("_", "-") for name in RunConfig.model_fields))
    assert all(f" {flag} " in text for flag in everything)


def test_a_missing_file_is_refused_with_a_fix() -> None:
    finished = run_here("--scenario", "Offline", "--engine", "dummy", "--user-conf", "none")
    first = "error: cannot read --user-conf none: No such file or directory"
    assert (finished.code, finished.stderr) == (2, f"{first}\n  fix: give a readable file\n")


NO_PLACE = FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/var/tmp']")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ExecutionError("engine died"), 4),
        (SetupError("no engine"), 3),
        (Interrupted("interrupted by SIGTERM"), 130),
        (OSError(28, "No space left on device"), 4),
        (NO_PLACE, 4),
        (MemoryError(), 4),
        (ImportError("libfoo.so: cannot open shared object file"), 3),
        (KeyError("a fault of ours"), 4),  # never 1, which is a verdict
    ],
)
def test_each_error_has_its_exit_code(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(run_module, "execute_run", fail)
    finished = run_here("--scenario", "Offline", "--engine", "dummy")
    assert finished.code == code
    assert str(error) in finished.stderr
    assert isinstance(error, Ending) or "\n  fix: " in finished.stderr
    assert "Traceback" not in finished.stderr
    assert ("fix: set TMPDIR to a writable directory" in finished.stderr) == (error is NO_PLACE)


def test_the_main_program_imports_no_large_packages() -> None:
    code = "import sys, main; sys.exit(bool({'vllm', 'torch', 'transformers', 'mlperf_loadgen'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, check=False)
    assert done.returncode == 0


def test_a_run_starts_before_unneeded_modules_are_imported() -> None:
    code = """
import sys, main, scenarios.launch.parent, scenarios.launch.supervisor
class Enough(SystemExit): pass
def start(self): raise Enough
scenarios.launch.supervisor.EarlyRun.__enter__ = start
try:
    main.main(["--scenario", "Offline", "--engine", "dummy"])
except Enough:
    late = {"nltk", "rouge_score", "transformers", "scenarios.launch.plan", "scenarios.commands.tune"}
    late.add("compliance.signoff")
    sys.exit(len(late & set(sys.modules)))
sys.exit(-1)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, check=False)
    assert done.returncode == 0


def test_messages_name_the_program_as_it_was_started() -> None:
    typed = [sys.executable, "../" + ROOT.name + "/main.py"]
    done = subprocess.run([*typed, "verify"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"\n  fix: see `{' '.join(typed)} verify --help`\n" in done.stderr
