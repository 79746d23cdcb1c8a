"""The plans of multiple engines."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from runs.record.manifest import ReplicaPlace
from sut.engine_kind import EngineKind, EnginePlan, RunFacts


@dataclass(frozen=True)
class PlannedReplica:
    """The devices or cores of a replica, the environment of its process, and the plan of its engine."""

    place: ReplicaPlace
    engine: EnginePlan


def plan_replicas(kind: EngineKind[Any], options: BaseModel, run: RunFacts, count: int | None) -> list[PlannedReplica]:
    """Return the plan of each of `count` replicas; None = the number that suits the machine.

    Raises:
        InputError, SetupError: If the machine has too few devices or cores, or the engine cannot run on it.
    """
    places = kind.places(options, run, count)
    plans = [kind.at(place, len(places)).plan(options, run) for place in places]
    return [
        PlannedReplica(place.model_copy(update={"environment": dict(plan.environment)}), plan)
        for place, plan in zip(places, plans, strict=True)
    ]
