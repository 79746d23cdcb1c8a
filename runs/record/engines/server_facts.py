"""Facts of the servers of a run, and of prompts that they or the engine reused, from the manifest."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from runs.record.manifest import Manifest
from runs.record.observed import Observed, ServerClient

# Maximum share of the received tokens that may be missing in the metrics of the server, because metrics may be late.
COUNTED_SHARE = 0.95
OF_A_LIMIT = 0.05  # share of a latency limit above which a delay of the client is reported as a note


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
    made = client.tokens_by_metrics
    return made is not None and made < COUNTED_SHARE * client.tokens_that_came


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
    found = manifest.observed.clients
    return bool(found) and not any(client.on_this_machine for client in found)


def late_client(observed: Observed, limits_ns: Mapping[str, int]) -> Iterator[str]:
    """Yield notes on a client whose delay (p99) exceeds `OF_A_LIMIT` of a limit. LoadGen's times include the delay.

    Args:
        limits_ns: effective TTFT and TPOT limits.
    """
    clients = observed.clients
    sent_ms = [client.issue_to_wire.p99_ms for client in clients if client.issue_to_wire.p99_ms is not None]
    read_ms = observed.read_to_loadgen.p99_ms if observed.read_to_loadgen is not None else None
    if not sent_ms or read_ms is None:
        return
    tokens = sum(client.tokens for client in clients) / max(1, sum(client.answers for client in clients))
    late_ms = {"TTFT": max(sent_ms) + read_ms, "TPOT": read_ms / max(1.0, tokens - 1)}
    for name, limit_ns in limits_ns.items():
        if late_ms[name] > OF_A_LIMIT * limit_ns / 1e6:
            yield (
                f"the client was {late_ms[name]:.1f} ms late (p99), more than {OF_A_LIMIT:.0%} of the {name} "
                f"limit of {limit_ns / 1e6:.0f} ms: give it more cores, or more client processes"
            )
