"""The processes of a run's replicas: their interface, and the processes on this machine."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
from typing import IO, Any, Protocol

import msgspec

from runs.harness import module_path
from runs.record.manifest import ReplicaPlace, RunPlan
from sut.replicas.messages import ReplicaSpec


def spec_of(plan: RunPlan, index: int, place: ReplicaPlace, **of_run: Any) -> ReplicaSpec:
    """Return the specification of a replica; without a run it has no address and no keys."""
    no_run = dict.fromkeys(("address", "run_key", "public_key", "secret_key"), "")
    own_plan = plan.model_copy(update={"environment": place.environment}).model_dump(mode="json")
    facts = place.model_dump(include={"cores", "devices", "numa_node", "variables"})
    return ReplicaSpec(**{**no_run, **of_run}, index=index, plan=own_plan, **facts)


class Processes(Protocol):
    """The processes of a run's replicas."""

    listen_on: str  # address of the run that the replicas can reach

    def start(self, specs: list[ReplicaSpec]) -> None:
        """Start a replica for each specification. Called once, on the loop."""

    def where(self, index: int) -> str:
        """Return a replica's devices or cores and its host as text."""

    def ended(self, index: int) -> str | None:
        """Return how a replica's process ended; None while it runs.

        Raises:
            HarnessError: If no replica could be started.
        """

    def end(self) -> None:
        """End all replicas and their child processes."""

    def copy_log(self) -> None:
        """Copy the output of replicas to that of the run, unless they write there themselves."""
        return


class LocalProcesses(Processes):
    """Replicas in this process group, which end with it."""

    listen_on = "127.0.0.1"

    def start(self, specs: list[ReplicaSpec]) -> None:
        self._specs = specs
        self._processes = [ReplicaProcess(spec) for spec in specs]

    def where(self, index: int) -> str:
        spec = self._specs[index]
        return f"{placement_text(spec.devices, spec.cores)}, host {platform.node()}"

    def ended(self, index: int) -> str | None:
        return self._processes[index].ended()

    def end(self) -> None:
        for process in self._processes:
            process.end()


class ReplicaProcess:
    """A replica on this machine. It shares the output of this process, and ends when its standard input closes with
    this process.

    Args:
        own_group: whether the replica leads its own process group.
        output: File for its output; None: the output of this process.
        temporary: Its directory for temporary files; "": that of this process.
    """

    def __init__(
        self, spec: ReplicaSpec, *, own_group: bool = False, output: IO[bytes] | None = None, temporary: str = ""
    ) -> None:
        # The plan's variables come first: libraries that change a process's title search for the first variable, so a
        # library must not change that variable.
        variables = {**spec.plan["environment"], **os.environ, **spec.variables, **module_path()}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sut.replicas.replica", spec.plan["engine"]],  # the engine for those who read `ps`
            env={**variables, "PYTHONUNBUFFERED": "1", **({"TMPDIR": temporary} if temporary else {})},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=own_group,
            pass_fds=() if spec.listen_fd is None else (spec.listen_fd,),
        )
        self.pid = self.process.pid
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `ended` reports a process that has ended already
            self.process.stdin.write(msgspec.json.encode(spec) + b"\n")
            self.process.stdin.flush()

    def ended(self) -> str | None:
        """Return how the process ended; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        return f"exit code {code}" + (f" ({signal.Signals(-code).name})" if code < 0 else "")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def placement_text(devices: list[str], cores: list[int]) -> str:
    """Return a replica's devices or cores as text."""
    if devices:
        return f"device {','.join(devices)}"
    return f"cores {','.join(map(str, cores))}" if cores else "all cores"
