"""Age and processor time of processes."""

import contextlib
import time
from collections.abc import Iterable

import psutil


def processor_s(processes: Iterable[psutil.Process]) -> float:
    """Return the processor time of processes so far; 0 for processes that have ended."""
    total_s = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total_s += times.user + times.system
    return total_s


def age_s(process: psutil.Process) -> float | None:
    """Return the age of a process; None if unknown, because some containers hide the machine's start time."""
    with contextlib.suppress(psutil.Error, RuntimeError, OSError):
        age = time.time() - process.create_time()
        return age if age >= 0 else None
    return None
