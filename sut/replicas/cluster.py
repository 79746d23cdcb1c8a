"""Replicas on the nodes of a Ray cluster, as a run and its parent see them.

Ray places the replicas, ends them and brings their output; queries use the transport of replicas on one machine
(transport.py). Only separate processes import Ray: cluster_process.py, which examines the nodes for a run's parent and
starts replicas for a run, and the actors on the nodes (cluster_actors.py).
"""

import contextlib
import os
import subprocess
import sys
import threading
from typing import IO, Any

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError

from runs.errors import Ending, SetupError, error_of
from runs.harness import HARNESS_ROOT, module_path
from runs.processes.child import run_program
from runs.record.manifest import ClusterNode, ClusterPlan, ReplicaPlace
from sut.engine_kind import RunFacts
from sut.planned_replica import PlannedReplica
from sut.replicas.messages import ReplicaSpec
from sut.replicas.processes import Processes, placement_text

SURVEY_TIMEOUT_S = 360
END_TIMEOUT_S = 12.0
# Ray settings: print every line of a replica, without colors, for engine.log.
_LOG_ALL_LINES = {"RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0", "PYTHONUNBUFFERED": "1"}


class PlanRequest(BaseModel):
    """A request to plan replicas; `asked` are the options of the engine's kind."""

    model_config = ConfigDict(defer_build=True)

    engine: str
    asked: dict[str, Any]
    run: RunFacts
    count: int | None  # None = the number that suits the nodes


class SurveyRequest(BaseModel):
    """A message to the process that examines a cluster."""

    model_config = ConfigDict(defer_build=True)

    address: str  # address of Ray's head, or auto
    wanted: PlanRequest | None = None


class NodeFacts(ClusterNode):
    """The facts of a node from the survey."""

    resources: dict[str, float]  # resources that the node offers through Ray: CPU, GPU
    harness: dict[str, Any]  # fields of Manifest.harness
    clock_offset_ms: float  # how far its clock is ahead of the clock of this machine
    round_trip_ms: float | None  # shortest TCP round trip to this machine's address
    unreachable: str | None  # why the node cannot reach that address; None if it can


class Survey(BaseModel):
    """The response: the living nodes, and the requested replicas with their node's number."""

    model_config = ConfigDict(defer_build=True)

    address: str = ""
    listen_on: str = ""
    nodes: list[NodeFacts] = []
    planned: list[PlannedReplica] = []
    trouble: dict[str, Any] | None = None  # runs.errors.error_record


class LaunchOrder(BaseModel):
    """A message to the process that starts a run's replicas: `ReplicaSpec`s as plain data, and their nodes' IDs."""

    model_config = ConfigDict(defer_build=True)

    address: str
    specs: list[dict[str, Any]]
    nodes: list[str]
    labels: list[str]  # prefix of each replica's lines in the log


class LaunchEvent(BaseModel):
    """A message from that process: a replica started on these devices, a replica ended, or no replica can start."""

    model_config = ConfigDict(defer_build=True)

    replica: int = -1
    devices: list[str] | None = None
    ended: str | None = None
    trouble: dict[str, Any] | None = None  # runs.errors.error_record


def survey_cluster(address: str, wanted: PlanRequest | None = None) -> Survey:
    """Return the living nodes, and replicas planned for them if requested.

    Raises:
        InputError, SetupError: If Ray or the cluster is missing, or the nodes have no capacity for the replicas.
    """
    request = SurveyRequest(address=address, wanted=wanted)
    try:
        done = run_program(
            _command("survey"), cwd=HARNESS_ROOT, env=_variables(), message=_line(request), timeout_s=SURVEY_TIMEOUT_S
        )
        survey = Survey.model_validate_json(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired as error:
        raise SetupError(
            f"--cluster {address}: the nodes did not respond for {SURVEY_TIMEOUT_S} s",
            "check the nodes with `ray status`",
        ) from error
    except (IndexError, ValidationError) as error:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise SetupError(
            f"--cluster {address}: the cluster cannot be examined: {lines[-1]}", "see `ray status`"
        ) from error
    if survey.trouble is not None:
        raise error_of(survey.trouble)
    return survey


class ClusterProcesses(Processes):
    """The processes of replicas on the nodes of a plan.

    Args:
        places: one for each replica.
    """

    def __init__(self, cluster: ClusterPlan, places: list[ReplicaPlace]) -> None:
        self.listen_on = cluster.listen_on
        self._address = cluster.address
        self._nodes = [cluster.nodes[place.node or 0] for place in places]
        self._cores = [place.cores for place in places]
        self._devices = [place.devices for place in places]
        self._ended: dict[int, str] = {}
        self._trouble: Ending | None = None

    def start(self, specs: list[ReplicaSpec]) -> None:
        order = LaunchOrder(
            address=self._address,
            specs=[msgspec.to_builtins(spec) for spec in specs],
            nodes=[node.id for node in self._nodes],
            labels=[f"replica {spec.index}, {node.name}" for spec, node in zip(specs, self._nodes, strict=True)],
        )
        self._process = _start(order)
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), name="cluster", daemon=True).start()

    def where(self, index: int) -> str:
        return f"{placement_text(self._devices[index], self._cores[index])}, host {self._nodes[index].name}"

    def ended(self, index: int) -> str | None:
        if self._trouble is not None:
            raise self._trouble
        return self._ended.get(index)

    def end(self) -> None:
        """End all replicas, and wait until Ray has released their resources."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # Ray ends the remaining processes of a job

    def _listen(self, lines: IO[bytes]) -> None:
        for line in lines:
            event = LaunchEvent.model_validate_json(line)
            if event.trouble is not None:
                self._trouble = error_of(event.trouble)
            if event.devices is not None:
                self._devices[event.replica] = event.devices
            if event.ended is not None:
                self._ended[event.replica] = event.ended
        for index in range(len(self._devices)):  # Ray ends this process when the cluster's head is lost
            self._ended.setdefault(
                index, f"because the process that starts replicas with Ray ended with exit code {self._process.wait()}"
            )


def _start(order: LaunchOrder) -> "subprocess.Popen[bytes]":
    """Start the process that starts replicas with Ray, in this process group."""
    process = subprocess.Popen(
        _command("launch"), cwd=HARNESS_ROOT, env=_variables(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # the reader notices that the process has ended
        process.stdin.write(_line(order))
        process.stdin.flush()
    return process


def _command(job: str) -> list[str]:
    return [sys.executable, "-m", "sut.replicas.cluster_process", job]


def _variables() -> dict[str, str]:
    return {**os.environ, **_LOG_ALL_LINES, **module_path()}


def _line(message: SurveyRequest | LaunchOrder) -> bytes:
    return message.model_dump_json().encode() + b"\n"
