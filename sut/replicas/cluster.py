"""Replicas on the nodes of a Ray cluster, as a leg and its parent see them.

Ray places them, watches them, ends them and brings what they print; queries go by the transport that replicas on one
machine have (transport.py). Ray is imported only in processes of its own (cluster_process.py), which a leg's parent
asks what there is and a leg has start and watch its replicas, and in those that Ray starts on the nodes
(cluster_actors.py).
"""

import contextlib
import os
import subprocess
import sys
import threading
from typing import IO, Any

import msgspec
from pydantic import BaseModel, ValidationError

from runs.environment import HARNESS_ROOT, module_path
from runs.errors import HarnessError, SetupError, error_of
from runs.record.manifest import ClusterNode, ClusterPlan, ReplicaPlace
from sut.engine_kind import LegFacts, PlannedReplica
from sut.replicas.messages import ReplicaSpec
from sut.replicas.processes import Processes, place_of

SURVEY_TIMEOUT_S = 360
END_TIMEOUT_S = 12.0
TIME_BYTES = 8  # of a time in ns, as a node is told it
LOOK_S = 1.0
# In vain; a pause of this process or its machine is one of them, however long. Engines that start on the head's own
# cores were seen to keep it from answering for 12 s.
SILENT_LOOKS = 30
# Each line of a replica is to be in engine.log, and without colours.
_SAYS_ALL = {"RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0", "PYTHONUNBUFFERED": "1"}


class PlanRequest(BaseModel):
    """What replicas are to be planned for; `asked` are the options of the engine's kind."""

    engine: str
    asked: dict[str, Any]
    leg: LegFacts
    count: int | None  # None = as many as suit the nodes


class SurveyRequest(BaseModel):
    """To a process that looks at a cluster."""

    address: str  # of Ray's head, or auto
    wanted: PlanRequest | None = None


class NodeFacts(ClusterNode):
    """A node as the survey finds it."""

    resources: dict[str, float]  # what it offers through Ray: CPU, GPU
    harness: dict[str, Any]  # as in Manifest.harness
    clock_offset_ms: float | None  # what its clock is ahead of this machine's
    round_trip_ms: float | None  # of one byte to this machine's address, by TCP, the shortest of several
    unreachable: str | None  # why that address cannot be reached from there; None where it can


class Survey(BaseModel):
    """The answer: the living nodes, and replicas with their node's number where they were wanted."""

    address: str = ""
    listen_on: str = ""
    nodes: list[NodeFacts] = []
    planned: list[PlannedReplica] = []
    trouble: dict[str, Any] | None = None  # runs.errors.error_record


class LaunchOrder(BaseModel):
    """To a process that keeps a leg's replicas: each as a `ReplicaSpec` in plain data, and the id of its node."""

    address: str
    specs: list[dict[str, Any]]
    nodes: list[str]
    labels: list[str]  # before its lines in the log


class LaunchEvent(BaseModel):
    """From there: that a replica was started on these devices, that it ended and how, or that nothing can start.

    With nothing in it: Ray's head answers.
    """

    replica: int = -1
    devices: list[str] | None = None
    ended: str | None = None
    trouble: dict[str, Any] | None = None  # runs.errors.error_record


def look_at_cluster(address: str, wanted: PlanRequest | None = None) -> Survey:
    """The living nodes, and replicas planned for them where some are wanted.

    Raises:
        InputError, SetupError: there is no Ray, no such cluster, or no place for the replicas.
    """
    process = _start("look", SurveyRequest(address=address, wanted=wanted), stderr=subprocess.PIPE)
    try:
        told, errors = process.communicate(timeout=SURVEY_TIMEOUT_S)
        survey = Survey.model_validate_json(told.splitlines()[-1])
    except subprocess.TimeoutExpired as error:
        raise SetupError(
            f"--cluster {address}: the nodes did not answer for {SURVEY_TIMEOUT_S} s", "see `ray status`"
        ) from error
    except (IndexError, ValidationError) as error:
        words = errors.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise SetupError(
            f"--cluster {address}: the cluster cannot be asked: {words[-1]}", "see `ray status`"
        ) from error
    finally:
        process.kill()
        process.communicate()
    if survey.trouble is not None:
        raise error_of(survey.trouble)
    return survey


class ClusterProcesses(Processes):
    """Replicas on the nodes of a plan.

    Args:
        places: one a replica.
    """

    def __init__(self, cluster: ClusterPlan, places: list[ReplicaPlace]) -> None:
        self.listen_on = cluster.listen_on
        self._address = cluster.address
        self._nodes = [cluster.nodes[place.node or 0] for place in places]
        self._cores = [place.cores for place in places]
        self._devices = [place.devices for place in places]
        self._ended: dict[int, str] = {}
        self._trouble: HarnessError | None = None
        self._heard = threading.Event()

    def start(self, specs: list[ReplicaSpec]) -> None:
        order = LaunchOrder(
            address=self._address,
            specs=[msgspec.to_builtins(spec) for spec in specs],
            nodes=[node.id for node in self._nodes],
            labels=[f"replica {spec.index}, {node.name}" for spec, node in zip(specs, self._nodes, strict=True)],
        )
        self._process = _start("launch", order)
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), name="cluster", daemon=True).start()
        threading.Thread(target=self._watch_head, name="head", daemon=True).start()

    def where(self, index: int) -> str:
        return f"{place_of(self._devices[index], self._cores[index])}, host {self._nodes[index].name}"

    def ended(self, index: int) -> str | None:
        if self._trouble is not None:
            raise self._trouble
        return self._ended.get(index)

    def end(self) -> None:
        """And wait until Ray has let go of what they had."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # Ray ends what a job leaves behind

    def _listen(self, lines: IO[bytes]) -> None:
        for line in lines:
            event = LaunchEvent.model_validate_json(line)
            self._heard.set()
            if event.trouble is not None:
                self._trouble = error_of(event.trouble)
            if event.devices is not None:
                self._devices[event.replica] = event.devices
            if event.ended is not None:
                self._ended[event.replica] = event.ended
        self._all_ended(f"with the process that holds them by Ray, exit code {self._process.wait()}")

    def _watch_head(self) -> None:
        self._heard.wait()
        silent = 0
        while silent < SILENT_LOOKS:
            self._heard.clear()
            silent = 0 if self._heard.wait(LOOK_S) else silent + 1
        self._all_ended(f"or Ray did: its head at {self._address} sends no heartbeat")

    def _all_ended(self, how: str) -> None:
        for index in range(len(self._devices)):
            self._ended.setdefault(index, how)


def _start(job: str, message: SurveyRequest | LaunchOrder, stderr: int | None = None) -> "subprocess.Popen[bytes]":
    """A process that uses Ray, in this process group."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sut.replicas.cluster_process", job],
        cwd=HARNESS_ROOT,
        env={**os.environ, **_SAYS_ALL, **module_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # one that has ended is noticed by who listens to it
        process.stdin.write(message.model_dump_json().encode() + b"\n")
        process.stdin.flush()
    return process
