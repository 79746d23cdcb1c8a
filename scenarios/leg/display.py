"""What a person sees of a running leg: two live lines on a terminal, a plain line every ten seconds elsewhere."""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType

from rich.console import Console
from rich.text import Text

from runs.record.progress import Progress
from runs.wording import clock, duration, milliseconds, printable
from scenarios.console import say
from scenarios.leg.start_times import Stages

PLAIN_INTERVAL_S = 10.0
EARLY_SHARE = 0.1
OVER_LIMIT = "bold red"
ERASE = "\r\x1b[J"  # from the cursor to the end of the screen


def progress_lines(name: str, progress: Progress, waited_s: float, stage_s: float, last_time: Stages) -> list[Text]:
    """One or two lines, what matters first, each within 80 columns for every scenario.

    Args:
        name: the scenario, and the mode where it is accuracy.
        waited_s: since the leg was asked for.
        stage_s: since this stage began.
        last_time: how long each stage took last time.
    """
    if progress.phase != "running":
        stage = progress.doing
        before = f", {duration(last_time[stage])} last time" if stage in last_time else ""
        return [Text(f"{name}  {clock(waited_s)}  {stage} ({duration(stage_s)}{before})")]
    first = Text("  ").join(
        [
            *_latency("p99 TTFT", progress.ttft_p99_ms, progress.ttft_limit_ms),
            *_latency("p99 TPOT", progress.tpot_p99_ms, progress.tpot_limit_ms),
            Text(clock(waited_s) + _to_go(progress)),
        ]
    )
    total = f"{progress.expected:,}" if progress.expected else "?"
    rate = f"{progress.samples_per_second:,.{0 if progress.samples_per_second >= 1000 else 2}f}/s"
    tokens = f"{progress.tokens_per_second:,.0f} tokens/s"
    counts = [name, f"{progress.completed:,}/{total} samples", rate, tokens, f"{progress.outstanding:,} open"]
    return [first, Text("  ".join(counts))]


def _latency(label: str, value_ms: float | None, limit_ms: float | None) -> list[Text]:
    if value_ms is None:
        return []
    text = f"{label} {milliseconds(value_ms)}" + (f"/{limit_ms:,.0f}" if limit_ms else "") + " ms"
    return [Text(text, OVER_LIMIT if limit_ms and value_ms > limit_ms else "")]


def _to_go(progress: Progress) -> str:
    remaining_s = time_to_go_s(progress)
    return "" if remaining_s is None else f", {clock(remaining_s)} to go"


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


@dataclass(eq=False)
class Display:
    """Shows heartbeats; use as a context manager in the main thread, and call with each one."""

    console: Console
    name: str  # what stands before the counts
    started_s: float  # when the leg was asked for, on the monotonic clock
    last_time: Stages = field(default_factory=dict)  # how long each stage of the start took last time
    followed: Path | None = None  # a log whose new lines are shown, too
    now_s: Callable[[], float] = time.monotonic  # a monotonic clock

    def __post_init__(self) -> None:
        self._tail = LogTail(self.followed) if self.followed else None
        terminal = self.console.is_terminal and not self.console.is_dumb_terminal
        self._live = LiveLines(self.console) if terminal else None
        self._stage = ""
        self._stage_since = self._last_plain = self.now_s()

    def __enter__(self) -> "Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
        self._show_log()

    def __call__(self, progress: Progress) -> None:
        now = self.now_s()
        self._show_log()
        stage = progress.doing
        changed = stage != self._stage
        if changed:
            self._stage, self._stage_since = stage, now
        lines = progress_lines(self.name, progress, now - self.started_s, now - self._stage_since, self.last_time)
        if self._live:
            self._live.show(lines)
        elif changed or now - self._last_plain >= PLAIN_INTERVAL_S:
            self._last_plain = now
            self.console.print("  ".join(line.plain for line in reversed(lines)), highlight=False, soft_wrap=True)

    def _show_log(self) -> None:
        new = self._tail.lines() if self._tail else []
        if new and self._live:
            self._live.erase()
        for line in new:
            say(self.console, f"| {line}")


class LogTail:
    """The new lines of a file that another process writes, as a terminal can take them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = ""

    def lines(self) -> list[str]:
        """What was completed since the last call; of a line that was rewritten in place its last form."""
        try:
            with self._path.open("rb") as log:
                log.seek(self._read)
                new = log.read()
        except OSError:
            return []
        self._read += len(new)
        *whole, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        plain = (Text.from_ansi(line.rstrip("\r").rpartition("\r")[2]).plain for line in whole)
        return [printable(line.replace("\t", " ")) for line in plain]


class LiveLines:
    """Lines that are replaced in place.

    The cursor always rests at the start of the first one, so that erasing from there downwards removes them whatever
    a terminal made of them when its width changed. It is never hidden: there is nothing to restore for a process that
    is stopped or killed.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = False
        self._before: object = None

    def start(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTSTP, self._on_stop)

    def stop(self) -> None:
        self.erase()
        if self._before is not None:
            signal.signal(signal.SIGTSTP, self._before)  # type: ignore[arg-type]  # as signal.signal gave it

    def show(self, lines: list[Text]) -> None:
        """Put these lines in place of those before; nothing while the shell has the terminal."""
        if self._in_background():
            self._shown = False
            return
        # The last column stays free: some terminals go to the next line as soon as it is written.
        width = max(1, self._console.width - 1)
        rows = []
        for line in lines:
            cut = line.copy()
            cut.truncate(width)
            with self._console.capture() as captured:
                self._console.print(cut, end="", soft_wrap=True, highlight=False)
            rows.append(captured.get())
        up = f"\x1b[{len(rows) - 1}A" if len(rows) > 1 else ""
        self._shown = True  # before they are: a stop in between wipes them
        self._write(ERASE + "\n".join(rows) + up + "\r")

    def erase(self) -> None:
        """Leave a clean line."""
        if self._shown and not self._in_background():
            self._write(ERASE)
        self._shown = False

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()

    def _in_background(self) -> bool:
        try:
            return os.tcgetpgrp(self._console.file.fileno()) != os.getpgrp()
        except (OSError, ValueError):  # not the terminal of this process's session
            return False

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: leave a clean line to the shell, then stop as asked."""
        self.erase()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._on_stop)  # runs again: `fg` or `bg`
