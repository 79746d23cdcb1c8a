"""What the record of a run shows of its servers, and of prompts that they or the engine reused."""

from typing import NamedTuple

from runs.record.manifest import Manifest
from runs.record.observed import ServerClient

# Of the received tokens, by the server's own metrics, which may be a little late.
COUNTED_SHARE = 0.95


class PromptReuse(NamedTuple):
    """What a run's record shows of prompts that were reused across queries."""

    is_on: bool  # prefix caching, by the engine's configuration
    tokens: int  # prompt tokens from a cache, as the engine counted them
    is_unobserved: bool  # a server does not count them, or responses came from something in front of it


def prompt_reuse(manifest: Manifest) -> PromptReuse:
    """Return what the record shows."""
    unobserved = any(not client.counts_reuse or _made_elsewhere(client) for client in manifest.observed.clients)
    return PromptReuse(manifest.engine.prefix_caching, int(manifest.observed.cached_prompt_tokens or 0), unobserved)


def _made_elsewhere(client: ServerClient) -> bool:
    made = client.tokens_by_metrics
    return made is not None and made < COUNTED_SHARE * client.tokens_that_came


def any_server_remote(manifest: Manifest) -> bool:
    """Whether a server ran on another machine than LoadGen."""
    return any(not client.on_this_machine for client in manifest.observed.clients)


def all_servers_remote(manifest: Manifest) -> bool:
    """Whether there were servers, all on other machines."""
    found = manifest.observed.clients
    return bool(found) and not any(client.on_this_machine for client in found)
