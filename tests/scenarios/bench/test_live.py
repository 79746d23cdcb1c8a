"""The display of a run of a bench, and its early end."""

import io
import time

import pytest

from runs.record.progress import Progress
from scenarios.bench.ladder import PlannedBenchRun
from scenarios.bench.live import LiveRun
from scenarios.launch.rate_watch import Stopped
from scenarios.terminal import Terminal

CAPACITY_QPS = 10.0
LATENCY_S = 5.0


def beat(second: float, issued: int, completed: int) -> Progress:
    return Progress(
        "running", time.time_ns(), 1, "Server", "performance", issued=issued, completed=completed,
        output_tokens=16 * completed, elapsed_s=second, samples_per_second=completed / max(second, 1),
        ttft_p50_ms=40.0, ttft_p99_ms=1234.5,
    )  # fmt: skip


def simulate_server(live: LiveRun, rate: float, seconds: int, queries: int) -> None:
    """Simulate a server that completes at most CAPACITY_QPS queries/s, each after at least five seconds."""
    for second in range(seconds):
        issued = min(queries, int(rate * second))
        completed = min(issued, int(max(0.0, second - LATENCY_S) * min(rate, CAPACITY_QPS)))
        live(beat(float(second), issued, completed))


def run_at(rate: float, seconds: int = 60) -> LiveRun:
    spec = PlannedBenchRun(1, "server", int(rate * seconds), 0, rate)
    return LiveRun(Terminal(file=io.StringIO(), force_terminal=False), "Server", spec, 60)


def test_a_run_at_four_times_the_capacity_is_stopped() -> None:
    live = run_at(40)
    with live, pytest.raises(Stopped, match=r"stopped after 60 s with 1,850 of 2,400 queries open, because the drain"):
        simulate_server(live, 40, 400, 2400)
    numbers = live.numbers()
    assert numbers["offered_qps"] == pytest.approx(40, rel=0.02)
    assert numbers["done_qps"] == pytest.approx(CAPACITY_QPS, rel=0.02)
    assert "output_tokens_per_s" not in numbers
    assert numbers["open"].growth == pytest.approx(30 * 40, rel=0.05)


def test_a_healthy_server_with_long_responses_is_not_stopped() -> None:
    live = run_at(9.5)
    with live:
        simulate_server(live, 9.5, 70, 570)
    assert not live.looks_saturated


def test_a_small_overload_is_not_stopped() -> None:
    live = run_at(12)
    with live:
        simulate_server(live, 12, 90, 720)
    assert live.looks_saturated


@pytest.mark.parametrize(("number", "count"), [(0, 3), (1, 0)], ids=["warm-up", "between the lines of the table"])
def test_without_terminal_only_few_lines_are_printed(number: int, count: int) -> None:
    seconds = iter(float(second) for second in range(1000))
    output = io.StringIO()
    spec = PlannedBenchRun(number, "server", 720, 0, 12.0)
    console = Terminal(file=output, force_terminal=False)
    live = LiveRun(console, "Server 50%", spec, 60, now_s=lambda: next(seconds))
    live(Progress("engine", time.time_ns(), 1, "Server", "performance"))
    simulate_server(live, 12, 61, 720)
    lines = output.getvalue().splitlines()
    assert len(lines) == count
    if lines:
        assert lines[-1].startswith("Server 50%  ")
        assert lines[-1].endswith("open  TTFT p50 40 p99 1,234 ms  looks saturated")
