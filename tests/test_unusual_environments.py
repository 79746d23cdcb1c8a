"""The circumstances of a command do not change its outcome: a closed reader, a full disk, odd letters, signals."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

import pytest

import main
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from scenarios.dispatch import COMMANDS
from tests.conftest import ROOT, StartMain, run_here
from tests.support.processes.patience import finish, until
from tests.support.processes.warm import hear_signals
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.run_commands import USER_CONF, arguments, environment_with_code, progress

DUMMY = ["--engine", "dummy", "--user-conf", "short.conf"]
RUN = ["run", "--scenario", "Server", *DUMMY]
# Each command once, all of them short
CALLS = {
    "ab": ["ab", "a.yaml", "b.yaml", "--rates", "8", "--dry-run"],
    "anchor": ["anchor", "run", "--ledger", "empty"],
    "audit": ["audit", "--test", "output_caching", "--scenario", "Offline", *DUMMY, "--dry-run"],
    "bench": ["bench", *DUMMY, "--dry-run"],
    "campaign": ["campaign", "--config", "campaign.yaml", "--dry-run"],
    "check": ["check", "empty"],
    "compare": ["compare", "run", "run"],
    "curve": ["curve", "--config", "curve.yaml", "--dry-run"],
    "doctor": ["doctor"],
    "gate": ["gate", "run"],
    "init": ["init", "new"],
    "quantize": ["quantize", "--model-path", "empty", "--output", "q", "--scheme", "fp8"],
    "report": ["report", "run"],
    "results": ["results", "."],
    "run": [*RUN, "--dry-run"],
    "signoff": ["signoff", "--scope", "harness", "--ref", "run"],
    "status": ["status", "."],
    "store": ["store", "ingest", "run", "--db", "results.sqlite"],
    "submit": ["submit", "run", "--organisation", "O", "--system-name", "S", "--output", "tree"],
    "tune": ["tune", "--scenario", "Server", *DUMMY, "--dry-run"],
    "verify": ["verify", "run"],
}
CAMPAIGN = "benchmark: llama3.1-8b\nengine: dummy\nuser_conf: short.conf\nscenarios: {Offline: {target_qps: 60}}\n"


@pytest.fixture(scope="module")
def directory_with_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a run and the other inputs of the calls."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "empty").mkdir()
    (folder / "short.conf").write_text(USER_CONF)
    (folder / "campaign.yaml").write_text(CAMPAIGN)
    for name in ("a.yaml", "b.yaml"):
        (folder / name).write_text("engine: dummy\n")
    DummyRuns().copy(folder / "run", "Server")
    return folder


@pytest.fixture(scope="module")
def usual_exit_codes(directory_with_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Return the exit code of each call in a usual environment."""
    folder = tmp_path_factory.mktemp("ordinary")
    shutil.copytree(directory_with_runs, folder, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return {name: main.main(words) for name, words in CALLS.items()}


@contextmanager
def stream_without_reader() -> Iterator[IO[str]]:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        yield stream


@contextmanager
def full() -> Iterator[IO[str]]:
    with Path("/dev/full").open("w") as stream:
        yield stream


@contextmanager
def ascii_only() -> Iterator[IO[str]]:
    with Path(os.devnull).open("w", encoding="ascii") as stream:
        yield stream


OUTPUTS: dict[str, Callable[[], AbstractContextManager[IO[str]]]] = {
    "gone": stream_without_reader,
    "full": full,
    "ascii": ascii_only,
}
PLACES = {"odd": os.fsencode("größe [/b] :x: $(y) 'z'"), "not-utf-8": b"M\xfcller"}


def test_each_command_is_covered() -> None:
    assert set(CALLS) == set(COMMANDS)


@pytest.mark.parametrize(("output", "place"), [("gone", "odd"), ("full", "not-utf-8"), ("ascii", "odd")])
@pytest.mark.parametrize("name", CALLS)
def test_exit_codes_do_not_depend_on_directory_and_output(
    name: str,
    output: str,
    place: str,
    directory_with_runs: Path,
    usual_exit_codes: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = os.fsencode(tmp_path) + b"/" + PLACES[place]
    shutil.copytree(os.fsencode(directory_with_runs), folder)
    monkeypatch.chdir(os.fsdecode(folder))
    with OUTPUTS[output]() as stream:
        monkeypatch.setattr("sys.stdout", stream)
        exit_code = main.main(CALLS[name])
    reported = capsys.readouterr().err
    refused = place == "not-utf-8" and exit_code == 2 and "not UTF-8" in reported
    assert refused or exit_code == usual_exit_codes[name] or (output, exit_code) == ("full", 4), reported
    assert not list(Path.cwd().rglob("*.tmp*"))


# Keys of the responses to programs
RESPONSES = {
    "doctor": {"findings"}, "init": {"directory", "files"}, "report": {"page"}, "store": {"runs"},
    "verify": {"schema_version", "exit_code", "results"},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_json_outputs_state_the_exit_code(
    name: str,
    directory_with_runs: Path,
    usual_exit_codes: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(shutil.copytree(directory_with_runs, tmp_path / "made"))
    finished = run_here(*CALLS[name], "--json")
    assert finished.code == usual_exit_codes[name]
    document = json.loads(finished.stdout)
    if finished.code > 1:
        assert document["error"]["message"]
        return
    response = document if name in ("status", "results") else document["answer"]
    assert response
    assert set(response) == RESPONSES.get(name, set(response))


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_ignored(closed: str, directory_with_runs: Path, usual_exit_codes: dict[str, int]) -> None:
    line = f'exec "{sys.executable}" "{ROOT / "main.py"}" {shlex.join(CALLS["status"])} {closed}'
    done = subprocess.run(["sh", "-c", line], cwd=directory_with_runs, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (usual_exit_codes["status"], "")
    assert bool(done.stdout) == (closed == "2>&-")


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_that_is_not_utf_8_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([*CALLS[name], "--model-path", "M\udcfcller"]) == 2
    assert capsys.readouterr().err.startswith("error: M\\udcfcller: not UTF-8\n  fix: ")


@pytest.mark.parametrize("place", [".", "/", "run"])
@pytest.mark.parametrize("name", ["gate --out", "report --output", "signoff --out", "status --output", "verify --json"])
def test_a_directory_as_output_file_is_refused(
    name: str,
    place: str,
    directory_with_runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(directory_with_runs)
    command, option = name.split()
    assert main.main([*CALLS[command], option, place]) == 3
    reported = capsys.readouterr().err
    assert "cannot be written: Is a directory" in reported
    assert "fix: " in reported


def at_import(name: str, *signals: signal.Signals) -> str:
    """Return code for `environment_with_code`: the process gets signals when it imports a module."""
    kills = "; ".join(f"os.kill(os.getpid(), {int(number)})" for number in signals)
    return f"""
    import os, sys
    class Finder:
        def find_spec(self, name, path, target=None):
            if name == {name!r}:
                {kills}
    sys.meta_path.insert(0, Finder())
    """


@pytest.mark.parametrize("name", ["run", "report"])  # main.py imports each command on one path
def test_each_ending_signal_ends_with_exit_code_130(name: str, tmp_path: Path, start_main: StartMain) -> None:
    code = at_import(f"scenarios.commands.{name}", signal.SIGTERM)
    finished = start_main(*CALLS[name], environment=environment_with_code(tmp_path, in_parent=code)).wait()
    assert (finished.code, finished.stdout) == (130, "")
    assert finished.stderr.strip() == "error: interrupted by SIGTERM"


def test_the_first_of_multiple_signals_is_reported(tmp_path: Path, start_main: StartMain) -> None:
    code = at_import("scenarios.commands.results", signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    finished = start_main("results", environment=environment_with_code(tmp_path, in_parent=code)).wait()
    assert (finished.code, finished.stderr.strip()) == (130, "error: interrupted by SIGHUP")


def test_a_full_disk_behind_the_output_keeps_the_run(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "main.py"), *map(str, arguments("Offline", tmp_path / "run"))]
    with full() as stream:
        done = subprocess.run(words, stdout=stream, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 4
    assert "error: standard output cannot be written: No space left on device" in done.stderr
    assert read_manifest(RunDir(tmp_path / "run").manifest).status == "finished"


def test_a_run_under_nohup_ignores_hangups(tmp_path: Path) -> None:
    out, silent = tmp_path / "run", subprocess.DEVNULL
    words = ["nohup", sys.executable, str(ROOT / "main.py"), *map(str, arguments("Server", out))]
    run = subprocess.Popen(words, stdin=silent, stdout=silent, stderr=silent, preexec_fn=hear_signals)
    until(lambda: progress(out).get("phase") in ("engine", "warm-up", "running"), "the run")
    run.send_signal(signal.SIGHUP)
    finish(run)
    assert run.returncode == 0
