"""What a leg was run with, as flat facts, and what two legs differ in. Who compares says which facts may differ."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from runs.record.manifest import LegPlan

Conditions = dict[str, Any]


class Host(NamedTuple):
    """A machine by its name, and by the id of its last start where it tells that."""

    name: str
    boot_id: str | None

    def __str__(self) -> str:
        return self.name


def _same_host(one: Host, other: Host) -> bool:
    """A machine may be named anew; its start has one id."""
    return one.name == other.name or (one.boot_id is not None and one.boot_id == other.boot_id)


def _same_pool(one: int, other: int) -> bool:
    """Within 2 % of the larger: what else holds memory changes from start to start."""
    return abs(one - other) <= 0.02 * max(one, other)


# Facts of which two values may be alike without being equal, and the function that tells.
TOLERANCES: dict[str, Callable[[Any, Any], bool]] = {
    "host.hostname": _same_host,
    "resolved.kv_cache_tokens": _same_pool,
}

# A leg's role beside others, and what shapes no number. Data set and model are compared by their hashes.
ROLE = frozenset(
    {
        "mode",
        "audit",
        "dataset_path",
        "model_path",
        "engine_start_timeout_s",
        "stall_timeout_s",
        "environment.VLLM_PORT",
        "environment.VLLM_HOST_IP",
        "environment.VLLM_CPU_KVCACHE_SPACE",  # follows the free memory at the start; changes no answer
        "replicas.cluster.address",
        "replicas.cluster.listen_on",
        "replicas.cluster.nodes",  # compared by node_conditions
    }
)


def plan_conditions(plan: LegPlan) -> Conditions:
    """Every field of a leg's plan but its role, nested ones by dotted keys; new fields too."""
    content = plan.model_dump(mode="json")
    for place in (content["replicas"] or {}).get("places", ()):  # a replica's variables as those of one engine
        kept = {name: value for name, value in place["environment"].items() if f"environment.{name}" not in ROLE}
        place["environment"] = kept
    facts = {key: value for key, value in _flat("", content).items() if key not in ROLE}
    return facts | node_conditions(plan)


def node_conditions(plan: LegPlan) -> Conditions:
    """What the nodes of a cluster are, whatever their names and addresses; nothing where the leg's machine computes."""
    nodes = enumerate(plan.nodes)
    return {f"node {number}.{name}": value for number, node in nodes for name, value in node.facts.items()}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Facts that differ by more than TOLERANCES allows, or that one of the two lacks (None), with both values; in the
    order of both."""
    both = {key: (one.get(key), other.get(key)) for key in {**one, **other}}
    return {key: pair for key, pair in both.items() if not _alike(key, *pair)}


def _alike(key: str, one: Any, other: Any) -> bool:
    if one == other or key not in TOLERANCES or one is None or other is None:
        return bool(one == other)
    return TOLERANCES[key](one, other)


def shown(value: Any, most: int) -> str:
    """A value for people: what is not there, and what is too long."""
    text = "not set" if value is None else str(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _flat(place: str, value: Any) -> Conditions:
    if not isinstance(value, dict) or not (value or not place):
        return {place: value}
    parts = (_flat(f"{place}.{key}" if place else str(key), one) for key, one in value.items())
    return {key: one for part in parts for key, one in part.items()}
