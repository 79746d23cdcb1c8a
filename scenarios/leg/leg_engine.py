"""The engine of a leg's plan."""

from runs.record.manifest import LegPlan, ReplicasPlan
from sut.engine import Engine
from sut.engines import engine_kind
from sut.replicas.cluster.cluster import ClusterLaunch
from sut.replicas.local import launch
from sut.replicas.messages import ReplicaSpec
from sut.replicas.pool import ReplicaPool, Start
from sut.replicas.transport import POLL_S, may_gather


def make_engine(plan: LegPlan) -> Engine:
    """An engine for a plan, not yet started: of its kind, or a pool of replicas of that kind.

    Raises:
        InputError, SetupError: see the message.
    """
    if plan.replicas is not None:
        return _pool(plan, plan.replicas)
    return engine_kind(plan.engine).make(plan)


def _pool(plan: LegPlan, replicas: ReplicasPlan) -> ReplicaPool:
    specs = [
        ReplicaSpec(
            index=index,
            address="",
            leg_key="",
            public_key="",
            secret_key="",
            plan=plan.model_copy(update={"environment": place.environment}).model_dump(mode="json"),
            **place.model_dump(include={"cores", "devices", "numa_node", "variables"}),
        )
        for index, place in enumerate(replicas.places)
    ]
    start = Start(specs, launch)
    if replicas.cluster is not None:
        start = Start(specs, ClusterLaunch(replicas.cluster, replicas.places), replicas.cluster.listen_on)
    poll_s = POLL_S if may_gather(plan.loadgen_scenario) else 0.0
    return ReplicaPool(start, plan.stall_timeout_s, poll_s)
