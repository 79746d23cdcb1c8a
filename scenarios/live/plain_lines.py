"""A run in progress as plain text, for an output that is not a terminal."""

from runs.wording import clock, duration, milliseconds, precise
from scenarios.live.run_view import LatencyView, RunView


def plain_lines(view: RunView) -> list[str]:
    """Return the lines of a run: its name with the counts, its latencies with the time, and its warnings."""
    if view.phase == "done":
        return []  # The verification ends with the summary of the run.
    if not view.is_timed:
        return [f"{view.name}  {clock(view.waited_s)}  {view.doing} ({duration(view.stage_s)})"]
    left = "" if view.left_s is None else f", {clock(view.left_s)} to go"
    times = "  ".join([*_latencies(view), f"{clock(view.waited_s)}{left}"])
    total = f"{view.expected:,}" if view.expected else "?"
    counts = [
        f"{view.completed:,}/{total} samples",
        rate_text(view.completed_qps),
        f"{view.tokens_per_s:,.0f} tokens/s",
    ]
    return ["  ".join([*filter(None, [view.name]), *counts, f"{view.open_queries:,} open"]), times, *view.warnings]


def rate_text(rate: float) -> str:
    """Return a rate as text: 0.021/s, 22.28/s, 1,234/s."""
    return f"{rate:,.0f}/s" if rate >= 1000 else f"{precise(rate)}/s"


def _latencies(view: RunView) -> list[str]:
    """Return the latencies at the highest percentile that the completed samples support."""
    if any(latency.p99_ms is not None for latency in view.latencies):
        return [text for latency in view.latencies if (text := _p99(latency))]
    return [
        f"p50 {latency.name} {milliseconds(latency.p50_ms)} ms"
        for latency in view.latencies[:1]
        if latency.p50_ms is not None
    ]


def _p99(latency: LatencyView) -> str:
    if latency.p99_ms is None:
        return ""
    limit = f"/{latency.limit_ms:,.0f}" if latency.limit_ms else ""
    return f"p99 {latency.name} {milliseconds(latency.p99_ms)}{limit} ms"
