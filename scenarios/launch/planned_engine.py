"""The plan of a run's engine, and of its replicas."""

from runs.errors import InputError
from runs.record.manifest import ClusterNode, ClusterPlan, ReplicaPlace, ReplicasPlan
from scenarios.launch.resolved_options import ResolvedOptions
from sut.engine_kind import EnginePlan, RunFacts
from sut.planned_replica import PlannedReplica, plan_replicas


def plan_engine(resolved: ResolvedOptions, run: RunFacts) -> tuple[EnginePlan, ReplicasPlan | None]:
    """Return the plan of the engine (of each replica) and, with multiple replicas, the plan of the replicas.

    Raises:
        InputError, SetupError: If the engine cannot start with these options.
    """
    config, kind = resolved.config, resolved.kind
    count = None if config.replicas in (None, "auto") else int(config.replicas)
    if config.cluster is not None:
        return _on_cluster(resolved, config.cluster, run, count)
    why = ""
    if config.replicas is None:
        why = kind.wants_replicas(config, run)
        if not why:
            return kind.plan(config, run), None
    planned = plan_replicas(kind, config, run, count)
    if count is None and len(planned) == 1 and not kind.own_processes:
        return kind.plan(config, run), None
    engine, places = _together(planned)
    if why:
        engine.notes.insert(0, why)
    return engine, ReplicasPlan(places=places)


def _on_cluster(
    resolved: ResolvedOptions, address: str, run: RunFacts, count: int | None
) -> tuple[EnginePlan, ReplicasPlan]:
    from sut.replicas.cluster import PlanRequest, survey_cluster  # Only a run on a cluster needs it.

    config, kind = resolved.config, resolved.kind
    if kind.own_processes:
        raise InputError(f"--cluster {address}: engine {kind.name} has its own servers", "remove --cluster")
    options = config.model_dump(mode="json", include=set(kind.options.model_fields))
    survey = survey_cluster(address, PlanRequest(engine=kind.name, asked=options, run=run, count=count))
    engine, planned = _together(survey.planned)
    nodes = [
        ClusterNode.model_validate(node.model_dump(include=set(ClusterNode.model_fields))) for node in survey.nodes
    ]
    used = sorted({place.node or 0 for place in planned})
    cluster = ClusterPlan(address=survey.address, listen_on=survey.listen_on, nodes=[nodes[number] for number in used])
    places = [place.model_copy(update={"node": used.index(place.node or 0)}) for place in planned]
    engine.notes.insert(0, f"{len(places)} replicas on {', '.join(node.name for node in cluster.nodes)}")
    engine.notes.extend(
        f"node {node.name} is not used: it has no replica" for number, node in enumerate(nodes) if number not in used
    )
    if len({node.host["boot_id"] for node in cluster.nodes}) < len(cluster.nodes):
        engine.unofficial_reasons.append("multiple nodes of the cluster are one machine")
    return engine, ReplicasPlan(places=places, cluster=cluster)


def _together(planned: list[PlannedReplica]) -> tuple[EnginePlan, list[ReplicaPlace]]:
    first = planned[0].engine
    for node_plan in planned:
        if node_plan.engine.options != first.options:
            raise InputError(
                "--replicas: the devices differ, so the engines would have different options",
                "choose devices of one kind",
            )
    first.environment.clear()  # Each replica sets its environment; the run's process computes nothing.
    return first, [replica.place for replica in planned]
