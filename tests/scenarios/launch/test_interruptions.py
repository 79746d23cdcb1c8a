"""Runs that are interrupted, killed or stopped: no process remains."""

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from runs.attestation.attestation import broken_files, read_attestation
from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.record.requests_log import read_request_table
from tests.conftest import RunMain, StartedMain, StartMain
from tests.support.processes.patience import until
from tests.support.runs.run_commands import (
    LONG_USER_CONF,
    SLOW_START,
    arguments,
    check_failed,
    environment_with_code,
    processes_of_group,
    progress,
    run_pid,
)

# A process of the engine and a file in its temporary directory, as of vLLM. Files name both.
ENGINE_PROCESS = """
import os, pathlib, subprocess
from sut.dummy.dummy_engine import DummyEngine
start = DummyEngine.start
async def start_with_process(self):
    process = subprocess.Popen(["sleep", "600"])
    pathlib.Path({path!r}).write_text(str(process.pid))
    socket = pathlib.Path(os.environ["TMPDIR"], "socket")
    socket.touch()
    pathlib.Path({path!r} + "-socket").write_text(str(socket))
    return await start(self)
DummyEngine.start = start_with_process
"""


# Signals ------------------------------------------------------------------------------------------------------------


def started_until(
    phase: str, start_main: StartMain, out: Path, environment: dict[str, str], *, anew: bool = False
) -> StartedMain:
    """Start a long run and wait for a phase. In the running phase, some queries are complete."""
    started = start_main(*arguments("Server", out, conf=LONG_USER_CONF), environment=environment, anew=anew)
    until(lambda: progress(out).get("phase") == phase, f"phase {phase}")
    if phase == "running":
        until(lambda: progress(out)["completed"] > 0, "completed queries")
    return started


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("engine", signal.SIGTERM),
        ("running", signal.SIGINT),
        ("running", signal.SIGHUP),
    ],
)
def test_a_signal_interrupts_each_phase_of_a_run(
    phase: str, number: signal.Signals, start_main: StartMain, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    environment = environment_with_code(tmp_path, in_run=SLOW_START) if phase == "engine" else {}
    started = started_until(phase, start_main, out, environment, anew=True)
    started.process.send_signal(number)
    check_failed(started.wait(), out, ExitCode.INTERRUPTED, f"interrupted by {number.name}")
    assert progress(out)["error"]["message"] == "stopped by SIGTERM"  # the run was asked to end before it was killed


def test_a_signal_to_the_run_process_during_imports_interrupts_the_run(run_main: RunMain, tmp_path: Path) -> None:
    """A signal to all processes of a batch job may reach the run first."""
    end = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)"
    finished = run_main(
        *arguments("Offline", tmp_path / "run"), environment=environment_with_code(tmp_path, in_run=end)
    )
    check_failed(finished, tmp_path / "run", ExitCode.INTERRUPTED, "the run's process was ended by SIGTERM")


def test_a_signal_during_the_attestation_ends_the_run_after_it(run_main: RunMain, tmp_path: Path) -> None:
    code = """
    import os, signal
    from runs.attestation import statements
    write = statements.attest
    def attest(*arguments, **more):
        os.kill(os.getpid(), signal.SIGTERM)
        return write(*arguments, **more)
    statements.attest = attest
    """
    finished = run_main(
        *arguments("Offline", tmp_path / "run"), environment=environment_with_code(tmp_path, in_parent=code)
    )
    run = RunDir(tmp_path / "run")
    assert finished.code == ExitCode.INTERRUPTED, finished.stderr
    assert read_manifest(run.manifest).status == "finished"
    assert list(broken_files(run, read_attestation(run))) == []


def socket_of(engine: Path) -> Path:
    return Path(engine.with_name(f"{engine.name}-socket").read_text())


def test_a_killed_run_process_fails_the_run(start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    engine = tmp_path / "engine-pid"
    started = started_until(
        "running", start_main, out, environment_with_code(tmp_path, in_run=ENGINE_PROCESS.format(path=str(engine)))
    )
    assert int(engine.read_text()) in processes_of_group(run_pid(out))
    (out / ".progress.json.1.tmp").write_text("half a heart")  # as after a writer that was killed
    os.kill(run_pid(out), signal.SIGKILL)
    check_failed(started.wait(), out, ExitCode.FAILED, "killed by SIGKILL")
    assert len(read_request_table(RunDir(out).requests)) > 0  # completed requests are kept
    assert not socket_of(engine).parent.exists()


def test_a_killed_parent_leaves_no_process(start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    engine = tmp_path / "engine-pid"
    started = started_until(
        "running", start_main, out, environment_with_code(tmp_path, in_run=ENGINE_PROCESS.format(path=str(engine)))
    )
    group = run_pid(out)
    assert set(processes_of_group(group)) == {group, int(engine.read_text())}
    assert socket_of(engine).exists()
    started.process.kill()
    started.process.wait()
    until(lambda: not processes_of_group(group), "the end of the run's processes")
    until(lambda: not socket_of(engine).parent.exists(), "the removal of the run's temporary directory")
    # No process was left to close it, and there is no result
    assert read_manifest(RunDir(out).manifest).status == "running"
    assert not RunDir(out).result.exists()


def test_a_stopped_run_process_fails_the_run(start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    environment = environment_with_code(
        tmp_path, in_parent="import scenarios.launch.supervisor\nscenarios.launch.supervisor.SILENCE_RUNNING_S = 8.0"
    )
    started = started_until("running", start_main, out, environment)
    os.kill(run_pid(out), signal.SIGSTOP)
    finished = started.wait()
    check_failed(finished, out, ExitCode.FAILED, "wrote no heartbeat for ")
    assert "(phase running)" in finished.stderr
    assert int(re.findall(r"wrote no heartbeat for (\d+) s", finished.stderr)[0]) >= 8


def test_a_signal_interrupts_a_run_without_its_guardian(start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    started = started_until("running", start_main, out, {})
    guardians = [
        child for child in psutil.Process(started.process.pid).children() if child.cmdline()[:1] == ["/bin/sh"]
    ]
    assert len(guardians) == 1
    guardians[0].kill()
    group = run_pid(out)
    started.process.send_signal(signal.SIGTERM)
    check_failed(started.wait(), out, ExitCode.INTERRUPTED, "interrupted by SIGTERM")
    assert not processes_of_group(group)
