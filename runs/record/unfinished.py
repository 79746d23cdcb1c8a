"""What to say of a leg whose record was not closed as finished."""

import os
import platform
import time

import psutil

from runs.environment import age_s
from runs.record.manifest import Manifest

# A leg's processes exist before its record's start time, or at most so long after; later ones only bear their number.
_REUSED_AFTER_NS = 60 * 10**9


def unfinished(manifest: Manifest) -> str:
    """Why a leg whose status is not `finished` did not finish, as a sentence without a full stop.

    A record that says `running` is not proof of a running leg: who closes it may have been killed, or had no disk
    left to write to.
    """
    if manifest.status not in ("planned", "running"):
        said = f" ({manifest.error['message']})" if manifest.error and "message" in manifest.error else ""
        return f"the leg did not finish, its record says {manifest.status}{said}"
    if not on_this_machine(manifest):
        return f"the leg did not finish, its record says {manifest.status} (on another machine)"
    if (pid := living_process(manifest)) is not None:
        return f"the leg has not finished, it still runs (process {pid})"
    return (
        f"the leg never ended: its record says {manifest.status}, but its process "
        f"{manifest.pid or manifest.parent_pid} is gone "
        "(killed, or without disk space for its last words)"
    )


def on_this_machine(manifest: Manifest) -> bool:
    """Whether the leg's processes are, or were, this machine's."""
    return bool(manifest.observed.host.hostname == platform.node())


def living_process(manifest: Manifest) -> int | None:
    """A process of this machine that runs the leg: its own, or the one that started it; None when both are gone."""
    processes = [pid for pid in (manifest.pid, manifest.parent_pid) if pid is not None]
    return next((pid for pid in processes if _lives(pid, manifest)), None)


def _lives(pid: int, manifest: Manifest) -> bool:
    if pid == os.getpid():  # who reads the record runs no leg meanwhile
        return False
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        age = age_s(process)
        return age is None or time.time_ns() - age * 1e9 <= (manifest.start_time_ns or 0) + _REUSED_AFTER_NS
    except psutil.Error:
        return False
