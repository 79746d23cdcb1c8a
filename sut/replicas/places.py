"""Where a replica computes, its devices or its share of the cores and their memory, and what it is started with."""

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from runs.errors import SetupError
from runs.record.manifest import ReplicaPlace
from sut.engine_kind import EngineKind, EnginePlan, LegFacts

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}  # system calls [linux: syscall_64.tbl, asm-generic/unistd.h]
_MPOL_PREFERRED = 1  # linux/mempolicy.h: from this node while it has memory


def numa_nodes(root: Path = Path("/sys/devices/system/node")) -> dict[int, int]:
    """Core → its NUMA node; empty where the kernel does not tell."""
    nodes: dict[int, int] = {}
    for folder in root.glob("node[0-9]*"):
        for part in (folder / "cpulist").read_text().strip().split(","):
            first, _, last = part.partition("-")
            if first:
                nodes |= dict.fromkeys(range(int(first), int(last or first) + 1), int(folder.name[4:]))
    return nodes


def shares(cores: list[int], count: int, node_of: dict[int, int]) -> list[list[int]]:
    """Cores in `count` equal shares, each from one NUMA node where that comes out even.

    Raises:
        SetupError: fewer cores than shares.
    """
    size = len(cores) // count
    if size == 0:
        raise SetupError(f"--replicas {count}: there are {len(cores)} cores", "ask for a replica a core at most")
    by_node = sorted(cores, key=lambda core: (node_of.get(core, 0), core))
    return [sorted(by_node[place * size : (place + 1) * size]) for place in range(count)]


def one_node(cores: list[int], node_of: dict[int, int]) -> int | None:
    """The NUMA node on which all these cores are, where there are several nodes to choose from."""
    found = {node_of.get(core) for core in cores}
    return found.pop() if len(found) == 1 and len(set(node_of.values())) > 1 else None


def bind(cores: list[int], numa_node: int | None) -> None:
    """Keep this process and its descendants on these cores and, where the kernel allows it, take memory near them."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    if numa_node is None:
        return
    number = _SET_MEMPOLICY.get(os.uname().machine)
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask = (ctypes.c_ulong * (numa_node // bits + 1))()
    mask[numa_node // bits] = 1 << numa_node % bits
    libc = ctypes.CDLL(None, use_errno=True)
    if number is None or libc.syscall(number, _MPOL_PREFERRED, mask, bits * len(mask) + 1):
        print(f"memory near node {numa_node} was not granted: {os.strerror(ctypes.get_errno())}", flush=True)


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
