"""Whether a leg that did not finish still runs, by its record and the processes of this machine."""

import os
import platform
import time

import psutil

from runs.processes import age_s
from runs.record.manifest import Manifest

# A leg's processes start before its record's start time, or at most this much later; younger ones reuse the number.
_REUSED_AFTER_NS = 60 * 10**9


def unfinished(manifest: Manifest) -> str:
    """Why a leg whose status is not `finished` did not finish, as a sentence without a full stop.

    A record that says `running` does not prove that the leg runs: the process that closes it may have been killed, or
    the disk was full.
    """
    text = f"the leg did not finish, its record says {manifest.status}"
    if manifest.status not in ("planned", "running"):
        return text + (f" ({manifest.error['message']})" if manifest.error and "message" in manifest.error else "")
    if not on_this_machine(manifest):
        return f"{text} (on another machine)"
    if (pid := living_process(manifest)) is not None:
        return f"the leg has not finished, it still runs (process {pid})"
    return (
        f"the leg never ended: its record says {manifest.status}, but its process "
        f"{manifest.pid or manifest.parent_pid} is gone (killed, or the disk was full)"
    )


def on_this_machine(manifest: Manifest) -> bool:
    """Whether the leg's processes are, or were, this machine's."""
    return bool(manifest.observed.host.hostname == platform.node())


def living_process(manifest: Manifest) -> int | None:
    """A process of this machine that runs the leg: its own, or the one that started it; None when both are gone."""
    processes = [pid for pid in (manifest.pid, manifest.parent_pid) if pid is not None]
    return next((pid for pid in processes if _lives(pid, manifest)), None)


def _lives(pid: int, manifest: Manifest) -> bool:
    if pid == os.getpid():  # the reader of a record runs no leg
        return False
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        age = age_s(process)
        return age is None or time.time_ns() - age * 1e9 <= manifest.start_time_ns + _REUSED_AFTER_NS
    except psutil.Error:
        return False
