"""The lines of a run in progress where the output is not a terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from scenarios.live.display import Display
from scenarios.live.log_tail import LogTail
from scenarios.live.plain_lines import plain_lines
from scenarios.live.run_view import RunFollower
from tests.support.runs.heartbeats import server_heartbeat as server

UNKNOWN = {
    "expected": None, "completed": 0, "issued": 0, "ttft_p99_ms": None, "tpot_p99_ms": None, "min_duration_s": None,
}  # fmt: skip
NO_LIMITS = {"scenario": "SingleStream", "ttft_limit_ms": None, "tpot_limit_ms": None, "tpot_p99_ms": 0.053}


def lines(seen: dict[str, object], name: str = "Server", waited_s: float = 185.0, stage_s: float = 7.2) -> list[str]:
    follower = RunFollower(name)
    follower.view(server(**seen), waited_s - stage_s, 0.0)
    return plain_lines(follower.view(server(**seen), waited_s, stage_s))


@pytest.mark.parametrize(
    ("seen", "shown"),
    [
        (
            {},
            ["Server  3,342/13,368 samples  22.28/s  2,000 tokens/s  58 open",
             "p99 TTFT 812/2,000 ms  p99 TPOT 41.3/100 ms  3:05, 7:30 to go"],
        ),
        (UNKNOWN, ["Server  0/? samples  22.28/s  2,000 tokens/s  0 open", "3:05"]),
        (
            NO_LIMITS | {"elapsed_s": 0.0},
            ["Server  3,342/13,368 samples  22.28/s  2,000 tokens/s  58 open",
             "p99 TTFT 812 ms  p99 TPOT 0.053 ms  3:05"],
        ),
        (
            {"completed": 458, "issued": 458, "ttft_p50_ms": 90.0},
            ["Server  458/13,368 samples  22.28/s  2,000 tokens/s  0 open", "p50 TTFT 90 ms  3:05"],
        ),
        (
            {"completed": 6, "issued": 6, "ttft_p50_ms": 90.0},
            ["Server  6/13,368 samples  22.28/s  2,000 tokens/s  0 open", "3:05"],
        ),
        ({"phase": "importing"}, ["Server  3:05  importing the engine's code (7 s)"]),
        ({"phase": "engine"}, ["Server  3:05  starting the engine (7 s)"]),
        ({"phase": "engine", "stage": "loading weights"}, ["Server  3:05  loading weights (7 s)"]),
        ({"phase": "warm-up"}, ["Server  3:05  warming up (7 s)"]),
        ({"phase": "closing"}, ["Server  3:05  closing the logs (7 s)"]),
        ({"phase": "done"}, []),
    ],
)  # fmt: skip
def test_each_phase_has_its_lines(seen: dict[str, object], shown: list[str]) -> None:
    assert lines(seen) == shown


def test_a_slow_rate_has_enough_digits() -> None:
    assert "0.021/s" in lines({"samples_per_second": 0.0211})[0]


def test_a_run_that_takes_longer_than_planned_has_a_third_line() -> None:
    assert lines({"planned_s": 60.0, "forecast_s": 660.0})[2].startswith("slower than planned: ")


def test_few_lines_are_printed() -> None:
    now = [0.0]
    text = io.StringIO()
    with Display(Console(file=text, width=40), RunFollower("Server"), 0.0, now_s=lambda: now[0]) as display:
        for second in range(26):
            now[0] = float(second)
            display(server(phase="engine" if second < 3 else "running", completed=second))
        display(server(phase="done"))
        display.scored(1, 2)
    output_lines = text.getvalue().splitlines()
    assert len(output_lines) == 4  # one line for each phase, then one each ten seconds, not wrapped
    assert output_lines[0] == "Server  0:00  starting the engine (0 s)"
    assert [line.split()[1].partition("/")[0] for line in output_lines[1:]] == ["3", "13", "23"]
    assert "\x1b" not in text.getvalue()


def test_only_new_complete_lines_of_a_log_are_read(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    tail = LogTail(path)
    assert tail.lines() == []
    path.write_bytes(b"one\nload 1/2\rload 2/2\n\x1b[32mgreen\x1b[0m \xff\ntw")
    assert tail.lines() == ["one", "load 2/2", "green \ufffd"]
    with path.open("ab") as log:
        log.write(b"o\a\n")
    assert tail.lines() == ["two"]
    assert tail.lines() == []
