"""The state of an unfinished run: running or killed, as its manifest and the processes of this machine show."""

import os
import platform
import time

import psutil

from runs.processes.age import age_s
from runs.record.manifest import Manifest

# A run's processes start at most this much later than the time in its manifest. Later processes reuse the process ID.
_REUSED_AFTER_NS = 60 * 10**9


def unfinished(manifest: Manifest) -> str:
    """Return why a run did not finish, as a sentence without a full stop.

    The status `running` in a manifest is no proof: the process that closes the manifest may have been killed,
    or the disk was full.
    """
    text = f"the run did not finish: its manifest has the status {manifest.status}"
    if manifest.status not in ("planned", "running"):
        return text + (f" ({manifest.error['message']})" if manifest.error and "message" in manifest.error else "")
    if not on_this_machine(manifest):
        return f"{text} (on another machine)"
    if (pid := living_process(manifest)) is not None:
        return f"the run has not finished: process {pid} is running"
    return (
        f"the run did not end: its manifest has the status {manifest.status}, but its process "
        f"{manifest.pid or manifest.parent_pid} has ended (it was killed, or the disk was full)"
    )


def on_this_machine(manifest: Manifest) -> bool:
    """Return whether the run's processes are, or were, on this machine."""
    return bool(manifest.observed.host.hostname == platform.node())


def living_process(manifest: Manifest) -> int | None:
    """Return the run's process on this machine, or the process that started it; None if both have ended."""
    processes = [pid for pid in (manifest.pid, manifest.parent_pid) if pid is not None]
    return next((pid for pid in processes if lives(pid, manifest)), None)


def lives(pid: int, manifest: Manifest) -> bool:
    """Return whether a process of this machine belongs to the run, also after the run has ended."""
    if pid == os.getpid():  # a reused process ID: the reader of a manifest starts no run
        return False
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        age = age_s(process)
        return age is None or time.time_ns() - age * 1e9 <= manifest.start_time_ns + _REUSED_AFTER_NS
    except psutil.Error:
        return False
