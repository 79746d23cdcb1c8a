"""The line that a person sees of a running leg."""

import io

import pytest
from rich.console import Console

from runs.record.progress import Progress
from scenarios.leg.display import Display, progress_line, time_to_go_s


def server(**more: object) -> Progress:
    values: dict[str, object] = {
        "phase": "running", "time_ns": 1, "pid": 1, "scenario": "Server", "mode": "performance", "expected": 13_368,
        "issued": 3_400, "completed": 3_342, "output_tokens": 300_000, "elapsed_s": 150.0, "min_duration_s": 600.0,
        "samples_per_second": 22.28, "tokens_per_second": 2_000.0, "ttft_p99_ms": 812.4, "tpot_p99_ms": 41.26,
        "ttft_limit_ms": 2000.0, "tpot_limit_ms": 100.0,
    }  # fmt: skip
    return Progress(**{**values, **more})  # type: ignore[arg-type]  # plain data


def test_running() -> None:
    assert progress_line(server(), 150) == (
        "Server performance: 3,342/13,368 samples  22.28/s  2,000 tokens/s  58 open  p99 TTFT 812/2000 ms  "
        "p99 TPOT 41.3/100 ms  150 s, 450 s to go"
    )


def test_before_anything_is_known() -> None:
    line = progress_line(
        server(expected=None, completed=0, issued=0, ttft_p99_ms=None, tpot_p99_ms=None, min_duration_s=None), 0
    )
    assert line.startswith("Server performance: 0/? samples")
    assert "TTFT" not in line
    assert "to go" not in line


def test_without_limits() -> None:
    line = progress_line(server(scenario="SingleStream", ttft_limit_ms=None, tpot_limit_ms=None), 0)
    assert "p99 TTFT 812 ms" in line
    assert "p99 TPOT 41.3 ms" in line


@pytest.mark.parametrize(
    ("phase", "words"),
    [("engine", "starting the engine (7 s)"), ("warm-up", "warming up (7 s)"), ("closing", "closing the logs (7 s)")],
)
def test_other_phases(phase: str, words: str) -> None:
    assert progress_line(server(phase=phase), 7.2) == f"Server performance: {words}"


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


def test_plain_lines_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("scenarios.leg.display.time.monotonic", lambda: now[0])
    text = io.StringIO()
    with Display(Console(file=text, width=40)) as display:
        for second in range(26):
            now[0] = float(second)
            display(server(phase="engine" if second < 3 else "running", completed=second))
    lines = text.getvalue().splitlines()
    assert len(lines) == 4  # one a phase, then one every ten seconds, not broken at the width
    assert lines[0] == "Server performance: starting the engine (0 s)"
    assert [line.split()[2].partition("/")[0] for line in lines[1:]] == ["3", "13", "23"]


def test_terminal_has_one_live_line() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=200, _environ={})
    with Display(console) as display:
        display(server(phase="engine"))
        display(server())
    assert "starting the engine" in text.getvalue()
    assert "3,342/13,368" in text.getvalue()
