"""What is said to the processes that use Ray, and by them: a line of JSON each."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from runs.record.manifest import ClusterNode
from sut.engine_kind import LegFacts
from sut.replicas.replica_places import PlannedReplica

TIME_BYTES = 8  # of a time in ns, as NodeProbe.clock is told it


class Message(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Wanted(Message):
    """What replicas are to be planned for; `asked` are the options of the engine's kind."""

    engine: str
    asked: dict[str, Any]
    leg: LegFacts
    count: int | None  # None = as many as suit the nodes


class Question(Message):
    """To survey.py."""

    address: str  # of Ray's head, or auto
    wanted: Wanted | None = None


class NodeFacts(ClusterNode):
    """A node as the survey finds it."""

    resources: dict[str, float]  # what it offers through Ray: CPU, GPU
    harness: dict[str, Any]  # as in Manifest.harness
    clock_offset_ms: float | None  # what its clock is ahead of this machine's
    round_trip_ms: float | None  # of one byte to this machine's address, by TCP, the shortest of several
    unreachable: str | None  # why that address cannot be reached from there; None where it can


class Survey(Message):
    """The answer of survey.py: the living nodes, and replicas with their node's number where they were wanted."""

    address: str = ""
    listen_on: str = ""
    nodes: list[NodeFacts] = []
    planned: list[PlannedReplica] = []
    trouble: dict[str, Any] | None = None  # runs.errors.error_record


class Order(Message):
    """To driver.py: replicas (`ReplicaSpec` as plain data), and for each the id of its node."""

    address: str
    specs: list[dict[str, Any]]
    nodes: list[str]
    labels: list[str]  # before its lines in the log


class Told(Message):
    """By driver.py: that a replica was started on these devices, that it ended and how, or that nothing can start.

    With nothing in it: Ray's head answers.
    """

    replica: int = -1
    devices: list[str] | None = None
    ended: str | None = None
    trouble: dict[str, Any] | None = None  # runs.errors.error_record
