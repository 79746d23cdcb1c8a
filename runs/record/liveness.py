"""Whether a run that did not finish has not ended, by its manifest and the processes of this machine."""

import os
import platform
import time

import psutil

from runs.processes import age_s
from runs.record.manifest import Manifest

# A run's processes start before the start time in its manifest, or at most this much later; younger ones reuse the
# number.
_REUSED_AFTER_NS = 60 * 10**9


def unfinished(manifest: Manifest) -> str:
    """Why a run whose status is not `finished` did not finish, as a sentence without a full stop.

    A record that says `running` does not prove that the run executes: the process that closes it may have been killed,
    or the disk was full.
    """
    text = f"the run did not finish, its manifest says {manifest.status}"
    if manifest.status not in ("planned", "running"):
        return text + (f" ({manifest.error['message']})" if manifest.error and "message" in manifest.error else "")
    if not on_this_machine(manifest):
        return f"{text} (on another machine)"
    if (pid := living_process(manifest)) is not None:
        return f"the run has not finished, it has not ended (process {pid})"
    return (
        f"the run never ended: its manifest says {manifest.status}, but its process "
        f"{manifest.pid or manifest.parent_pid} is gone (killed, or the disk was full)"
    )


def on_this_machine(manifest: Manifest) -> bool:
    """Whether the run's processes are, or were, this machine's."""
    return bool(manifest.observed.host.hostname == platform.node())


def living_process(manifest: Manifest) -> int | None:
    """A process of this machine that starts the run: its own, or the one that started it; None when both are gone."""
    processes = [pid for pid in (manifest.pid, manifest.parent_pid) if pid is not None]
    return next((pid for pid in processes if _lives(pid, manifest)), None)


def _lives(pid: int, manifest: Manifest) -> bool:
    if pid == os.getpid():  # the reader of a manifest starts no run
        return False
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        age = age_s(process)
        return age is None or time.time_ns() - age * 1e9 <= manifest.start_time_ns + _REUSED_AFTER_NS
    except psutil.Error:
        return False
