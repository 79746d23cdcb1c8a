"""The displayed lines of an unfinished run."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from runs.numbers.result import read_result
from runs.record.layout import RunDir
from runs.record.progress import Progress
from runs.rounds import TokenLimits
from scenarios.launch.display import Display, LogTail, progress_lines, time_to_go_s
from scenarios.launch.summary import result_lines
from tests.support.runs.dummy_runs import DummyRuns


def server(**more: object) -> Progress:
    values: dict[str, object] = {
        "phase": "running", "time_ns": 1, "pid": 1, "scenario": "Server", "mode": "performance", "expected": 13_368,
        "issued": 3_400, "completed": 3_342, "output_tokens": 300_000, "elapsed_s": 150.0, "min_duration_s": 600.0,
        "samples_per_second": 22.28, "tokens_per_second": 2_000.0, "ttft_p99_ms": 812.4, "tpot_p99_ms": 41.26,
        "ttft_limit_ms": 2000.0, "tpot_limit_ms": 100.0,
    }  # fmt: skip
    return Progress(**{**values, **more})  # type: ignore[arg-type]  # plain data


def lines(progress: Progress, name: str = "Server", waited_s: float = 185, stage_s: float = 7.2) -> list[str]:
    return [line.plain for line in progress_lines(name, progress, waited_s, stage_s)]


UNKNOWN = {"expected": None, "completed": 0, "issued": 0, "ttft_p99_ms": None, "tpot_p99_ms": None}
NO_LIMITS = {"scenario": "SingleStream", "ttft_limit_ms": None, "tpot_limit_ms": None, "tpot_p99_ms": 0.053}


@pytest.mark.parametrize(
    ("seen", "shown"),
    [
        (
            {},
            ["p99 TTFT 812/2,000 ms  p99 TPOT 41.3/100 ms  3:05, 7:30 to go",
             "Server  3,342/13,368 samples  22.28/s  2,000 tokens/s  58 open"],
        ),
        (UNKNOWN | {"min_duration_s": None}, ["3:05", "Server  0/? samples  22.28/s  2,000 tokens/s  0 open"]),
        (
            NO_LIMITS | {"elapsed_s": 0.0},
            ["p99 TTFT 812 ms  p99 TPOT 0.053 ms  3:05",
             "Server  3,342/13,368 samples  22.28/s  2,000 tokens/s  58 open"],
        ),
        (
            {"completed": 458, "issued": 458, "ttft_p50_ms": 90.0},
            ["p50 TTFT 90 ms  3:05", "Server  458/13,368 samples  22.28/s  2,000 tokens/s  0 open"],
        ),
        (
            {"completed": 6, "issued": 6, "ttft_p50_ms": 90.0},
            ["3:05", "Server  6/13,368 samples  22.28/s  2,000 tokens/s  0 open"],
        ),
        ({"phase": "importing"}, ["Server  3:05  importing the engine's code (7 s)"]),
        ({"phase": "engine"}, ["Server  3:05  starting the engine (7 s)"]),
        ({"phase": "engine", "stage": "loading weights"}, ["Server  3:05  loading weights (7 s)"]),
        ({"phase": "warm-up"}, ["Server  3:05  warming up (7 s)"]),
        ({"phase": "closing"}, ["Server  3:05  closing the logs (7 s)"]),
    ],
)  # fmt: skip
def test_each_phase_has_its_lines(seen: dict[str, object], shown: list[str]) -> None:
    assert lines(server(**seen)) == shown


def test_a_slow_rate_has_enough_digits() -> None:
    assert "0.021/s" in lines(server(samples_per_second=0.0211))[1]


def test_large_numbers_fit_80_columns() -> None:
    large = server(
        expected=802_080, completed=734_567, issued=749_999, samples_per_second=2_345.6,
        tokens_per_second=300_000.0, ttft_p99_ms=12_812.4, tpot_p99_ms=141.26, elapsed_s=40_000.0,
    )  # fmt: skip
    assert max(map(len, lines(large, "Interactive", 45_000))) < 80


def test_an_exceeded_limit_is_highlighted() -> None:
    (first, _) = progress_lines("Server", server(ttft_p99_ms=2_300.0), 1, 1)
    assert [first.plain[span.start : span.end] for span in first.spans if span.style] == ["p99 TTFT 2,300/2,000 ms"]


def test_the_remaining_time_follows_from_count_and_duration() -> None:
    assert time_to_go_s(server(completed=0)) is None
    assert time_to_go_s(server(elapsed_s=0.0)) is None
    # 100 s by the count, 500 s by the clock. Offline ends with its last sample, other scenarios also with the clock.
    half = server(expected=200, completed=100, elapsed_s=100.0)
    assert time_to_go_s(half) == 500.0
    half.scenario = "Offline"
    assert time_to_go_s(half) == 100.0
    # SingleStream: the number of queries is unknown.
    assert time_to_go_s(server(expected=None, elapsed_s=590.0)) == 10.0
    assert time_to_go_s(server(expected=None, elapsed_s=700.0)) == 0.0
    # A run with a known rate follows its plan until samples show a pace.
    assert time_to_go_s(server(completed=0, elapsed_s=10.0, planned_s=60.0)) == 50.0
    assert time_to_go_s(server(elapsed_s=10.0, planned_s=60.0, forecast_s=90.0)) == 80.0
    assert time_to_go_s(server(completed=0, elapsed_s=61.0, planned_s=60.0, forecast_s=61.0)) is None
    # An accuracy run has no minimum duration.
    assert time_to_go_s(server(expected=200, completed=100, elapsed_s=10.0, min_duration_s=None)) == 10.0


def test_without_terminal_only_few_lines_are_printed() -> None:
    now = [0.0]
    text = io.StringIO()
    with Display(Console(file=text, width=40), "Server", 0.0, now_s=lambda: now[0]) as display:
        for second in range(26):
            now[0] = float(second)
            display(server(phase="engine" if second < 3 else "running", completed=second))
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


@pytest.mark.parametrize("columns", [80, 30, 1])
def test_lines_are_replaced_and_fit_the_terminal(columns: int) -> None:
    text = io.StringIO()
    with Display(Console(file=text, force_terminal=True, width=columns), "Server", 0.0) as display:
        display(server())
        first = text.getvalue()
        display(server())
    shown = Text.from_ansi(first).plain.splitlines()
    assert len(shown) == 2
    assert all(0 < len(row) <= columns for row in shown)
    assert "\x1b[1A\x1b[2K" in text.getvalue().removeprefix(first)  # the second pair replaces the first
    assert text.getvalue().rfind("\x1b[?25h") > text.getvalue().find("\x1b[?25l")


def test_results_show_applied_and_official_limits() -> None:
    result = read_result(RunDir(DummyRuns()("Server")).result)
    for tpot_ns, header, shown in ((None, "p99 limit", ["100"]), (10**8, "p99 limit", ["100"]),
                                   (4 * 10**7, "p99 limit   official p99", ["100", "40"])):  # fmt: skip
        official = None if tpot_ns is None else TokenLimits(ttft_ns=2 * 10**9, tpot_ns=tpot_ns)
        *_, head, _, row, _ = result_lines(result, official)
        assert head.endswith(f"p99   {header}")
        assert row.split()[5:] == shown
