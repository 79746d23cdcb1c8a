"""Did all legs come from one system in one configuration? Their manifests compared, each difference named."""

from collections.abc import Mapping
from typing import Any

from runs.record.manifest import Manifest

# What the legs of one result may differ in. All other fields of a leg's plan are compared, new ones too.
_MAY_DIFFER = frozenset(
    {
        "mode",
        "audit",
        "trace",
        "dataset_path",  # the data set is compared by its hash
        "model_path",  # and so is the model, where it has files
        "engine_start_timeout_s",
        "stall_timeout_s",
        "environment.VLLM_CPU_KVCACHE_SPACE",  # follows the free memory at the start; changes no answer
    }
)
_MISSING = "(not set)"


def configuration(manifest: Manifest) -> dict[str, Any]:
    """All that the legs of one result must have in common, by the names that manifest.json has."""
    plan = manifest.resolved
    facts: dict[str, Any] = {}
    for name, value in plan.model_dump(mode="json").items():
        if isinstance(value, dict):
            facts |= {f"{name}.{key}": one for key, one in value.items()}
        else:
            facts[name] = value
    weights = {name: digest for name, digest in _hashes(manifest).items() if not name.startswith(".")}
    facts = {name: value for name, value in facts.items() if name not in _MAY_DIFFER}
    return {**facts, "model": weights or plan.model_path, **system_facts(manifest)}


def system_facts(manifest: Manifest) -> dict[str, Any]:
    """What all results of one tree must have in common: the machine and the software."""
    host = manifest.host
    return {
        "harness commit": manifest.harness.get("git_commit"),
        "LoadGen extension (SHA-256)": manifest.loadgen.get("extension_sha256"),
        "processor": host.get("cpu"),
        "logical cores": host.get("cores_logical"),
        # What the kernel keeps for itself changes a little from boot to boot.
        "memory (GiB)": memory_gib(manifest),
        "accelerators": [gpu.get("name") for gpu in manifest.accelerator],
        **{f"version of {name}": version for name, version in manifest.software.items()},
    }


def memory_gib(manifest: Manifest) -> int:
    return round(int(manifest.host.get("memory_bytes") or 0) / 2**30)


def differences(one: Mapping[str, Any], other: Mapping[str, Any], names: tuple[str, str]) -> list[str]:
    """A sentence for each fact that differs; `names` say whose facts they are."""
    found = []
    for key in [*one, *(key for key in other if key not in one)]:
        values = one.get(key, _MISSING), other.get(key, _MISSING)
        if values[0] != values[1]:
            found.append(f"{key}: {_short(values[0])} in {names[0]}, {_short(values[1])} in {names[1]}")
    return found


def _hashes(manifest: Manifest) -> dict[str, str]:
    hashes = manifest.model.get("sha256")
    return hashes if isinstance(hashes, dict) else {}


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 160 else f"{text[:157]}..."
