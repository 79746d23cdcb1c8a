"""Where replicas of a vLLM engine compute: each on devices of its own, or on its share of the cores."""

import dataclasses
import os

from runs.errors import SetupError
from runs.record.manifest import ReplicaPlace
from sut.replicas.places import numa_nodes, one_node, shares
from sut.vllm.machine import Machine


def replica_places(machine: Machine, count: int | None, devices_each: int | None) -> list[ReplicaPlace]:
    """Places on a machine.

    Args:
        machine: all of it.
        count: replicas; None = one for each device or group of devices, on the CPU one for each NUMA node.
        devices_each: what one engine was asked to be split over; None = as many as there are for each.

    Raises:
        SetupError: there are not enough devices or cores.
    """
    if machine.on_cpu:
        node_of = numa_nodes()
        count = count or len({node_of.get(core) for core in machine.cores})
        parts = shares(machine.cores, count, node_of)
        return [ReplicaPlace(cores=cores, numa_node=one_node(cores, node_of)) for cores in parts]
    count = count or max(1, machine.devices // (devices_each or 1))
    each = devices_each or machine.devices // count
    if count * each > machine.devices or not each:
        raise SetupError(
            f"{count} replicas on {each or 1} device(s) each: there are {machine.devices}",
            "ask for fewer --replicas, or for a smaller --tensor-parallel-size",
        )
    ids = _device_ids(machine)
    groups = [ids[place * each : (place + 1) * each] for place in range(count)]
    return [ReplicaPlace(devices=group, variables={machine.visible_variable: ",".join(group)}) for group in groups]


def machine_at(machine: Machine, place: ReplicaPlace, replicas: int) -> Machine:
    """What is left of a machine for a replica at a place."""
    return dataclasses.replace(
        machine,
        devices=len(place.devices),
        cores=place.cores or machine.cores,
        engines=replicas,
    )


def _device_ids(machine: Machine) -> list[str]:
    """As the platform's variable names them: those it names already, else their numbers."""
    named = os.environ.get(machine.visible_variable, "")
    ids = [part.strip() for part in named.split(",") if part.strip()]
    return ids if len(ids) == machine.devices else [str(number) for number in range(machine.devices)]
