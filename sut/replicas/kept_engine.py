"""An engine that outlives a run: LoadGen needs a new process for each run, the engine does not.

`EngineKeeper` belongs to the command that starts the runs. It starts the engine's replicas when the first run is
planned; each waits for runs on a Unix socket in a temporary folder. A run reaches them with `KeptProcesses`: it sends
its `ReplicaSpec` and keeps the connection open while it lasts, so that each side sees the end of the other, whatever
ends it. Everything else is the transport of replicas (sut/replicas/transport.py).
"""

import contextlib
import os
import platform
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from runs.errors import ExecutionError, InputError
from runs.files.temporary import temporary_folder
from runs.processes.child import owned
from runs.processes.interrupts import critical
from runs.record.manifest import KeptEngine, ReplicaPlace, ReplicasPlan, RunPlan
from sut.replicas.messages import ReplicaSpec
from sut.replicas.processes import Processes, ReplicaProcess, placement_text, spec_of

MAX_RESTARTS = 2
MAX_LOG_BYTES = 4 << 20  # maximum size copied at a time


class EngineKeeper(contextlib.AbstractContextManager["EngineKeeper"]):
    """Keeps one engine for the runs of a command, and ends it with the command.

    Args:
        log: File for the output of the engine; a restarted engine appends to it.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._at_the_end = contextlib.ExitStack()
        self._processes: list[ReplicaProcess] = []
        self._plan: RunPlan | None = None  # plan with which the engine was started
        self._kept: KeptEngine | None = None
        self._runs = 0  # on the engine that runs
        self.starts = 0
        self._number = 1  # of the engine that the runs want
        self.engine_plan: RunPlan | None = None  # plan of the engine; None = each run's plan

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the engine. The next run starts another."""
        self._at_the_end.close()
        self._processes, self._plan, self._kept, self._runs = [], None, None, 0

    def use(self, number: int) -> None:
        """Start a new engine for the next run, unless the engine with this number runs."""
        if number != self._number:
            self.stop()
            self.starts, self._number = 0, number

    def take(self, plan: RunPlan) -> RunPlan:
        """Return the plan of a run on this engine, which is started first unless it runs.

        Raises:
            InputError: The plan has a cluster.
            ExecutionError: The engine ended too often.
        """
        if plan.replicas is not None and plan.replicas.cluster is not None:
            raise InputError("--cluster: an engine on a cluster serves one run only", "use --replicas")
        planned = self.engine_plan or plan
        if self._plan is not None and _fixed(planned) != _fixed(self._plan):
            self.stop()
            self.starts = 0
        if any(process.ended() is not None for process in self._processes):
            self.stop()
        if self._kept is None:
            if self.starts > MAX_RESTARTS:
                raise ExecutionError(f"the engine ended {self.starts} times", f"see {self._log}")
            self._start(planned)
        assert self._plan is not None
        assert self._kept is not None
        self._runs += 1
        replicas = ReplicasPlan(places=_places(self._plan), kept=self._kept.model_copy(update={"run": self._runs}))
        return plan.model_copy(update={**_fixed(self._plan), "replicas": replicas, "environment": {}})

    def _start(self, plan: RunPlan) -> None:
        with contextlib.ExitStack() as started:
            with critical():
                folder = started.enter_context(temporary_folder("engine-"))
            output = started.enter_context(self._log.open("ab"))
            for index, place in enumerate(_places(plan)):
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(str(_address(folder, index)))
                    listener.listen()
                    spec = spec_of(plan, index, place, kept=True, listen_fd=listener.fileno())
                    with critical():
                        process = ReplicaProcess(spec, own_group=True, output=output, temporary=str(folder))
                        started.enter_context(owned(process.process, str(folder)))
                self._processes.append(process)
            self._at_the_end = started.pop_all()
        self.starts += 1
        self._plan = plan
        self._kept = KeptEngine(folder=str(folder), start_time_ns=time.time_ns(), run=1, log=str(self._log.resolve()))


def _fixed(plan: RunPlan) -> dict[str, Any]:
    return plan.model_dump(include={"engine", "engine_options", "model_path"})  # fixed by the start of the engine


def _places(plan: RunPlan) -> list[ReplicaPlace]:
    return [ReplicaPlace(environment=plan.environment)] if plan.replicas is None else plan.replicas.places


def _address(folder: Path, index: int) -> Path:
    return folder / f"{index}.sock"


class KeptProcesses(Processes):
    """The replicas of a kept engine, as one of its runs sees them."""

    listen_on = "127.0.0.1"

    def __init__(self, kept: KeptEngine) -> None:
        self._kept = kept
        self._connections: list[socket.socket] = []
        self._log_bytes = 0  # copied

    def copy_log(self) -> None:
        """Copy what is new in the engine's log to this process's output, the log of the run."""
        with contextlib.suppress(OSError), Path(self._kept.log).open("rb") as log:
            log.seek(self._log_bytes)
            content = log.read(MAX_LOG_BYTES)
            self._log_bytes += len(content)
            os.write(sys.stdout.fileno(), content)

    def start(self, specs: list[ReplicaSpec]) -> None:
        """Raises:
        ExecutionError: The engine has ended.
        """
        self._specs = specs
        for spec in specs:
            connection = socket.socket(socket.AF_UNIX)
            self._connections.append(connection)
            try:
                connection.connect(str(_address(Path(self._kept.folder), spec.index)))
                connection.sendall(msgspec.json.encode(spec) + b"\n")
            except OSError as error:
                raise ExecutionError(
                    f"the kept engine cannot be reached: {os.strerror(error.errno or 0)}", f"see {self._kept.log}"
                ) from error
            connection.setblocking(False)

    def where(self, index: int) -> str:
        spec = self._specs[index]
        return f"{placement_text(spec.devices, spec.cores)}, host {platform.node()}, kept engine"

    def ended(self, index: int) -> str | None:
        try:
            content = self._connections[index].recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError as error:
            return f"connection lost ({os.strerror(error.errno or 0)})"
        return None if content else f"or closed its connection; see {self._kept.log}"

    def end(self) -> None:
        for connection in self._connections:
            connection.close()
