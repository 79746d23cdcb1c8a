"""The fleet of a leg's plan."""

from runs.errors import SetupError
from runs.record.layout import RunDir
from runs.record.manifest import LegPlan, ReplicasPlan
from sut.replicas.fleet import Fleet, Start
from sut.replicas.local import launch
from sut.replicas.member import Host
from sut.replicas.messages import ReplicaSpec


def make_fleet(plan: LegPlan, replicas: ReplicasPlan, run_dir: RunDir) -> Fleet:
    """The replicas of a plan, not yet started; their logs go into the run directory.

    Raises:
        SetupError: they cannot be started there.
    """
    if replicas.cluster is not None:
        raise SetupError("--cluster is not supported yet", "leave it out: the replicas run on this machine")
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

    def start(spec: ReplicaSpec) -> Host:
        return launch(spec, run_dir.replica_log(spec.index))

    return Fleet(Start(specs, start), replicas.routing, plan.stall_timeout_s)
