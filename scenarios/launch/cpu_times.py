"""CPU times around the timed window: of the run, and of all processes on its cores.

The harness reads them once before the timed window and once after it. An unreadable value is recorded with its reason,
and never fails a run.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from runs.machine.environment import usable_cores
from runs.record.observed import Contention, NotRecorded

# Linux already counts the CPU time of guest virtual machines as user time.
_COUNTED_TWICE = ("guest", "guest_nice")
_WAITING = ("idle", "iowait")
SHORTEST_WINDOW_S = 0.2  # Linux counts CPU time in steps of 10 ms per core


@dataclass(frozen=True)
class CpuReading:
    """CPU counters at one moment, in seconds since the system started."""

    time_s: float  # monotonic clock
    cores: tuple[int, ...]  # IDs of the usable cores
    busy_s: float  # time in which these cores were in use
    stolen_s: float  # the part of busy_s that other virtual machines used
    own_s: dict[int, float]  # process ID → CPU time of each process of the harness on any core
    load_average: float  # load average of the last minute


def read_cpu(parent_pid: int, replica_pids: Sequence[int] = ()) -> CpuReading | str:
    """Return the counters, or the reason why they cannot be read.

    Args:
        parent_pid: Process that started the run, which belongs to the harness.
        replica_pids: Processes of replicas, which may be children of Ray.
    """

    def own_s() -> dict[int, float]:
        seconds = _used(_group(replica_pids))
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(parent_pid).cpu_times()
            seconds[parent_pid] = times.user + times.system  # Its children include earlier runs, so they do not count.
        return seconds

    return _read(own_s)


def _read(own_s: Callable[[], dict[int, float]]) -> CpuReading | str:
    """Return the counters, or the reason why they cannot be read.

    Args:
        own_s: Returns the CPU time of each process of the harness.
    """
    try:
        cores = tuple(usable_cores())
        own_cpu_s = own_s()
        every_core = psutil.cpu_times(percpu=True)
        used = [every_core[core]._asdict() for core in cores]
        idle = (*_WAITING, *_COUNTED_TWICE)
        busy_s = sum(seconds for core in used for name, seconds in core.items() if name not in idle)
        stolen_s = sum(core.get("steal", 0.0) for core in used)
        return CpuReading(time.monotonic(), cores, busy_s, stolen_s, own_cpu_s, os.getloadavg()[0])
    except Exception as error:  # A failed measurement must not end the run.
        return f"{type(error).__name__}: {error}"


def contention_between(start: CpuReading | str, end: CpuReading | str) -> Contention | NotRecorded:
    """Return the CPU use between two readings, or the reason why it is unknown."""
    if isinstance(start, str):
        return NotRecorded(not_recorded=start)
    if isinstance(end, str):
        return NotRecorded(not_recorded=end)
    if start.cores != end.cores:
        return NotRecorded(not_recorded=f"the usable cores changed from {start.cores} to {end.cores}")
    busy_s = end.busy_s - start.busy_s
    # A new process starts at 0. The CPU time of a process that ended counts with its parent.
    own_s = sum(seconds - start.own_s.get(pid, 0.0) for pid, seconds in end.own_s.items())
    own_s -= sum(seconds for pid, seconds in start.own_s.items() if pid not in end.own_s)
    try:
        return Contention(
            window_s=end.time_s - start.time_s,
            usable_cores=len(start.cores),
            busy_cpu_s=round(max(0.0, busy_s), 2),
            stolen_cpu_s=round(max(0.0, end.stolen_s - start.stolen_s), 2),
            own_cpu_s=round(max(0.0, own_s), 2),
            foreign_cpu_s=round(max(0.0, busy_s - own_s), 2),
            load_average_start=start.load_average,
            load_average_end=end.load_average,
        )
    except ValueError as error:
        return NotRecorded(not_recorded=f"invalid CPU times: {str(error).splitlines()[0]}")


class ForeignLoad:
    """The load of other programs since this object was made.

    The descendants of this process belong to the harness. Its process group may contain other programs, for example in
    a shell script.
    """

    def __init__(self) -> None:
        self._start = _read(_used_by_descendants)

    def cores_taken(self) -> int:
        """Return the number of cores that other programs use; 0 if it is unknown."""
        contention = contention_between(self._start, _read(_used_by_descendants))
        if isinstance(contention, NotRecorded) or contention.window_s < SHORTEST_WINDOW_S:
            return 0
        return contention.cores_taken


def _used_by_descendants() -> dict[int, float]:
    return _used(_with_descendants(os.getpid()))


def _with_descendants(pid: int) -> set[int]:
    with contextlib.suppress(psutil.Error):
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    return set()


def _used(pids: set[int]) -> dict[int, float]:
    return {pid: seconds for pid in pids if (seconds := _used_s(pid)) is not None}


def _group(processes: Sequence[int]) -> set[int]:
    """Return the IDs of this process's group and descendants, and of other processes with their descendants."""
    group = os.getpgrp()
    members: set[int] = set()
    for pid in (os.getpid(), *processes):
        members |= _with_descendants(pid)
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == group:
                members.add(pid)
    return members


def _used_s(pid: int) -> float | None:
    """Return the CPU time of a process and of its reaped children; None if the process has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system + times.children_user + times.children_system)
