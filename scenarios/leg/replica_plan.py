"""How many replicas a leg has, and what each of them is started with."""

from typing import Any

from runs.errors import InputError
from runs.record.manifest import ReplicasPlan
from scenarios.leg.config import RunConfig
from sut.engine_kind import EngineKind, EnginePlan, LegFacts


def plan_engine(kind: EngineKind[Any], config: RunConfig, leg: LegFacts) -> tuple[EnginePlan, ReplicasPlan | None]:
    """The engine's plan, which is that of each replica where there are several, and theirs.

    Raises:
        InputError, SetupError: see the message.
    """
    why = ""
    if config.replicas is None:
        why = kind.wants_replicas(config, leg)
        if not why:
            return kind.plan(config, leg), None
    count = None if config.replicas in (None, "auto") else int(config.replicas)
    places = kind.places(config, leg, count)
    if count is None and len(places) == 1 and not kind.beside:
        return kind.plan(config, leg), None
    plans = [kind.at(place, len(places)).plan(config, leg) for place in places]
    first = plans[0]
    for plan in plans:
        if plan.options != first.options:
            raise InputError(
                f"--replicas {config.replicas}: the places are not alike, and make engines of different options",
                "choose the devices, so that all are of one kind",
            )
    places = [
        place.model_copy(update={"environment": dict(plan.environment)})
        for place, plan in zip(places, plans, strict=True)
    ]
    if why:
        first.notes.insert(0, why)
    first.environment.clear()  # each replica's own; the leg's process computes nothing
    return first, ReplicasPlan(routing=config.routing, places=places)
