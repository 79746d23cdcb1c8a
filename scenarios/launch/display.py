"""The progress display of a run: two live lines on a terminal, a plain line every ten seconds elsewhere."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.text import Text

from runs.numbers.numbers import shows
from runs.record.progress import Progress, is_slower
from runs.wording import clock, duration, milliseconds, per_second, precise, printable
from scenarios.console import say

if TYPE_CHECKING:
    from rich.live import Live

PLAIN_INTERVAL_S = 10.0
EARLY_SHARE = 0.1
OVER_LIMIT = "bold red"


def progress_lines(name: str, progress: Progress, waited_s: float, stage_s: float) -> list[Text]:
    """Return one to three lines of at most 80 columns, with the most important numbers first.

    Args:
        name: Scenario, with the mode for an accuracy run.
        waited_s: Seconds since the command started.
        stage_s: Seconds since this stage began.
    """
    if progress.phase != "running":
        return [_line(f"{name}  {clock(waited_s)}  {progress.doing} ({duration(stage_s)})")]
    first = _line("  ").join([*_latencies(progress), Text(clock(waited_s) + _to_go(progress))])
    total = f"{progress.expected:,}" if progress.expected else "?"
    done = progress.samples_per_second
    rate = f"{done:,.0f}/s" if done >= 1000 else f"{precise(done)}/s"
    tokens = f"{progress.tokens_per_second:,.0f} tokens/s"
    counts = [name, f"{progress.completed:,}/{total} samples", rate, tokens, f"{progress.outstanding:,} open"]
    late = [_line(text)] if (text := slowness(progress)) else []
    return [first, _line("  ".join(counts)), *late]


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="crop")


def _latencies(progress: Progress) -> list[Text]:
    """Return the latencies at the highest percentile that the completed samples support."""
    if shows("p99", progress.completed):
        ttft = _latency("p99 TTFT", progress.ttft_p99_ms, progress.ttft_limit_ms)
        return ttft + _latency("p99 TPOT", progress.tpot_p99_ms, progress.tpot_limit_ms)
    return _latency("p50 TTFT", progress.ttft_p50_ms, None) if shows("p50", progress.completed) else []


def _latency(label: str, value_ms: float | None, limit_ms: float | None) -> list[Text]:
    if value_ms is None:
        return []
    text = f"{label} {milliseconds(value_ms)}" + (f"/{limit_ms:,.0f}" if limit_ms else "") + " ms"
    return [Text(text, OVER_LIMIT if limit_ms and value_ms > limit_ms else "")]


def _to_go(progress: Progress) -> str:
    remaining_s = time_to_go_s(progress)
    return "" if remaining_s is None else f", {clock(remaining_s)} to go"


def slowness(progress: Progress) -> str:
    """Return a line on a run that will take much longer than planned; empty for other runs."""
    planned_s, forecast_s, expected = progress.planned_s, progress.forecast_s, progress.expected
    if not planned_s or forecast_s is None or not expected or not is_slower(planned_s, forecast_s):
        return ""
    rates = f"{per_second(progress.samples_per_second)}, {per_second(expected / planned_s)} planned"
    length = ("at least " if forecast_s == progress.elapsed_s else "") + duration(forecast_s)
    return f"slower than planned: {length} instead of {duration(planned_s)}; {rates}"


def time_to_go_s(progress: Progress) -> float | None:
    """Estimate the remaining time from the plan, the rate so far and the minimum duration; None if it is unknown."""
    if progress.planned_s is not None:
        left_s = (progress.forecast_s or progress.planned_s) - progress.elapsed_s
        return left_s if left_s > 0 else None
    # In Offline, the first completions are late and the others follow quickly.
    if progress.completed < max(1, EARLY_SHARE * (progress.expected or 0)) or not progress.elapsed_s:
        return None
    by_duration = max(0.0, (progress.min_duration_s or 0.0) - progress.elapsed_s)
    if not progress.expected:
        return by_duration if progress.min_duration_s else None
    by_count = (progress.expected - progress.completed) * progress.elapsed_s / progress.completed
    # Offline ends with its last sample; the other scenarios also wait for the minimum duration.
    return by_count if progress.scenario == "Offline" else max(by_count, by_duration)


class Display:
    """A context manager that shows each heartbeat that it is called with.

    Args:
        name: Scenario, with the mode for an accuracy run.
        started_s: Start of the command on the monotonic clock.
        followed: Log whose new lines are shown too.
        now_s: Monotonic clock.
        lines: Returns the lines of a heartbeat, with the arguments of `progress_lines`; without lines none is shown.
        plain_interval_s: Time between the plain lines.
    """

    def __init__(
        self,
        console: Console,
        name: str,
        started_s: float,
        followed: Path | None = None,
        now_s: Callable[[], float] = time.monotonic,
        lines: Callable[[str, Progress, float, float], list[Text]] = progress_lines,
        plain_interval_s: float = PLAIN_INTERVAL_S,
    ) -> None:
        self._console, self._name, self._started_s, self._now_s = console, name, started_s, now_s
        self._lines, self._plain_interval_s = lines, plain_interval_s
        self._tail = LogTail(followed) if followed else None
        terminal = console.is_terminal and not console.is_dumb_terminal
        self._live: Live | None = None
        if terminal:
            from rich import live

            self._live = live.Live(console=console, auto_refresh=False, transient=True)
        self._stage = ""
        self._stage_since = self._last_plain = now_s()

    def __enter__(self) -> "Display":
        if self._live:
            self._live.start()
            self._console.show_cursor(True)  # A stopped or killed process could not restore a hidden cursor.
        return self

    def __exit__(self, *_: object) -> None:
        self._show_log()
        if self._live:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        now = self._now_s()
        self._show_log()
        stage = progress.doing
        changed = stage != self._stage
        if changed:
            self._stage, self._stage_since = stage, now
        lines = self._lines(self._name, progress, now - self._started_s, now - self._stage_since)
        if self._live:
            if not self._in_background():
                self._live.update(Group(*lines), refresh=True)
        elif lines and (changed or now - self._last_plain >= self._plain_interval_s):
            self._last_plain = now
            plain = "  ".join(line.plain for line in (*lines[1::-1], *lines[2:]))  # the name of the run first
            self._console.print(plain, highlight=False, soft_wrap=True)

    def _show_log(self) -> None:
        for line in self._tail.lines() if self._tail else ():
            say(self._console, f"| {line}")

    def _in_background(self) -> bool:
        """Return whether this process is in the background of its terminal."""
        try:
            return os.tcgetpgrp(self._console.file.fileno()) != os.getpgrp()
        except (OSError, ValueError):  # The terminal belongs to another session.
            return False


class LogTail:
    """A reader of the new lines of a growing file, which escapes control characters."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = ""

    def lines(self) -> list[str]:
        """Return the lines that were completed since the last call; for a line rewritten in place, its last form."""
        try:
            with self._path.open("rb") as log:
                log.seek(self._read)
                new = log.read()
        except OSError:
            return []
        self._read += len(new)
        *complete, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        plain = (Text.from_ansi(line.rstrip("\r").rpartition("\r")[2]).plain for line in complete)
        return [printable(line.replace("\t", " ")) for line in plain]
