"""The plan of one of multiple engines."""

from dataclasses import dataclass

from runs.record.manifest import ReplicaPlace
from sut.engine_kind import EnginePlan


@dataclass(frozen=True)
class PlannedReplica:
    """The devices or cores of a replica, the environment of its process, and the plan of its engine."""

    place: ReplicaPlace
    engine: EnginePlan
