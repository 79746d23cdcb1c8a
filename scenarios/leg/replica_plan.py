"""How many replicas a leg has, where, and what each of them is started with."""

from typing import Any

from runs.errors import InputError
from runs.record.manifest import ClusterNode, ClusterPlan, ReplicaPlace, ReplicasPlan
from scenarios.leg.config import RunConfig
from sut.engine_kind import EngineKind, EnginePlan, LegFacts, PlannedReplica


def plan_engine(kind: EngineKind[Any], config: RunConfig, leg: LegFacts) -> tuple[EnginePlan, ReplicasPlan | None]:
    """The engine's plan, which is that of each replica where there are several, and theirs.

    Raises:
        InputError, SetupError: see the message.
    """
    count = None if config.replicas in (None, "auto") else int(config.replicas)
    if config.cluster is not None:
        return _on_cluster(kind, config, config.cluster, leg, count)
    why = ""
    if config.replicas is None:
        why = kind.wants_replicas(config, leg)
        if not why:
            return kind.plan(config, leg), None
    planned = kind.plan_replicas(config, leg, count)
    if count is None and len(planned) == 1 and not kind.beside:
        return kind.plan(config, leg), None
    engine, places = _together(config, planned)
    if why:
        engine.notes.insert(0, why)
    return engine, ReplicasPlan(places=places)


def _on_cluster(
    kind: EngineKind[Any], config: RunConfig, address: str, leg: LegFacts, count: int | None
) -> tuple[EnginePlan, ReplicasPlan]:
    from sut.replicas.cluster import PlanRequest, look_at_cluster  # only a leg on a cluster needs it

    if kind.beside:
        raise InputError(f"--cluster {address}: engine {kind.name} has its own servers", "leave it out")
    asked = config.model_dump(mode="json", include=set(kind.options.model_fields))
    survey = look_at_cluster(address, PlanRequest(engine=kind.name, asked=asked, leg=leg, count=count))
    engine, found = _together(config, survey.planned)
    nodes = [
        ClusterNode.model_validate(node.model_dump(include=set(ClusterNode.model_fields))) for node in survey.nodes
    ]
    used = sorted({place.node or 0 for place in found})
    cluster = ClusterPlan(address=survey.address, listen_on=survey.listen_on, nodes=[nodes[number] for number in used])
    places = [place.model_copy(update={"node": used.index(place.node or 0)}) for place in found]
    engine.notes.insert(0, f"{len(places)} replicas on {', '.join(node.name for node in cluster.nodes)}")
    engine.notes.extend(
        f"node {node.name} is not used: it has no replica" for number, node in enumerate(nodes) if number not in used
    )
    if len({node.host["boot_id"] for node in cluster.nodes}) < len(cluster.nodes):
        engine.unofficial_reasons.append("several of the cluster's nodes are one machine")
    return engine, ReplicasPlan(places=places, cluster=cluster)


def _together(config: RunConfig, planned: list[PlannedReplica]) -> tuple[EnginePlan, list[ReplicaPlace]]:
    first = planned[0].engine
    for one in planned:
        if one.engine.options != first.options:
            raise InputError(
                f"--replicas {config.replicas}: the devices differ, so the engines would have different options",
                "choose devices of one kind",
            )
    first.environment.clear()  # each replica's own; the leg's process computes nothing
    return first, [one.place for one in planned]
