"""Processes that Ray starts on a node. Both classes become Ray actors."""

import os
import socket
import subprocess
import time
from typing import Any

import msgspec
import ray

from runs.errors import HarnessError, error_record
from runs.harness import harness_facts
from runs.machine.accelerators import accelerators
from runs.machine.environment import host_facts, software_versions
from sut.engines import engine_kind
from sut.planned_replica import PlannedReplica, plan_replicas
from sut.replicas.cluster import PlanRequest
from sut.replicas.messages import ReplicaSpec
from sut.replicas.processes import ReplicaProcess

CONNECTIONS = 10
CONNECT_TIMEOUT_S = 5.0
POLL_S = 0.5


class NodeProbe:
    """An actor that reports its node and plans replicas for it. Responses are plain data."""

    def facts(self, host: str, port: int) -> dict[str, Any]:
        """Return the part of `NodeFacts` that only the node can measure.

        Args:
            host, port: an address of the run's machine that accepts connections.
        """
        trips_s, unreachable = [], None
        try:
            for _ in range(CONNECTIONS):
                start_s = time.perf_counter()
                socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
                trips_s.append(time.perf_counter() - start_s)
        except OSError as error:
            unreachable = str(error)
        return {
            "host": host_facts(),
            "accelerator": accelerators(),
            "software": {**software_versions(), "ray": ray.__version__},
            "harness": harness_facts(),
            "round_trip_ms": round(min(trips_s) * 1e3, 3) if trips_s else None,
            "unreachable": unreachable,
        }

    def time_ns(self) -> int:
        return time.time_ns()

    def plan(self, wanted: PlanRequest) -> list[PlannedReplica] | dict[str, Any]:
        """Return the plans for this node, or the error that refuses them."""
        kind = engine_kind(wanted.engine)
        try:
            return plan_replicas(kind, kind.options.model_validate(wanted.asked), wanted.run, wanted.count)
        except HarnessError as error:
            return error_record(error)


class ReplicaKeeper:
    """An actor with one replica as its child.

    Args:
        label: prefix of the replica's lines in the log.
        variables: variables from the user's environment for the replica, as opposed to Ray's.
        zone: the run's time zone, so that all stamps in engine.log are of one.
    """

    def __init__(self, label: str, variables: list[str], zone: str) -> None:
        self._label = label
        self._raylet = os.getppid()
        os.environ["TZ"] = zone
        if "OMP_NUM_THREADS" not in variables:
            os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets it to the number of cores of the bundle

    def __repr__(self) -> str:
        return self._label  # Ray prefixes each line of the actor and its children with it

    def launch(self, spec_json: bytes) -> list[str]:
        """Start the replica; returns the devices that Ray gave it."""
        spec = msgspec.json.decode(spec_json, type=ReplicaSpec)
        devices = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        if spec.devices and devices:
            spec.devices = devices
            spec.variables = {name: ",".join(devices) for name in spec.variables}
        self._process = ReplicaProcess(spec, own_group=True)
        _kill_with_this_process(self._process.pid)
        return spec.devices

    def wait(self) -> str:
        """Wait for the end of the replica, and return how it ended. If Ray ends meanwhile, this actor stays alive."""
        while (how := self._process.ended()) is None:
            if os.getppid() != self._raylet:
                os._exit(1)
            time.sleep(POLL_S)
        return how


def _kill_with_this_process(group: int) -> None:
    """Start a guardian that kills a process group after this process has ended in any way.

    The guardian waits for the end of a pipe. It is a grandchild of this process, because Ray kills an actor's children
    with the actor.
    """
    end_of_guardian, _ = os.pipe()  # the other end stays open until this process ends
    command = f"exec 3<&0; (read _ <&3; kill -9 -{group}) >/dev/null 2>&1 &"
    subprocess.run(["/bin/sh", "-c", command], stdin=end_of_guardian, start_new_session=True, check=True)
    os.close(end_of_guardian)
