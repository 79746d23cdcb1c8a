"""Did all legs come from one system in one configuration? Their manifests compared, each difference named."""

from collections.abc import Mapping
from typing import Any

from runs.record.conditions import Conditions, differences, node_conditions, plan_conditions, shown
from runs.record.manifest import Manifest
from runs.record.servers import clients


def configuration(manifest: Manifest) -> Conditions:
    """All that the legs of one result must have in common, by the names that manifest.json has."""
    plan = manifest.resolved
    facts = {name: value for name, value in plan_conditions(plan).items() if name != "trace"}
    hashes = manifest.model.get("sha256") or {}
    weights = {name: digest for name, digest in hashes.items() if not name.startswith(".")}
    return {**facts, "model": weights or plan.model_path, **system_facts(manifest)}


def system_facts(manifest: Manifest) -> Conditions:
    """What all results of one tree must have in common: the machine and the software."""
    host = manifest.host
    return {
        "harness commit": manifest.harness.get("git_commit"),
        "LoadGen extension (SHA-256)": manifest.loadgen.get("extension_sha256"),
        **({"software of the servers": manifest.engine.get("versions")} if clients(manifest) else {}),
        "processor": host.get("cpu"),
        "logical cores": host.get("cores_logical"),
        # What the kernel keeps for itself changes a little from boot to boot.
        "memory (GiB)": memory_gib(manifest),
        "accelerators": [gpu.get("name") for gpu in manifest.accelerator],
        **{f"version of {name}": version for name, version in manifest.software.items()},
        **node_conditions(manifest.resolved),
    }


def memory_gib(manifest: Manifest) -> int:
    return round(int(manifest.host.get("memory_bytes") or 0) / 2**30)


def named_differences(one: Mapping[str, Any], other: Mapping[str, Any], names: tuple[str, str]) -> list[str]:
    """A sentence for each fact that differs; `names` say whose facts they are."""
    return [
        f"{key}: {shown(first, 160)} in {names[0]}, {shown(second, 160)} in {names[1]}"
        for key, (first, second) in differences(one, other).items()
    ]
