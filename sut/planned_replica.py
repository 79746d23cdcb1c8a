"""One of several engines, as it is planned."""

from dataclasses import dataclass

from runs.record.manifest import ReplicaPlace
from sut.engine_kind import EnginePlan


@dataclass(frozen=True)
class PlannedReplica:
    """A place, with the environment of its process, and the plan of the engine there."""

    place: ReplicaPlace
    engine: EnginePlan
