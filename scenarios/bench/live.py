"""The running run of a bench: its display, and its early end if it is saturated and the drain would take long."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console

from runs.bench.bench_record import OpenQueries
from runs.numbers.load import ArrivalWindow, rise
from runs.record.progress import Progress
from runs.wording import clock, duration, four_digits, milliseconds
from scenarios.bench.ladder import PlannedBenchRun
from scenarios.launch.rate_watch import Stopped
from scenarios.live.display import Display
from scenarios.live.run_view import RunFollower, RunView

PLAIN_INTERVAL_S = 30.0
FIRST_SHARE = 1 / 3  # share of the arrivals' time in which the engine fills up
FEWEST_BEATS = 4  # minimum number of heartbeats before saturation is checked
SATURATED = "looks saturated"


class LiveRun:
    """A watch that shows a run with each heartbeat, and ends it with `Stopped` if it is saturated.

    Args:
        name: Name of the run in the table.
        max_drain_s: Maximum expected time of the drain of a saturated run.
        then: Called with each heartbeat that is shown.
        now_s: Monotonic clock.
    """

    def __init__(
        self,
        console: Console,
        name: str,
        spec: PlannedBenchRun,
        max_drain_s: float,
        then: Callable[[Progress], None] = lambda _: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec, self._max_drain_s, self._then = spec, max_drain_s, then
        self._beats: list[tuple[float, int, int]] = []  # elapsed s, issued, completed
        self._display = Display(
            console,
            RunFollower(name, max_open=spec.concurrency),
            now_s=now_s,
            amended=self._amended,
            plain=self._plain_lines,
            plain_interval_s=PLAIN_INTERVAL_S,
        )

    def __enter__(self) -> "LiveRun":
        self._display.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._display.__exit__(*error)

    def __call__(self, progress: Progress) -> None:
        arriving = self._spec.kind == "server" and (not self._beats or self._beats[-1][1] < self._spec.queries)
        if progress.phase == "running" and arriving:
            self._beats.append((progress.elapsed_s, progress.issued, progress.completed))
        self._display(progress)
        self._then(progress)
        left_s = self._drain_s(progress)
        if left_s > self._max_drain_s and self.looks_saturated:
            raise Stopped(
                f"stopped after {progress.elapsed_s:.0f} s with {progress.outstanding:,} of {self._spec.queries:,} "
                f"queries open, because the drain would take {duration(left_s)}"
            )

    @property
    def looks_saturated(self) -> bool:
        """True if the number of open queries has grown so far, by the limits for a complete run."""
        return len(self._window) >= FEWEST_BEATS and self._open().grew

    def numbers(self) -> dict[str, Any]:
        """Return the rates of a stopped run, as fields of `BenchRun`. Its tokens include unfinished queries."""
        (begin_s, _, before), (end_s, issued, completed) = self._window[0], self._window[-1]
        window_s, opened = end_s - begin_s, self._open()
        return {
            "queries": issued,
            "offered_qps": issued / end_s,
            "done_qps": (completed - before) / window_s,
            "open": OpenQueries(mean=opened.mean_open, max=opened.most_open, growth=opened.growth),
        }

    @property
    def _window(self) -> list[tuple[float, int, int]]:
        return [beat for beat in self._beats if beat[0] >= FIRST_SHARE * self._beats[-1][0]]

    def _open(self) -> ArrivalWindow:
        import numpy as np

        times_s = np.array([beat[0] for beat in self._window])
        opened = np.array([beat[1] - beat[2] for beat in self._window])
        return ArrivalWindow(
            begin_s=float(times_s[0]),
            end_s=float(times_s[-1]),
            arrivals=self._window[-1][1] - self._window[0][1],
            mean_open=float(opened.mean()),
            most_open=int(opened.max()),
            growth=rise(times_s, opened),
        )

    def _drain_s(self, progress: Progress) -> float:
        """Return the expected time until the last completion if all queries have arrived, else 0."""
        if self._spec.kind != "server" or progress.phase != "running" or progress.issued < self._spec.queries:
            return 0.0
        return progress.outstanding * progress.elapsed_s / max(progress.completed, 1)

    def _amended(self, view: RunView, progress: Progress) -> RunView:
        """Return the view with the time to the last response at the planned rate, and with a sign of saturation."""
        if not view.is_timed:
            return view
        if self._spec.asked_qps is not None:
            arrivals_s = self._spec.queries / self._spec.asked_qps - progress.elapsed_s
            view = replace(view, left_s=max(arrivals_s, self._drain_s(progress)))
        return replace(view, warnings=(*view.warnings, SATURATED)) if self.looks_saturated else view

    def _plain_lines(self, view: RunView) -> list[str]:
        """Return the line of a warm-up. Lines of another run would stay between the lines of the table."""
        is_shown = view.phase in ("engine", "warm-up") or (view.completed and view.phase != "done")
        if self._spec.number or not is_shown:
            return []
        if not view.is_timed:
            return [f"{view.name}  {clock(view.waited_s)}  {view.doing} ({duration(view.stage_s)})"]
        left = [] if view.left_s is None else [f"{clock(view.left_s)} left"]
        ttft = view.latencies[0]
        values_ms = {"p50": ttft.p50_ms, "p99": ttft.p99_ms}
        times = [f"{name} {milliseconds(value)}" for name, value in values_ms.items() if value is not None]
        latency = [f"TTFT {' '.join(times)} ms"] if times else []
        counts = [f"{four_digits(view.completed_qps)}/s", f"{view.open_queries:,} open"]
        return ["  ".join([view.name, *left, *counts, *latency, *[SATURATED] * self.looks_saturated])]
