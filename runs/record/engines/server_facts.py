"""Facts of the servers of a run, and of prompts that they or the engine reused, from the manifest."""

from typing import NamedTuple

from runs.record.manifest import Manifest
from runs.record.observed import ServerClient

# Maximum share of the received tokens that may be missing in the metrics of the server, because metrics may be late.
COUNTED_SHARE = 0.95
# Difference between a server's number of output tokens and the tokenizer's above which both are doubtful.
COUNTS_SHARE = 0.05


class PromptReuse(NamedTuple):
    """The reuse of prompts across queries, as the manifest states it."""

    is_on: bool  # True if prefix caching is on, according to the configuration of the engine
    tokens: int  # prompt tokens from a cache, as counted by the engine
    is_unobserved: bool  # True if a server does not count cached tokens, or a proxy produced responses


def prompt_reuse(manifest: Manifest) -> PromptReuse:
    """Return the reuse of prompts that the manifest shows."""
    unobserved = any(not client.counts_reuse or _made_elsewhere(client) for client in manifest.observed.clients)
    return PromptReuse(manifest.engine.prefix_caching, int(manifest.observed.cached_prompt_tokens or 0), unobserved)


def _made_elsewhere(client: ServerClient) -> bool:
    generated = client.tokens_by_metrics
    return generated is not None and generated < COUNTED_SHARE * client.tokens_that_came


def without_ids(manifest: Manifest | None, *, zeros_only: bool = False) -> str:
    """Return why rules on the generated token IDs do not apply to a run; empty if they do.

    Args:
        zeros_only: whether the IDs of a text are enough, as for comparing two responses; then only a run without a
            tokenizer, whose IDs are zeros, has none.
    """
    clients = manifest.observed.clients if manifest is not None else []
    for client in clients:
        if client.text is not None and not (zeros_only and client.text.is_tokenized):
            logged = "token IDs made from the text" if client.text.is_tokenized else "zeros"
            return f"server {client.server} sends text: the log has {logged} instead of the generated token IDs"
    return ""


def any_server_remote(manifest: Manifest) -> bool:
    """Return whether a server was on another machine than LoadGen."""
    return any(not client.on_this_machine for client in manifest.observed.clients)


def all_servers_remote(manifest: Manifest) -> bool:
    """Return whether the run used servers, all on other machines."""
    clients = manifest.observed.clients
    return bool(clients) and not any(client.on_this_machine for client in clients)
