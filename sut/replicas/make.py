"""The fleet of a leg's plan."""

from runs.record.manifest import LegPlan, ReplicasPlan
from sut.replicas.cluster.cluster import ClusterLaunch
from sut.replicas.fleet import Fleet, Start
from sut.replicas.local import launch
from sut.replicas.messages import ReplicaSpec


def make_fleet(plan: LegPlan, replicas: ReplicasPlan) -> Fleet:
    """The replicas of a plan, not yet started."""
    specs = [
        ReplicaSpec(
            index=index,
            address="",
            leg_key="",
            public_key="",
            secret_key="",
            plan=plan.model_copy(update={"environment": place.environment}).model_dump(mode="json"),
            cores=place.cores,
            devices=place.devices,
            numa_node=place.numa_node,
            variables=place.variables,
        )
        for index, place in enumerate(replicas.places)
    ]
    start = Start(specs, launch)
    if replicas.cluster is not None:
        start = Start(specs, ClusterLaunch(replicas.cluster, replicas.places), replicas.cluster.listen_on)
    return Fleet(start, replicas.routing, plan.stall_timeout_s)
