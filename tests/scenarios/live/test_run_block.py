"""The block of a run in progress on a terminal."""

import pytest
from rich.text import Text

from scenarios.live.plain_lines import plain_lines
from scenarios.live.run_block import ASCII, UNICODE, block_lines, sparkline
from scenarios.live.run_view import RunFollower
from tests.support.runs.heartbeats import server_heartbeat as server


def block(width: int = 79, height: int = 20, **seen: object) -> list[Text]:
    follower = RunFollower("Server")
    for number, opened in enumerate((0, 20, 70), 1):
        follower.view(server(time_ns=number, issued=3_342 + opened), 0.0, 0.0)
    return block_lines(follower.view(server(**{"time_ns": 4, **seen}), 185.0, 7.2), width, height)


def plain(*args: int, **seen: object) -> list[str]:
    return [line.plain.rstrip() for line in block(*args, **seen)]


def test_a_block_shows_time_bar_rates_open_queries_latencies_and_steps() -> None:
    assert plain() == [
        "Server                                                          3:05, 7:30 left",
        "━━━━━━━━━━━━╸───────────────────────────────────── 3,342 of 13,368 samples  25%",
        "rate  offered 22.75/s  completed 22.28/s  2,000 tokens/s",
        "open  58     ▁▃█▆ max 70",
        "TTFT  p50 310 ms    p99 812 of 2,000 ms     ━━━━╸───────  within limit",
        "TPOT  p50 38 ms     p99 41.3 of 100 ms      ━━━━╸───────  within limit",
        "engine › warm-up › timed run › last responses › verification",
    ]


@pytest.mark.parametrize("width", [1, 30, 59, 79, 199])
@pytest.mark.parametrize("name", ["Server", "block 12 with a long name of the system, 75% of the Offline rate of A"])
def test_each_line_fits_the_width(width: int, name: str) -> None:
    large = server(
        expected=802_080, completed=734_567, issued=749_999, samples_per_second=2_345.6, elapsed_s=40_000.0,
        tokens_per_second=300_000.0, ttft_p50_ms=4_123.0, ttft_p99_ms=12_812.4, tpot_p99_ms=141.26,
        planned_s=60.0, forecast_s=66_000.0,
    )  # fmt: skip
    for lines in (
        block_lines(RunFollower(name).view(large, 45_000.0, 0.0), width, 20),
        block_lines(RunFollower(name).view(server(phase="engine", stage="loading weights"), 1.0, 1.0), width, 20),
    ):
        assert len(lines) >= 3
        assert all(line.cell_len <= width for line in lines)


def test_all_numbers_are_shown_at_60_columns() -> None:
    lines = plain(59)
    assert lines[-1] == "step 3 of 5: timed run"
    text = "\n".join(lines)
    for shown in ("3:05, 7:30 left", "3,342 of 13,368", "22.75/s", "22.28/s", "58", "812 of 2,000 ms", "41.3 of"):
        assert shown in text


@pytest.mark.parametrize("height", [1, 2, 4, 6])
def test_a_low_terminal_shows_the_most_important_lines(height: int) -> None:
    lines = plain(79, height)
    assert len(lines) == height
    assert "7:30 left" in lines[0]
    kept = ["Server", "━", "TTFT", "TPOT", "rate", "open"]
    assert all(any(line.startswith(start) for line in lines) for start in kept[:height])


@pytest.mark.parametrize(
    ("p99_ms", "style", "text"),
    [(812.4, "green", "within limit"), (1_900.0, "yellow", "near limit"), (2_300.0, "bold red", "over limit")],
)
def test_the_color_of_a_latency_follows_from_its_limit(p99_ms: float, style: str, text: str) -> None:
    [line] = [line for line in block(ttft_p99_ms=p99_ms) if line.plain.startswith("TTFT")]
    marked = [line.plain[span.start : span.end].strip() for span in line.spans if span.style == style]
    assert marked[0].startswith("p99 ")
    assert marked[-1] == text


def test_a_latency_without_a_limit_has_no_color_and_no_gauge() -> None:
    [line] = [line for line in block(ttft_limit_ms=None) if line.plain.startswith("TTFT")]
    assert line.plain.rstrip() == "TTFT  p50 310 ms    p99 812 ms"


def test_a_limit_is_shown_before_its_percentile() -> None:
    [line] = [line for line in plain(completed=100) if line.startswith("TTFT")]
    assert line == "TTFT  p50 310 ms    limit of p99: 2,000 ms"


def test_a_remark_on_the_command_is_shown_in_each_step() -> None:
    follower = RunFollower("r3", remark="2 of 9 points done", steps=("client", "timed run", "verification"))
    for phase, step in (("starting", "client"), ("running", "timed run")):
        view = follower.view(server(phase=phase), 1.0, 1.0)
        assert view.step == step
        assert "2 of 9 points done" in [line.plain for line in block_lines(view, 79, 20)]


def test_a_starting_run_shows_what_it_waits_for() -> None:
    lines = plain(phase="engine", stage="loading weights")
    assert lines[1] == "loading weights (0 s)"
    [marked] = [
        line.plain[span.start : span.end]
        for line in block(phase="engine")[-1:]
        for span in line.spans
        if span.style == "bold"
    ]
    assert marked == "engine"
    assert block(phase="engine")[-1].style == ""  # The present step is not dimmed.


def test_the_context_of_a_run_precedes_its_name() -> None:
    view = RunFollower("Server", "probe 3 at 22/s").view(server(), 1.0, 1.0)
    assert block_lines(view, 79, 20)[0].plain.startswith("probe 3 at 22/s: Server  ")
    assert plain_lines(view)[0].startswith("Server  ")


def test_warnings_are_shown() -> None:
    assert any(line.startswith("slower than planned: ") for line in plain(planned_s=60.0, forecast_s=660.0))


def test_ascii_signs_replace_the_characters_of_unicode() -> None:
    follower = RunFollower("Server")
    for number in (1, 2):
        view = follower.view(server(time_ns=number), 1.0, 1.0)
    assert "\n".join(line.plain for line in block_lines(view, 79, 20, ASCII)).isascii()


def test_a_sparkline_begins_at_zero() -> None:
    assert sparkline((0, 0), UNICODE.levels) == "▁▁"
    assert sparkline((0, 7, 14), UNICODE.levels) == "▁▄█"
