"""Facts of the servers of a run, and of prompts that they or the engine reused, from the manifest."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from runs.record.manifest import Manifest
from runs.record.observed import Observed, ServerClient

# Maximum share of the received tokens that may be missing in the metrics of the server, because metrics may be late.
COUNTED_SHARE = 0.95
# Difference between a server's number of output tokens and the tokenizer's above which both are doubtful.
COUNTS_SHARE = 0.05
FAILED_SHARE = 0.01  # share of failed responses above which a run ends
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


def doubtful_tokens(clients: list[ServerClient]) -> str | None:
    """Return both numbers of output tokens in words if the tokenizer contradicts the servers' numbers; otherwise None.

    It does if the numbers differ by more than `COUNTS_SHARE`.
    """
    texts = [client.text for client in clients if client.has_usage and client.text and client.text.is_tokenized]
    server, counted = sum(text.tokens_by_usage for text in texts), sum(text.tokens_by_tokenizer for text in texts)
    if abs(server - counted) <= COUNTS_SHARE * server:
        return None
    return (
        f"the server counts {server:,} output tokens, the tokenizer of --model-path {counted:,} "
        f"({(counted - server) / max(1, server):+.1%})"
    )


def failed_responses(responses: int, empty: int, cut: int) -> str:
    """Return the failed responses of servers that send text, in words."""
    parts = [f"{empty} had no text"] * (empty > 0) + [f"{cut} had no finish reason, unlike the others"] * (cut > 0)
    return f"{empty + cut} of {responses} responses failed: {' and '.join(parts)}"


def too_many_failed(observed: Observed) -> str | None:
    """Return the failed responses of a run in words if they are more than `FAILED_SHARE`; otherwise None."""
    texts = [client.text for client in observed.clients if client.text is not None]
    responses = sum(client.answers for client in observed.clients)
    empty, cut = sum(text.empty for text in texts), 0
    if any(text.with_finish_reason for text in texts):
        cut = sum(text.without_finish_reason for text in texts)
    return failed_responses(responses, empty, cut) if empty + cut > FAILED_SHARE * responses else None


def any_server_remote(manifest: Manifest) -> bool:
    """Return whether a server was on another machine than LoadGen."""
    return any(not client.on_this_machine for client in manifest.observed.clients)


def all_servers_remote(manifest: Manifest) -> bool:
    """Return whether the run used servers, all on other machines."""
    found = manifest.observed.clients
    return bool(found) and not any(client.on_this_machine for client in found)


def late_ends(observed: Observed, limits_ns: Mapping[str, int]) -> Iterator[str]:
    """Yield notes on ends of responses that arrive later after the last token than `OF_A_LIMIT` of a limit (p99).

    Args:
        limits_ns: effective TTFT and TPOT limits.
    """
    if not limits_ns:
        return
    name, limit_ns = min(limits_ns.items(), key=lambda limit: limit[1])
    for client in observed.clients:
        gaps = [client.last_token_to_loadgen, client.last_token_to_end]
        counted_ms, gap_ms = (gap.p99_ms or 0.0 if gap is not None else 0.0 for gap in gaps)
        if gap_ms <= OF_A_LIMIT * limit_ns / 1e6:
            continue
        effect = "LoadGen's times do not include this gap"
        if counted_ms > OF_A_LIMIT * limit_ns / 1e6:
            effect = (
                f"LoadGen's times include {counted_ms:.0f} ms of this gap, because nothing before shows that the "
                "response is complete"
            )
        yield (
            f"server {client.server}: the end of a response arrives {gap_ms:.0f} ms (p99) after its last token, more "
            f"than {OF_A_LIMIT:.0%} of the {name} limit of {limit_ns / 1e6:.0f} ms; {effect}"
        )


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
