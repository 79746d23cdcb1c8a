"""The lines that a person sees of a running leg."""

import io
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from runs.record.progress import Progress
from scenarios.leg.display import Display, LogTail, progress_lines, time_to_go_s
from tests.conftest import PATIENCE_S, ROOT
from tests.support.legs import until


def server(**more: object) -> Progress:
    values: dict[str, object] = {
        "phase": "running", "time_ns": 1, "pid": 1, "scenario": "Server", "mode": "performance", "expected": 13_368,
        "issued": 3_400, "completed": 3_342, "output_tokens": 300_000, "elapsed_s": 150.0, "min_duration_s": 600.0,
        "samples_per_second": 22.28, "tokens_per_second": 2_000.0, "ttft_p99_ms": 812.4, "tpot_p99_ms": 41.26,
        "ttft_limit_ms": 2000.0, "tpot_limit_ms": 100.0,
    }  # fmt: skip
    return Progress(**{**values, **more})  # type: ignore[arg-type]  # plain data


def lines(progress: Progress, name: str = "Server", waited_s: float = 185, stage_s: float = 7.2) -> list[str]:
    return [line.plain for line in progress_lines(name, progress, waited_s, stage_s, {"loading weights": 31.0})]


def test_running() -> None:
    assert lines(server()) == [
        "p99 TTFT 812/2,000 ms  p99 TPOT 41.3/100 ms  3:05, 7:30 to go",
        "Server  3,342/13,368 samples  22.28/s  2,000 tokens/s  58 open",
    ]


def test_a_large_machine_fits_80_columns() -> None:
    large = server(
        expected=802_080, completed=734_567, issued=749_999, samples_per_second=2_345.6,
        tokens_per_second=300_000.0, ttft_p99_ms=12_812.4, tpot_p99_ms=141.26, elapsed_s=40_000.0,
    )  # fmt: skip
    assert max(map(len, lines(large, "Interactive", 45_000))) < 80


def test_a_limit_that_is_passed_stands_out() -> None:
    (first, _) = progress_lines("Server", server(ttft_p99_ms=2_300.0), 1, 1, {})
    assert [first.plain[span.start : span.end] for span in first.spans if span.style] == ["p99 TTFT 2,300/2,000 ms"]


def test_before_anything_is_known() -> None:
    first, second = lines(
        server(expected=None, completed=0, issued=0, ttft_p99_ms=None, tpot_p99_ms=None, min_duration_s=None)
    )
    assert first == "3:05"
    assert second.startswith("Server  0/? samples")


def test_without_limits() -> None:
    first, _ = lines(server(scenario="SingleStream", ttft_limit_ms=None, tpot_limit_ms=None, tpot_p99_ms=0.053))
    assert first.startswith("p99 TTFT 812 ms  p99 TPOT 0.053 ms")


@pytest.mark.parametrize(
    ("phase", "stage", "words"),
    [
        ("importing", "", "importing the engine's code (7 s)"),
        ("engine", "", "starting the engine (7 s)"),
        ("engine", "loading weights", "loading weights (7 s, 31 s last time)"),
        ("warm-up", "", "warming up (7 s)"),
        ("closing", "", "closing the logs (7 s)"),
    ],
)
def test_other_phases(phase: str, stage: str, words: str) -> None:
    assert lines(server(phase=phase, stage=stage)) == [f"Server  3:05  {words}"]


def test_time_to_go() -> None:
    assert time_to_go_s(server(completed=0)) is None
    assert time_to_go_s(server(elapsed_s=0.0)) is None
    # By count 100 s, by the clock 500 s: Offline ends with its last sample, the others with the clock as well.
    half = server(expected=200, completed=100, elapsed_s=100.0)
    assert time_to_go_s(half) == 500.0
    half.scenario = "Offline"
    assert time_to_go_s(half) == 100.0
    # SingleStream: how many there will be is not known.
    assert time_to_go_s(server(expected=None, elapsed_s=590.0)) == 10.0
    assert time_to_go_s(server(expected=None, elapsed_s=700.0)) == 0.0
    # Accuracy: no minimum duration.
    assert time_to_go_s(server(expected=200, completed=100, elapsed_s=10.0, min_duration_s=None)) == 10.0


def test_plain_lines_are_few() -> None:
    now = [0.0]
    text = io.StringIO()
    with Display(Console(file=text, width=40), "Server", 0.0, now_s=lambda: now[0]) as display:
        for second in range(26):
            now[0] = float(second)
            display(server(phase="engine" if second < 3 else "running", completed=second))
    said = text.getvalue().splitlines()
    assert len(said) == 4  # one a phase, then one every ten seconds, not broken at the width
    assert said[0] == "Server  0:00  starting the engine (0 s)"
    assert [line.split()[1].partition("/")[0] for line in said[1:]] == ["3", "13", "23"]
    assert "\x1b" not in text.getvalue()


IN_A_TERMINAL = textwrap.dedent("""
    import sys, time
    from rich.console import Console
    from scenarios.leg.display import Display
    from tests.scenarios.leg.test_display import server
    with Display(Console(), "Server", time.monotonic()) as display:
        for _ in range(2000):
            display(server())
            time.sleep(0.02)
""")


class Terminal:
    """A display in a process that has a pseudo-terminal; what it writes is collected."""

    def __init__(self, columns: int, **environment: str) -> None:
        self._main, side = pty.openpty()
        variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_A_TERMINAL], cwd=ROOT, env={**variables, **environment},
            stdin=side, stdout=side, stderr=side, process_group=0,  # one that can be stopped, as a shell starts it
        )  # fmt: skip
        os.close(side)
        self.text = ""

    def read_until(self, words: str) -> None:
        while words not in self.text:
            assert select.select([self._main], [], [], PATIENCE_S)[0], f"waited {PATIENCE_S:g} s for {words!r}"
            self.text += os.read(self._main, 4096).decode()

    def drain(self) -> None:
        """Read what is there, without waiting for more."""
        while select.select([self._main], [], [], 0)[0]:
            self.text += os.read(self._main, 4096).decode()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._main)


def test_the_lines_of_a_log_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    tail = LogTail(path)
    assert tail.lines() == []
    path.write_bytes(b"one\nload 1/2\rload 2/2\n\x1b[32mgreen\x1b[0m \xff\ntw")
    assert tail.lines() == ["one", "load 2/2", "green \ufffd"]
    with path.open("ab") as log:
        log.write(b"o\a\n")
    assert tail.lines() == ["two"]
    assert tail.lines() == []


@pytest.mark.parametrize("columns", [80, 30, 1])
def test_lines_are_replaced_and_never_wider_than_the_terminal(columns: int) -> None:
    terminal = Terminal(columns)
    try:
        terminal.read_until("\x1b[1A\r\r\x1b[J")
    finally:
        terminal.end()
    one = terminal.text.split("\x1b[J")[1].removesuffix("\x1b[1A\r\r")
    rows = one.split("\r\n")
    assert len(rows) == 2
    assert all(0 < len(row) <= max(1, columns - 1) for row in rows)
    assert "\x1b[?25l" not in terminal.text, "the cursor is never hidden: nobody has to show it again"


def test_ctrl_z_leaves_a_clean_line() -> None:
    terminal = Terminal(80)
    try:
        terminal.read_until("samples")
        os.kill(terminal.process.pid, signal.SIGTSTP)
        until(lambda: psutil.Process(terminal.process.pid).status() == psutil.STATUS_STOPPED, "the stop")
        terminal.drain()
        assert terminal.text.endswith("\r\x1b[J"), "the cursor is where the lines began, and they are erased"
        os.kill(terminal.process.pid, signal.SIGCONT)
        terminal.text = ""
        terminal.read_until("samples")
    finally:
        terminal.end()
