"""What runs on a node, in processes that Ray starts there. Both classes become Ray actors."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from typing import Any

import msgspec
import ray

from runs.accelerators import accelerators
from runs.environment import harness_facts, host_facts, software_versions
from runs.errors import HarnessError, error_record
from sut.engine_kind import PlannedReplica
from sut.engines import engine_kind
from sut.replicas.cluster import TIME_BYTES, PlanRequest
from sut.replicas.messages import ReplicaSpec
from sut.replicas.processes import ReplicaProcess, Standstill

PINGS = 20
PING_TIMEOUT_S = 5.0
UNASKED_S = 20.0  # a leg asks every second, and gives up a replica that it does not reach for 12 s


class NodeProbe:
    """Tells of its node, and plans for it. Answers are plain data."""

    def facts(self, host: str, port: int) -> dict[str, Any]:
        """What of `NodeFacts` only the node itself knows.

        Args:
            host, port: of the leg's machine, where the time is told.
        """
        return {
            "host": host_facts(),
            "accelerator": accelerators(),
            "software": {**software_versions(), "ray": ray.__version__},
            "harness": harness_facts(),
            **_clock(host, port),
        }

    def plan(self, wanted: PlanRequest) -> list[PlannedReplica] | dict[str, Any]:
        """Plans for this node; whatever refuses them comes back as it is."""
        kind = engine_kind(wanted.engine)
        try:
            return kind.plan_replicas(kind.options.model_validate(wanted.asked), wanted.leg, wanted.count)
        except HarnessError as error:
            return error_record(error)


def _clock(host: str, port: int) -> dict[str, Any]:
    """The time at an address of the leg's machine, against the time here (by the shortest of several trips)."""
    trips = []
    try:
        with socket.create_connection((host, port), PING_TIMEOUT_S) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(PINGS):
                start_ns = time.time_ns()
                line.sendall(b"?")
                there_ns = int.from_bytes(line.recv(TIME_BYTES, socket.MSG_WAITALL), "big")
                end_ns = time.time_ns()
                trips.append((end_ns - start_ns, (start_ns + end_ns) / 2 - there_ns))
    except OSError as error:
        return {"clock_offset_ms": None, "round_trip_ms": None, "unreachable": str(error)}
    trip_ns, offset_ns = min(trips)
    offset_ms, trip_ms = round(offset_ns / 1e6, 3), round(trip_ns / 1e6, 3)
    return {"clock_offset_ms": offset_ms, "round_trip_ms": trip_ms, "unreachable": None}


class ReplicaKeeper:
    """Has one replica as its child.

    Args:
        label: before the replica's lines in the log.
        variables: what the user's own environment says of the replica; Ray's guesses are not among it.
        zone: the leg's time zone, so that all stamps in engine.log are of one.
    """

    def __init__(self, label: str, variables: list[str], zone: str) -> None:
        self._label = label
        self._raylet = Standstill(os.getppid())
        os.environ["TZ"] = zone
        if "OMP_NUM_THREADS" not in variables:
            os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets it to the number of cores of the bundle

    def __repr__(self) -> str:
        return self._label  # Ray puts it before each line that the actor and its children print

    def launch(self, spec_json: bytes) -> list[str]:
        """Start the replica; returns the devices that Ray gave it."""
        spec = msgspec.json.decode(spec_json, type=ReplicaSpec)
        given = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        if spec.devices and given:
            spec.devices = given
            spec.variables = {name: ",".join(given) for name in spec.variables}
        self._process = ReplicaProcess(spec, own_group=True)
        self._guardian = _guard(self._process.pid)
        self._asked_s = time.monotonic()
        threading.Thread(target=self._end_unasked, name="leg", daemon=True).start()
        return spec.devices

    def _end_unasked(self) -> None:
        """Nobody asks any more: the leg is gone, and Ray cannot tell, as its part of this node or the head is too."""
        while time.monotonic() - self._asked_s < UNASKED_S:
            time.sleep(1)
        os._exit(1)

    def ended(self) -> str | None:
        """How it ended, once it has. Ray itself finds out after a minute that its part of a node was stopped."""
        self._asked_s = time.monotonic()
        return self._process.ended() or ("or will: Ray on its node was stopped" if self._raylet.lasts() else None)

    def end(self) -> None:
        """End it and whatever it started."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.end()
        os.close(self._guardian)


def _guard(group: int) -> int:
    """Kill a process group once this process is gone, in whatever way; returns what keeps the group alive.

    The guardian is no child of this process: Ray kills an actor's children with it, but not their children.
    """
    end_of_guardian, mine = os.pipe()
    command = f"exec 3<&0; (read _ <&3; kill -9 -{group}) >/dev/null 2>&1 &"
    subprocess.run(["/bin/sh", "-c", command], stdin=end_of_guardian, start_new_session=True, check=True)
    os.close(end_of_guardian)
    return mine
