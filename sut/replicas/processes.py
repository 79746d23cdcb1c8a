"""The processes of a leg's replicas; here those on this machine, which are in the leg's process group."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
import time
from typing import Protocol

import msgspec
import psutil

from runs.environment import module_path
from sut.replicas.messages import ReplicaSpec

STOPPED_S = 20.0


class Processes(Protocol):
    """What runs the replicas of a leg."""

    listen_on: str  # the leg's address that the replicas can reach

    def start(self, specs: list[ReplicaSpec]) -> None:
        """Start a replica for each. Called once, on the loop."""

    def where(self, index: int) -> str:
        """A replica's devices or cores and its host, for a person."""

    def ended(self, index: int) -> str | None:
        """How a replica's process ended, None while it runs. To be called every few seconds.

        Raises:
            HarnessError: none could be started.
        """

    def end(self) -> None:
        """End all replicas, and whatever they started."""


class LocalProcesses(Processes):
    """Replicas in this process group, with which they end."""

    listen_on = "127.0.0.1"

    def start(self, specs: list[ReplicaSpec]) -> None:
        self._specs = specs
        self._processes = [ReplicaProcess(spec) for spec in specs]

    def where(self, index: int) -> str:
        spec = self._specs[index]
        return f"{place_of(spec.devices, spec.cores)}, host {platform.node()}"

    def ended(self, index: int) -> str | None:
        return self._processes[index].ended()

    def end(self) -> None:
        for process in self._processes:
            process.end()


class ReplicaProcess:
    """A replica on this machine. It writes where this process writes, and ends when its standard input closes, as it
    does with this process.

    Args:
        own_group: it leads a process group of its own.
    """

    def __init__(self, spec: ReplicaSpec, *, own_group: bool = False) -> None:
        # The plan's come first: libraries that give a process another title find it by the first variable, which must
        # not be one that a library sets anew.
        variables = {**spec.plan["environment"], **os.environ, **spec.variables, **module_path()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sut.replicas.replica"],
            env={**variables, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            start_new_session=own_group,
        )
        self.pid = self._process.pid
        self._standstill = Standstill(self.pid)
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(spec) + b"\n")
        self._process.stdin.flush()

    def ended(self) -> str | None:
        """How it ended, None while it runs. To be called every few seconds."""
        code = self._process.poll()
        if code is not None:
            return f"exit code {code}" + (f" ({signal.Signals(-code).name})" if code < 0 else "")
        return f"or as good as that: a signal stopped it {STOPPED_S:.0f} s ago" if self._standstill.lasts() else None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Standstill:
    """Whether a signal has stopped a process of this machine for so long that nobody waits for it any more."""

    def __init__(self, pid: int, longest_s: float = STOPPED_S) -> None:
        self._longest_s = longest_s
        self._process = psutil.Process(pid)
        self._ran_s = time.monotonic()

    def lasts(self) -> bool:
        """To be called every few seconds."""
        with contextlib.suppress(psutil.Error):
            if self._process.status() != psutil.STATUS_STOPPED:
                self._ran_s = time.monotonic()
        return time.monotonic() - self._ran_s > self._longest_s


def place_of(devices: list[str], cores: list[int]) -> str:
    """A replica's devices or cores, for a person."""
    if devices:
        return f"device {','.join(devices)}"
    return f"cores {','.join(map(str, cores))}" if cores else "all cores"
