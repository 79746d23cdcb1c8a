"""What a person sees of a running leg: one live line on a terminal, a plain line every ten seconds elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from runs.record.progress import Progress

PLAIN_INTERVAL_S = 10.0
EARLY_SHARE = 0.1

_PHASES = {
    "starting": "starting",
    "engine": "starting the engine",
    "warm-up": "warming up",
    "closing": "closing the logs",
    "done": "done",
    "failed": "failed",
}


def progress_line(progress: Progress, waited_s: float) -> str:
    """One line: done/total, rates, outstanding, p99 latencies against their limits, time to go."""
    name = f"{progress.scenario} {progress.mode}"
    if progress.phase != "running":
        return f"{name}: {_PHASES.get(progress.phase, progress.phase)} ({waited_s:.0f} s)"
    total = f"{progress.expected:,}" if progress.expected else "?"
    parts = [
        f"{progress.completed:,}/{total} samples",
        f"{progress.samples_per_second:.2f}/s",
        f"{progress.tokens_per_second:,.0f} tokens/s",
        f"{progress.outstanding:,} open",
    ]
    parts += _latency("p99 TTFT", progress.ttft_p99_ms, progress.ttft_limit_ms)
    parts += _latency("p99 TPOT", progress.tpot_p99_ms, progress.tpot_limit_ms)
    remaining_s = time_to_go_s(progress)
    parts.append(f"{progress.elapsed_s:.0f} s" + (f", {remaining_s:.0f} s to go" if remaining_s is not None else ""))
    return f"{name}: " + "  ".join(parts)


def _latency(label: str, value_ms: float | None, limit_ms: float | None) -> list[str]:
    if value_ms is None:
        return []
    value = f"{value_ms:.0f}" if value_ms >= 100 else f"{value_ms:.1f}"
    return [f"{label} {value}" + (f"/{limit_ms:.0f}" if limit_ms else "") + " ms"]


def time_to_go_s(progress: Progress) -> float | None:
    """By the rate so far, and not below the minimum duration; None before there is a rate worth the name."""
    # Offline, the first completions come late and the others soon after: a few of them say nothing of the rate.
    if progress.completed < max(1, EARLY_SHARE * (progress.expected or 0)) or not progress.elapsed_s:
        return None
    by_duration = max(0.0, (progress.min_duration_s or 0.0) - progress.elapsed_s)
    if not progress.expected:
        return by_duration if progress.min_duration_s else None
    by_count = (progress.expected - progress.completed) * progress.elapsed_s / progress.completed
    # Offline ends with its last sample, however long that took; the other scenarios also wait for the clock.
    return by_count if progress.scenario == "Offline" else max(by_count, by_duration)


class Display:
    """Shows heartbeats; use as a context manager and call with each one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._phase = ""
        self._phase_since = self._last_plain = time.monotonic()

    def __enter__(self) -> "Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        changed = progress.phase != self._phase
        if changed:
            self._phase, self._phase_since = progress.phase, now
        line = progress_line(progress, now - self._phase_since)
        if self._live:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
        elif changed or now - self._last_plain >= PLAIN_INTERVAL_S:
            self._last_plain = now
            self._console.print(line, highlight=False, soft_wrap=True)
