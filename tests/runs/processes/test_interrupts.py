"""Signals end a command at a safe point or without one, and registered work is done once.

Each test starts a process.
"""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from runs.processes import interrupts
from runs.processes.child import run_program
from runs.processes.interrupts import critical, ensured
from runs.processes.listening import listening
from runs.processes.time_limit import OutOfTime, within
from tests.conftest import ROOT
from tests.support.processes.patience import finish
from tests.support.processes.warm import hear_signals

HEAD = """
import os, signal, sys, time
from concurrent.futures import Future
from pathlib import Path
from runs.processes import child, interrupts
from runs.errors import Interrupted
from runs.files.writing import write_atomic
from runs.files.temporary import temporary_folder
from runs.processes.interrupts import critical, ended, ensured, if_abandoned, pause
from runs.processes.interrupts import raise_if_interrupted, wait_for_result
from runs.processes.listening import listening, outcome_stands
from runs.processes.time_limit import within
interrupts.NOTICE_S = 0.2
def send(*numbers):
    for number in numbers or (signal.SIGINT,):
        os.kill(os.getpid(), number)
def say(text):
    os.write(1, f"{text} ".encode())
def compute_for_ever():
    while True:
        sum(range(100))
def job():
"""
TAIL = """
try:
    with listening():
        job()
        say("done")
except Interrupted as error:
    say(error)
    sys.exit(130)
"""
COMPUTES: dict[str, tuple[str, str]] = {
    "nothing is registered": ("send(); compute_for_ever()", ""),
    "what is registered is done, the latest first": (
        """
        with ensured(lambda: say("first")), if_abandoned(lambda error: say(error)), ensured(lambda: say("last")):
            send(signal.SIGTERM, signal.SIGINT)
            compute_for_ever()
        """,
        "last interrupted by SIGTERM first ",
    ),
    "a critical block ends before": (
        """
        with critical():
            send()
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                pass
            say("whole")
        compute_for_ever()
        """,
        "whole ",
    ),
    "no critical block begins after": (
        """
        written = Path(sys.argv[1])
        def look(error):
            before = written.read_text()
            time.sleep(0.2)
            say("stopped" if written.read_text() == before else "went on")
        with if_abandoned(look):
            send()
            while True:
                write_atomic(written, str(time.monotonic()))
        """,
        "stopped ",
    ),
    "an action that hangs, and one that fails": (
        """
        interrupts.ACTION_S = 0.2
        with ensured(lambda: say("done")), ensured(lambda: 1 / 0), if_abandoned(lambda error: time.sleep(600)):
            send()
            compute_for_ever()
        """,
        "done ",
    ),
    "temporary folders and processes": (
        """
        with temporary_folder("x", Path(sys.argv[1])) as folder:
            (folder / "file").touch()
            interrupts.ended = lambda *_: send() or compute_for_ever()
            child.ended = interrupts.ended
            child.run_program(["sh", "-c", "sleep 600 & sleep 600"])
        """,
        "",
    ),
}
WAITS: dict[str, str] = {
    "pause": "pause(600)",
    "a process": "child.run_program(['sh', '-c', 'sleep 600 & sleep 600'])",
    "a process, without pidfd": "del os.pidfd_open; child.run_program(['sleep', '600'])",
    "a future": "wait_for_result(Future())",
    "a limited job": "within(600, compute_for_ever)",
    "after a first one that was not passed on": """
        try:
            pause(600)
        except Interrupted:
            pass
        pause(600)""",
    "though failures are ignored": """
        try:
            pause(600)
        except Exception:
            say("ignored")""",
}


def run(code: str, folder: Path) -> tuple[int, str, str]:
    """Return the exit code, the output and the standard error of a command."""
    text = HEAD + textwrap.indent(textwrap.dedent(code).strip("\n"), "    ") + TAIL
    with subprocess.Popen(
        [sys.executable, "-c", text, folder], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=hear_signals,
    ) as process:  # fmt: skip
        try:
            stdout, stderr = finish(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, stdout, stderr


@pytest.mark.parametrize("name", COMPUTES)
def test_a_command_without_safe_point_is_ended(name: str, tmp_path: Path) -> None:
    code, output = COMPUTES[name]
    place = tmp_path / "place"
    if "folder" in name:
        place.mkdir()
    finished = run(code, place)
    number = "SIGTERM" if "SIGTERM" in output else "SIGINT"
    assert finished == (130, output, f"error: interrupted by {number}\n")
    assert not place.is_dir() or list(place.iterdir()) == []


@pytest.mark.parametrize("name", WAITS)
def test_a_waiting_command_is_interrupted_at_once(name: str, tmp_path: Path) -> None:
    timer = "import threading\nthreading.Timer(0.1, send, [signal.SIGHUP]).start()\ninterrupts.NOTICE_S = 600\n"
    waits = textwrap.indent(textwrap.dedent(WAITS[name]).strip("\n"), "    ")
    finished = run(f"{timer}with if_abandoned(lambda error: say('abandoned')):\n{waits}", tmp_path)
    assert finished == (130, "interrupted by SIGHUP ", "")


def test_a_signal_after_the_outcome_is_ignored(tmp_path: Path) -> None:
    assert run("outcome_stands(); send(); time.sleep(0.3)", tmp_path) == (0, "done ", "")


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    code = "pause(0.1); send(signal.SIGHUP); pause(0.1)"
    text = HEAD + f"    {code}\n" + TAIL
    done = subprocess.run(
        ["nohup", sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, preexec_fn=hear_signals
    )
    assert (done.returncode, done.stdout) == (0, "done ")


def test_handlers_and_descriptors_are_restored() -> None:
    def handlers_and_descriptors() -> tuple[list[object], int]:
        return [signal.getsignal(number) for number in interrupts.ENDING], len(list(Path("/proc/self/fd").iterdir()))

    before = handlers_and_descriptors()
    with listening(), listening():
        pass
    assert handlers_and_descriptors() == before


def test_a_job_beyond_its_limit_is_undone_and_stopped() -> None:
    done: list[str] = []
    stopped = threading.Event()

    def job() -> None:
        with ensured(lambda: done.append("undone")):
            stopped.wait()
        with critical():
            done.append("went on")

    with pytest.raises(OutOfTime, match=r"not done within 0\.05 s"):
        within(0.05, job)
    stopped.set()
    time.sleep(0.1)
    assert done == ["undone"]


def test_an_inner_limit_does_not_replace_the_outer_one() -> None:
    assert within(600, lambda: within(0, lambda: 1)) == 1
    with pytest.raises(ZeroDivisionError):
        within(600, lambda: 1 / 0)


def test_the_output_of_a_program_is_returned_at_its_end() -> None:
    script = 'read line; echo "$line"; echo error >&2; exit 3'
    done = run_program(["sh", "-c", script], message=b"said\n", timeout_s=600)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"said\n", b"error\n")
    with pytest.raises(subprocess.TimeoutExpired):
        run_program(["sh", "-c", "sleep 600 & sleep 600"], timeout_s=0.1)
    with pytest.raises(FileNotFoundError):
        run_program(["no such program"])


def test_a_script_removes_its_temporary_folder_at_a_signal(tmp_path: Path) -> None:
    code = """
    from scripts.program import exit_code_of
    def work():
        with temporary_folder("x", Path(sys.argv[1])):
            send(signal.SIGTERM)
            compute_for_ever()
    """
    text = HEAD.removesuffix("def job():\n") + textwrap.dedent(code) + "sys.exit(exit_code_of(work, 'as it was'))"
    command = [sys.executable, "-c", text, tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, preexec_fn=hear_signals)
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (130, "as it was\n", [])
