"""Replicas on this machine: processes in the leg's process group."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
import time

import msgspec
import psutil

from runs.environment import module_path
from sut.replicas.messages import ReplicaSpec
from sut.replicas.pool import ReplicaProcess

STOPPED_S = 20.0
LOOK_S = 1.0  # it takes some 20 µs


def launch(specs: list[ReplicaSpec]) -> list[ReplicaProcess]:
    """Start replicas in this process group, with which they end."""
    return [_process(spec) for spec in specs]


def start_replica(spec: ReplicaSpec, *, own_group: bool = False) -> "subprocess.Popen[bytes]":
    """Start a replica on this machine and tell it what it is. It writes where this process writes.

    It ends when its standard input closes, as it does with this process.

    Args:
        own_group: it leads a process group of its own.
    """
    variables = {**spec.plan["environment"], **os.environ, **spec.variables, **module_path(), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "sut.replicas.replica"],
        env=variables,
        stdin=subprocess.PIPE,
        start_new_session=own_group,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(spec) + b"\n")
    process.stdin.flush()
    return process


def _process(spec: ReplicaSpec) -> ReplicaProcess:
    process = start_replica(spec)

    def end() -> None:
        process.kill()
        process.wait()

    where = f"{place_of(spec.devices, spec.cores)}, host {platform.node()}"
    return ReplicaProcess(lambda: where, Ending(process), end)


class Ending:
    """Tells how a replica's process ended, None while it runs. To be called every few seconds.

    Args:
        process: a child of this one.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._standstill = Standstill(process.pid)

    def __call__(self) -> str | None:
        code = self._process.poll()
        if code is not None:
            return f"exit code {code}" + (f" ({signal.Signals(-code).name})" if code < 0 else "")
        return f"or as good as that: a signal stopped it {STOPPED_S:.0f} s ago" if self._standstill.lasts() else None


class Standstill:
    """Whether a signal has stopped a process of this machine for so long that nobody waits for it any more."""

    def __init__(self, pid: int, longest_s: float = STOPPED_S) -> None:
        self._longest_s = longest_s
        self._process = psutil.Process(pid)
        self._looked_s = self._ran_s = time.monotonic()

    def lasts(self) -> bool:
        """To be called every few seconds."""
        now_s = time.monotonic()
        if now_s - self._looked_s > LOOK_S:
            self._looked_s = now_s
            with contextlib.suppress(psutil.Error):
                if self._process.status() != psutil.STATUS_STOPPED:
                    self._ran_s = now_s
        return now_s - self._ran_s > self._longest_s


def place_of(devices: list[str], cores: list[int]) -> str:
    """A replica's devices or cores, for a person."""
    if devices:
        return f"device {','.join(devices)}"
    return f"cores {','.join(map(str, cores))}" if cores else "all cores"
