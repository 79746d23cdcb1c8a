"""A run on a terminal, as a user sees it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.progress import Progress, read_progress
from tests.conftest import ROOT
from tests.support.processes.patience import until
from tests.support.runs.run_commands import LONG_USER_CONF, arguments, processes_of_group, run_pid
from tests.support.terminals.terminal_process import TerminalProcess

MAIN = ROOT / "main.py"
STEPS = "engine › warm-up › timed run"
COLOR = re.compile(rb"\x1b\[(?:\d+;)*(?:3|4|9|10)\d[;m]")

# A process group in the background of its terminal. The parent stays in the foreground.
IN_BACKGROUND = """
import os, sys
child = os.fork()
if not child:
    os.setpgid(0, 0)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
_, status = os.waitpid(child, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else f"exit code {os.waitstatus_to_exitcode(status)}")
"""

Start = Callable[..., TerminalProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts Python with arguments on a terminal."""
    started: list[TerminalProcess] = []

    def on_terminal(
        *command: object, columns: int = 80, rows: int = 24, environment: dict[str, str] | None = None
    ) -> TerminalProcess:
        started.append(TerminalProcess(command, tmp_path, columns, rows, environment))
        return started[-1]

    yield on_terminal
    for process in started:
        process.close()


def started_run(start: Start, out: Path, columns: int = 80, rows: int = 24) -> TerminalProcess:
    """Start a run of ten minutes, and wait for a block with percentiles."""
    terminal = start(MAIN, *arguments("Server", out, conf=LONG_USER_CONF), columns=columns, rows=rows)
    until(lambda: "p50 " in terminal.screen.text, "a block with a percentile")
    return terminal


def stopped_at(out: Path, terminal: TerminalProcess) -> Progress:
    """Stop the process of a run; return its last heartbeat when the terminal shows it."""
    os.kill(run_pid(out), signal.SIGSTOP)
    progress = read_progress(RunDir(out).progress)
    assert progress is not None
    until(lambda: f"{progress.completed:,} of {progress.expected:,} samples" in terminal.screen.text, "the last block")
    return progress


@pytest.mark.parametrize("columns", [80, 200])
def test_a_block_has_the_values_of_progress_json_until_ctrl_c_removes_it(
    columns: int, start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    terminal = started_run(start, out, columns)
    progress = stopped_at(out, terminal)
    shown = "\n".join(terminal.screen.lines)
    assert f"completed {progress.samples_per_second:,.2f}/s" in shown
    assert re.search(rf"(?m)^open  {progress.outstanding} ", shown)
    assert re.search(r"(?m)^TTFT  p50 \S+ ms", shown)
    assert STEPS in shown
    assert terminal.screen.is_cursor_on_an_empty_line
    os.kill(run_pid(out), signal.SIGCONT)

    terminal.type("\x03")
    assert terminal.wait() == ExitCode.INTERRUPTED
    assert STEPS not in terminal.screen.text
    assert terminal.screen.text.count("error: interrupted by SIGINT") == 1
    assert terminal.screen.text.count("run directory") == 1
    assert terminal.screen.is_cursor_visible
    assert terminal.screen.is_cursor_on_an_empty_line


def test_a_smaller_terminal_shows_a_smaller_block(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "run"
    terminal = started_run(start, out, columns=200, rows=10)
    assert all(len(frame) <= 10 for frame in terminal.frames)
    assert STEPS in terminal.screen.text
    terminal.resize(60, 10)
    seen = len(terminal.frames)
    until(lambda: any("step 3 of 5: timed run" in frame for frame in terminal.frames[seen:]), "a narrow block")
    assert terminal.screen.text.count("step 3 of 5") == 1
    assert terminal.screen.text.count("run directory") == 1


def test_the_death_of_the_run_leaves_the_error_and_no_block(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "run"
    terminal = started_run(start, out)
    os.kill(run_pid(out), signal.SIGKILL)
    assert terminal.wait() == ExitCode.FAILED
    assert "error: the run's process was killed by SIGKILL" in terminal.screen.text
    assert STEPS not in terminal.screen.text
    assert terminal.screen.is_cursor_on_an_empty_line


def test_a_killed_command_leaves_a_usable_terminal(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "run"
    terminal = started_run(start, out)
    pid = run_pid(out)
    terminal.process.kill()
    until(lambda: not processes_of_group(pid), "the end of the run")
    assert terminal.screen.is_cursor_visible
    assert terminal.screen.is_cursor_on_an_empty_line


def test_a_finished_run_leaves_its_summary_once(start: Start, tmp_path: Path) -> None:
    terminal = start(MAIN, *arguments("Server", tmp_path / "run"))
    assert terminal.wait() == ExitCode.OK
    frames = ["\n".join(frame) for frame in terminal.frames]
    assert any("checking the result" in frame for frame in frames)
    assert len(re.findall(r"(?m)^Server performance: VALID", terminal.screen.text)) == 1, terminal.screen.text
    assert STEPS not in terminal.screen.text
    assert not terminal.screen.history


@pytest.mark.parametrize(("environment", "has_codes"), [({"NO_COLOR": "1"}, True), ({"TERM": "dumb"}, False)])
def test_colors_can_be_turned_off(environment: dict[str, str], has_codes: bool, start: Start, tmp_path: Path) -> None:
    terminal = start(MAIN, *arguments("Server", tmp_path / "run"), environment=environment)
    assert terminal.wait() == ExitCode.OK
    assert not COLOR.search(terminal.output)
    assert (b"\x1b[" in terminal.output) == has_codes


def test_a_file_gets_no_control_characters(tmp_path: Path) -> None:
    command = [sys.executable, MAIN, *arguments("Server", tmp_path / "run")]
    finished = subprocess.run(
        map(str, command), cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    assert b"tokens/s" in finished.stdout
    for output in (finished.stdout, finished.stderr):
        assert re.findall(rb"[\x00-\x09\x0b-\x1f\x7f]", output) == []


def test_a_background_job_is_not_stopped_and_shows_no_block(start: Start, tmp_path: Path) -> None:
    terminal = start("-c", IN_BACKGROUND, MAIN, *arguments("Server", tmp_path / "run"))
    assert terminal.wait() == 0
    assert "exit code 0" in terminal.screen.text
    assert not any(STEPS in "\n".join(frame) for frame in terminal.frames)
    assert "VALID" in terminal.screen.text


def test_status_shows_the_block_of_another_process(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = started_run(start, out)
    status = start(MAIN, "status", tmp_path, "--watch", "--interval", "0.3")
    until(lambda: "max " in status.screen.text, "a block with a history")
    progress = stopped_at(out, status)
    assert "running     Server performance" in status.screen.text
    assert f"completed {progress.samples_per_second:,.2f}/s" in status.screen.text
    os.kill(run_pid(out), signal.SIGCONT)
    run.type("\x03")
    run.wait()
    assert status.wait() == ExitCode.INTERRUPTED
    assert STEPS not in status.screen.text
    assert status.screen.text.count("interrupted Server performance") == 1
