"""What goes wrong in a leg: it ends soon, with the right exit code, a message that names the cause, and no claim."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import main
from runs.errors import ExitCode, Interrupted
from runs.layout import RunDir
from runs.manifest import read_manifest
from runs.requests_log import read_requests
from scenarios.supervisor import signals_held, signals_raise
from tests.conftest import Finished, StartedMain
from tests.scenarios.legs import (
    LONG_USER_CONF,
    alive,
    arguments,
    check_claims_nothing,
    check_failed,
    leg_pid,
    patched,
    progress,
    until,
)

RunMain = Callable[..., Finished]
StartMain = Callable[..., StartedMain]

SLOW_START = """
import asyncio
from sut.dummy_engine import DummyEngine
async def start(self):
    await asyncio.sleep(60)
DummyEngine.start = start
"""

# A process of the engine's, as vLLM has them; its id is left in a file.
ENGINE_PROCESS = """
import pathlib, subprocess
from sut.dummy_engine import DummyEngine
start = DummyEngine.start
async def start_with_process(self):
    process = subprocess.Popen(["sleep", "600"])
    pathlib.Path({path!r}).write_text(str(process.pid))
    return await start(self)
DummyEngine.start = start_with_process
"""


@pytest.fixture
def run_main(start_main: StartMain) -> RunMain:
    """Runs `main.py ARGUMENTS…`; a leg that fails has to end within 30 s."""
    return lambda *arguments, **more: start_main(*arguments, **more).wait(30)


# Faults of the engine -----------------------------------------------------------------------------------------------

FAULTS = {
    "start": (ExitCode.REFUSED, "asked not to start"),
    "raise@5": (ExitCode.FAILED, "submit raised at query 5"),
    "fail@5": (ExitCode.FAILED, "query 5 failed in the engine"),
    "die@5": (ExitCode.FAILED, "the dummy engine died"),
    "swallow@5": (ExitCode.FAILED, "watchdog: 1 of"),
    "twice@5": (ExitCode.FAILED, "(query 5) twice"),
    "empty@5": (ExitCode.FAILED, "no tokens for sample"),
    "freeze@5": (ExitCode.FAILED, "watchdog: "),
}
QUICK_LOOK = ("start", "raise@5", "die@5", "twice@5")  # for swallow and freeze the watchdog has to wait
IN_SERVER_ALL_AGAIN = pytest.mark.parametrize("scenario", ["Offline", pytest.param("Server", marks=pytest.mark.slow)])


@IN_SERVER_ALL_AGAIN
@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.slow] * (fault not in QUICK_LOOK)) for fault in FAULTS]
)
def test_engine_fault(fault: str, scenario: str, run_main: RunMain, tmp_path: Path) -> None:
    code, cause = FAULTS[fault]
    out = tmp_path / "run"
    finished = run_main(*arguments(scenario, out, "--dummy-fault", fault, "--stall-timeout-s", 3, "--dummy-ttft-ms", 2))
    manifest = check_failed(finished, out, code, cause)
    assert manifest.asked["dummy_fault"] == [fault]
    assert RunDir(out).requests.exists() == (fault != "start")


@pytest.mark.slow
def test_fault_in_an_accuracy_leg(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = run_main(*arguments("SingleStream", out, "--accuracy", "--dummy-fault", "fail@40"))
    check_failed(finished, out, ExitCode.FAILED, "query 40 failed")
    assert not RunDir(out).accuracy_text.exists()
    assert len(read_requests(RunDir(out).requests)) == 40  # what was answered before is kept


@pytest.mark.slow
def test_engine_that_is_never_ready(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = run_main(
        *arguments("Server", out, "--engine-start-timeout-s", 0.5), environment=patched(tmp_path, in_leg=SLOW_START)
    )
    check_failed(finished, out, ExitCode.REFUSED, "the engine was not ready after 0.5 s")


@pytest.mark.parametrize(
    ("code", "cause", "patch"),
    [
        (ExitCode.REFUSED, "prefix caching on, though it was not asked to", """
            from sut.dummy_engine import DummyEngine
            from sut.engine import EngineReport
            async def start(self):
                return EngineReport("dummy", prefix_caching=True)
            DummyEngine.start = start
            """),
        (ExitCode.FAILED, "prompt tokens from a cache across queries", """
            from sut.loadgen_sut import LoadgenSut
            complete = LoadgenSut.complete
            LoadgenSut.complete = lambda self, request, ids, reason, cached: complete(self, request, ids, reason, 16)
            """),
    ],
    ids=["asked-in-vain", "found-out"],
)  # fmt: skip
def test_caching_that_was_not_asked_for(
    code: ExitCode, cause: str, patch: str, run_main: RunMain, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    finished = run_main(*arguments("Server", out, "--accuracy"), environment=patched(tmp_path, in_leg=patch))
    check_failed(finished, out, code, cause)


# Exceptions in LoadGen's callbacks ----------------------------------------------------------------------------------


INSIDE = {
    "issue_queries": """
        from sut.loadgen_sut import LoadgenSut
        class Loop:
            def call_soon_threadsafe(self, *arguments):
                raise ValueError("raised in issue_queries")
        make = LoadgenSut.__init__
        def make_with_raising_loop(self, *arguments, **more):
            make(self, *arguments, **more)
            self._loop = Loop()
        LoadgenSut.__init__ = make_with_raising_loop
        """,
    **{
        callback: f"""
        from qsl.sample_library import SampleLibrary
        class Loaded(set):
            def {method}(self, indices):
                raise ValueError("raised in {callback}")
        make = SampleLibrary.__init__
        def make_with_raising_set(self, *arguments, **more):
            make(self, *arguments, **more)
            self.loaded = Loaded()
        SampleLibrary.__init__ = make_with_raising_set
        """
        for callback, method in (("load", "update"), ("unload", "difference_update"))
    },
}


@IN_SERVER_ALL_AGAIN
@pytest.mark.parametrize("callback", INSIDE)
def test_exception_inside_a_callback(callback: str, scenario: str, run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    environment = patched(tmp_path, in_leg=INSIDE[callback])
    finished = run_main(*arguments(scenario, out, "--dummy-ttft-ms", 2), environment=environment)
    check_failed(finished, out, ExitCode.FAILED, f"raised in {callback}", loadgen_finished=callback == "unload")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["Offline", "Server"])
@pytest.mark.parametrize(
    ("callback", "module", "owner"),
    [
        ("issue_queries", "sut.loadgen_sut", "LoadgenSut"),
        ("flush_queries", "sut.loadgen_sut", "LoadgenSut"),
        ("load", "qsl.sample_library", "SampleLibrary"),
        ("unload", "qsl.sample_library", "SampleLibrary"),
    ],
)
def test_exception_that_reaches_loadgen(
    callback: str, module: str, owner: str, scenario: str, run_main: RunMain, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    environment = patched(
        tmp_path,
        in_leg=f"""
        from {module} import {owner}
        def raising(self, *arguments):
            raise ValueError("raised in {callback}")
        {owner}.{callback} = raising
        """,
    )
    finished = run_main(*arguments(scenario, out, "--dummy-ttft-ms", 2), environment=environment)
    # An exception leaves LoadGen half open, and it may crash before the leg can say why.
    crashed = "killed by SIG" in finished.stderr
    cause = "killed by SIG" if crashed else f"raised in {callback}"
    check_failed(finished, out, ExitCode.FAILED, cause, loadgen_finished=callback == "unload")


# Signals ------------------------------------------------------------------------------------------------------------


def started_until(phase: str, start_main: StartMain, out: Path, environment: dict[str, str]) -> StartedMain:
    """A long leg that has reached a phase; in the running phase, with some queries done."""
    started = start_main(*arguments("Server", out, conf=LONG_USER_CONF), environment=environment)
    until(lambda: progress(out).get("phase") == phase, f"phase {phase}")
    if phase == "running":
        until(lambda: progress(out)["completed"] > 0, "completed queries")
    return started


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("engine", signal.SIGTERM),
        ("running", signal.SIGINT),
        pytest.param("engine", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("running", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("running", signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_interrupted(phase: str, number: signal.Signals, start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    environment = patched(tmp_path, in_leg=SLOW_START) if phase == "engine" else {}
    started = started_until(phase, start_main, out, environment)
    started.process.send_signal(number)
    check_failed(started.wait(30), out, ExitCode.INTERRUPTED, f"interrupted by {number.name}")
    assert progress(out)["error"]["message"] == "stopped by SIGTERM"  # the leg was asked before it was killed


@pytest.mark.slow
def test_interrupted_again_and_again(start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    started = started_until("running", start_main, out, {})
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        started.process.send_signal(number)
    check_failed(started.wait(30), out, ExitCode.INTERRUPTED, "interrupted by SIG")


@pytest.mark.slow
def test_child_asked_to_stop(start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    started = started_until("running", start_main, out, {})
    os.kill(leg_pid(out), signal.SIGTERM)
    check_failed(started.wait(30), out, ExitCode.INTERRUPTED, "stopped by SIGTERM")


def test_child_killed(start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    engine = tmp_path / "engine-pid"
    started = started_until(
        "running", start_main, out, patched(tmp_path, in_leg=ENGINE_PROCESS.format(path=str(engine)))
    )
    assert int(engine.read_text()) in alive(leg_pid(out))
    (out / ".progress.json.1.tmp").write_text("half a heart")  # as a writer leaves it that is killed while writing
    os.kill(leg_pid(out), signal.SIGKILL)
    check_failed(started.wait(30), out, ExitCode.FAILED, "killed by SIGKILL")
    assert len(read_requests(RunDir(out).requests)) > 0  # what was done is kept


def test_parent_killed(start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    engine = tmp_path / "engine-pid"
    started = started_until(
        "running", start_main, out, patched(tmp_path, in_leg=ENGINE_PROCESS.format(path=str(engine)))
    )
    group = leg_pid(out)
    assert set(alive(group)) == {group, int(engine.read_text())}
    started.process.kill()
    started.process.wait()
    until(lambda: not alive(group), "the end of the leg's processes", 10)
    assert read_manifest(RunDir(out).manifest).status == "running"  # nobody was left to close it; no result either
    assert not RunDir(out).result.exists()


@pytest.mark.slow
def test_child_stopped(start_main: StartMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    environment = patched(
        tmp_path, in_parent="import scenarios.supervisor\nscenarios.supervisor.SILENCE_RUNNING_S = 3.0"
    )
    started = started_until("running", start_main, out, environment)
    os.kill(leg_pid(out), signal.SIGSTOP)
    check_failed(started.wait(30), out, ExitCode.FAILED, "no sign of life for 3 s (phase running)")


@pytest.mark.slow
def test_engine_processes_end_with_a_good_leg(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    engine = tmp_path / "engine-pid"
    finished = run_main(
        *arguments("Offline", out, "--dummy-ttft-ms", 2, "--accuracy"),
        environment=patched(tmp_path, in_leg=ENGINE_PROCESS.format(path=str(engine))),
    )
    assert finished.code == 0, finished.stderr
    assert engine.exists()
    assert alive(leg_pid(out)) == []


def test_a_signal_waits_while_a_process_is_started() -> None:
    done = []

    def start() -> None:
        with signals_raise():
            with signals_held():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("the block")
            done.append("what follows")

    with pytest.raises(Interrupted, match="SIGTERM"):
        start()
    assert done == ["the block"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_only_the_first_signal_raises() -> None:
    cleaned_up = []

    def work() -> None:
        with signals_raise():
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                with signals_held():
                    os.kill(os.getpid(), signal.SIGHUP)
                cleaned_up.append(True)

    with pytest.raises(Interrupted, match="SIGINT"):
        work()
    assert cleaned_up == [True]


# A process that ends without a word ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "cause"),
    [
        ("os._exit(7)", "ended with code 7 and named no cause"),
        ("os._exit(0)", "ended before it was done"),
        ("os.abort()", "killed by SIGABRT"),
    ],
)
@pytest.mark.slow
def test_silent_end(patch: str, cause: str, run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = run_main(*arguments("Offline", out), environment=patched(tmp_path, in_leg=f"import os\n{patch}"))
    check_failed(finished, out, ExitCode.FAILED, cause)


# Full disk ----------------------------------------------------------------------------------------------------------


def test_a_file_cannot_grow(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    environment = patched(
        tmp_path, in_leg="import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))"
    )
    finished = run_main(*arguments("Server", out), environment=environment)
    check_failed(finished, out, ExitCode.FAILED, "File too large")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, just large enough for a leg to start."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=70m", "tmpfs", str(folder)], capture_output=True, check=False
    ).returncode  # fmt: skip
    if not mounted:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
def test_full_disk(small_disk: Path, start_main: StartMain, tmp_path: Path) -> None:
    out = small_disk / "run"
    started = start_main(*arguments("Server", out, conf=LONG_USER_CONF))
    until(lambda: progress(out).get("completed", 0) > 0, "completed queries")
    with (small_disk / "ballast").open("wb", buffering=0) as ballast:
        block = bytes(4096)
        try:
            while True:
                ballast.write(block)
        except OSError:
            pass
        finished = started.wait(30)
    assert finished.code == ExitCode.FAILED
    assert "Traceback" not in finished.stderr
    assert f"error: the disk of {out} is full" in finished.stderr
    assert not RunDir(out).result.exists()
    assert read_manifest(RunDir(out).manifest).status == "running"  # no room for another word
    check_claims_nothing(finished, out)


@pytest.mark.slow
def test_disk_with_too_little_space(small_disk: Path, run_main: RunMain) -> None:
    (small_disk / "ballast").write_bytes(bytes(10 << 20))
    out = small_disk / "run"
    finished = run_main(*arguments("Server", out))
    assert finished.code == ExitCode.REFUSED
    assert f"{small_disk} has 59 MiB free" in finished.stderr
    assert not out.exists()


# Damaged input ------------------------------------------------------------------------------------------------------


def test_truncated_data_set(
    make_dataset: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_dataset([1, 2, 3], [4, 5, 6])
    path.write_bytes(path.read_bytes()[:-20])
    out = tmp_path / "run"
    code = main.main([*map(str, arguments("Offline", out, "--dataset-path", path))])
    assert code == ExitCode.BAD_INPUT
    assert str(path) in capsys.readouterr().err
    assert not out.exists()


def test_damaged_user_conf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    conf = "*.Offline.min_duration = 10\n*.Offline.target_qps=1\n"
    code = main.main([*map(str, arguments("Offline", out, conf=conf))])
    assert code == ExitCode.BAD_INPUT
    assert f"{tmp_path}/run-user.conf:2: " in capsys.readouterr().err
    assert not out.exists()
