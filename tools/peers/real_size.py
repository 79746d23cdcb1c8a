"""(i) One Offline query of a real size: its first response, its cost to the run, and a steady rate."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.observed import LoopLag
from runs.record.progress import read_progress
from runs.record.requests_log import RequestTable, read_request_table

from .report import PeerPart, at_least, at_most
from .sizes import Sizes
from .support.models import TINY, model_and_rows
from .support.peer_runs import check_end, one_query, started_run

POLL_S = 0.2


@dataclass(frozen=True)
class _Observed:
    """Observations of a run until it ended or was stopped."""

    requests: RequestTable
    peak_memory_bytes: int  # peak memory of the run's process
    lag: LoopLag | None

    @property
    def first_response_s(self) -> float:
        return float(self.requests.complete_ns.min() - self.requests.issue_ns.min()) / 1e9

    def rate(self, seconds: float | None = None) -> float:
        """Return completed samples/s in the first seconds after the query's issue, or until the last response."""
        since_s = (self.requests.complete_ns - self.requests.issue_ns.min()) / 1e9
        seconds = float(since_s.max()) if seconds is None else seconds
        return float(np.count_nonzero(since_s <= seconds)) / seconds


def run(work: Path, sizes: Sizes) -> PeerPart:
    """Execute short runs to the end, and long runs as long as the figures need."""
    return measure_sizes(work, sizes, {"vllm": True, **model_and_rows(work, TINY, sizes.rows)})


def measure_sizes(work: Path, sizes: Sizes, options: dict[str, Any]) -> PeerPart:
    """Return the measurement with the engine of `options`."""
    part = PeerPart("i", f"one Offline query of {sizes.real_samples:,} samples, {sizes.rows:,} rows of real lengths")

    def run(name: str, samples: int, seconds: float | None = None) -> _Observed:
        # LoadGen rounds up to whole datasets, so this is the actual number.
        fitting = {**options, "scenario": "Offline", "total_sample_count": min(samples, sizes.rows)}
        return _run(work / name, fitting, samples, seconds)

    few_count, more_count = sizes.short_runs
    few, more = run("few", few_count), run("more", more_count)
    once = run("data-set", sizes.rows, sizes.memory_seconds)
    complete = run("whole", sizes.real_samples, sizes.real_seconds)

    first = part.add("first response", "s", [complete.first_response_s])
    reference = part.add(f"first response of {few_count:,} samples", "s", [few.first_response_s])
    part.add("first response, later than that by", "s", [first.median - reference.median], at_most(5.0))
    if complete.lag is not None:
        part.add("loop lag, p99", "ms", [complete.lag.p99_ms], at_most(20.0))
        part.add("loop lag, worst", "ms", [complete.lag.worst_ms], at_most(200.0))
    memory = part.add("run's memory", "GB", [complete.peak_memory_bytes / 1e9])
    of_set = part.add(f"run's memory, {sizes.rows:,} samples", "GB", [once.peak_memory_bytes / 1e9])
    part.add_ratio("run's memory ÷ that", memory, of_set, at_most(1.2))
    rate = part.add(f"rate of the first {sizes.real_seconds:.0f} s", "samples/s", [complete.rate(sizes.real_seconds)])
    short = part.add(f"rate of {more_count:,} samples", "samples/s", [more.rate()])
    part.add_ratio("rate ÷ that", rate, short, at_least(0.95))
    part.notes.append(
        f"the large run is stopped after {sizes.real_seconds:.0f} s, that of {sizes.rows:,} samples (for its memory) "
        f"after {sizes.memory_seconds:.0f} s. Memory: the highest resident size of the run's own process, without the "
        "engine's core."
    )
    return part


def _run(place: Path, options: dict[str, Any], samples: int, seconds: float | None = None) -> _Observed:
    """Execute a run to its end, or until a number of seconds after LoadGen's start."""
    run = RunDir(place)
    memory_bytes, lag = 0, None
    cut = False
    with started_run(run, options, one_query(samples)) as process:
        while process.poll() is None and not cut:
            time.sleep(POLL_S)
            progress = read_progress(run.progress)
            if progress is not None:
                with contextlib.suppress(psutil.Error):
                    memory_bytes = max(memory_bytes, psutil.Process(progress.pid).memory_info().rss)
                cut = seconds is not None and progress.elapsed_s >= seconds
    check_end(process, run, *(ExitCode.INTERRUPTED,) if cut else (ExitCode.OK, ExitCode.NEGATIVE))
    last = read_progress(run.progress)
    if last is not None and last.loop_lag is not None:
        lag = LoopLag.model_validate(last.loop_lag)
    return _Observed(read_request_table(run.requests), memory_bytes, lag)
