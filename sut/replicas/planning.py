"""What each of several replicas on this machine is started with."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from runs.record.manifest import ReplicaPlace
from sut.engine_kind import EngineKind, EnginePlan, LegFacts


@dataclass(frozen=True)
class PlannedReplica:
    """A place, with the environment of its process, and the plan of the engine there."""

    place: ReplicaPlace
    engine: EnginePlan


def plan_here(kind: EngineKind[Any], asked: BaseModel, leg: LegFacts, count: int | None) -> list[PlannedReplica]:
    """Plans of `count` replicas; None = as many as suit this machine.

    Raises:
        InputError, SetupError: see the message.
    """
    places = kind.places(asked, leg, count)
    plans = [kind.at(place, len(places)).plan(asked, leg) for place in places]
    return [
        PlannedReplica(place.model_copy(update={"environment": dict(plan.environment)}), plan)
        for place, plan in zip(places, plans, strict=True)
    ]
