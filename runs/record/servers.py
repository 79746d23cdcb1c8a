"""What the record of a leg tells of the servers that answered it: `observed["engine"]` of manifest.json."""

from typing import Any

from runs.record.manifest import Manifest

ON_THIS_MACHINE = "on_this_machine"  # what was sent to the server stayed on LoadGen's machine
COUNTS_REUSE = "counts_reuse"  # the server said, of every answer or of all together, what it took from a cache


def clients(manifest: Manifest) -> list[dict[str, Any]]:
    """The record of each client of a server; empty for a leg without servers."""
    if manifest.resolved.engine != "endpoint":
        return []
    observed = manifest.observed.get("engine") or {}
    return observed.get("replicas") or [observed]


def reuse_unseen(manifest: Manifest) -> bool:
    """Whether a server answered that did not count the prompt tokens that it took from a cache."""
    return any(client.get(COUNTS_REUSE) is not True for client in clients(manifest))


def elsewhere(manifest: Manifest) -> bool:
    """Whether a server answered from another machine than LoadGen's, which is the one that the manifest describes."""
    return any(client.get(ON_THIS_MACHINE) is not True for client in clients(manifest))


def all_elsewhere(manifest: Manifest) -> bool:
    """Whether every server was on another machine; an absent record is none of that."""
    found = clients(manifest)
    return bool(found) and all(client.get(ON_THIS_MACHINE) is False for client in found)


def as_served(manifest: Manifest) -> dict[str, Any]:
    """What the servers of a leg said of themselves, and what was declared of them: the same in another leg is the same
    system."""
    configuration = manifest.engine.get("configuration") or {}
    return {
        "api_server": manifest.resolved.engine_options.get("api_server"),
        "versions": manifest.engine.get("versions"),
        **{name: configuration.get(name) for name in ("told_by_the_server", "declared")},
    }
