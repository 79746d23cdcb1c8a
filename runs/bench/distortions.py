"""What may distort the numbers of a run: the client, a cache, other processes, and different token counts."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from runs.bench.bench_record import ClientLateness, Latency, TokenCounts
from runs.record.manifest import Manifest
from runs.record.observed import FOREIGN_SHARE, Contention, ServerClient

CACHED_SHARE = 0.01  # share of prompt tokens from a cache that gets a reason
CLIENT_SHARE = 0.2  # a delay of the client above this share of a latency gets a reason
LOOP_TIMER_MS = 1.0  # resolution of the timers by which the lag of the event loop is measured
TOKENS_SHARE = 0.01  # allowed difference between the server's output tokens and the counted ones


def client_lateness(manifest: Manifest, late_issue_ms: float | None) -> ClientLateness:
    """Return the delays of the client.

    Args:
        late_issue_ms: p99 from the scheduled time to the issue; None without a schedule, where the time after the issue
            contains the wait for earlier queries.
    """
    observed = manifest.observed
    to_engine_ms = late_issue_ms
    if to_engine_ms is not None:
        to_engine_ms += max((one.issue_to_wire.p99_ms or 0.0 for one in observed.clients), default=0.0)
    return ClientLateness(
        issue_to_engine=to_engine_ms,
        read_to_loadgen=observed.read_to_loadgen.p99_ms if observed.read_to_loadgen is not None else None,
        loop_lag=observed.loop_lag.p99_ms if observed.loop_lag is not None else None,
    )


def late_client(
    client: ClientLateness, ttft: Latency | None, tpot: Latency | None, output_tokens: float, *, over_http: bool
) -> Iterator[str]:
    """Yield a reason for each delay of the client that could explain a latency."""
    lag_ms, read_ms = max(0.0, (client.loop_lag or 0.0) - LOOP_TIMER_MS), client.read_to_loadgen or 0.0
    before = "issue to wire" if over_http else "issue to engine"
    after, after_ms = ("response to LoadGen", read_ms) if over_http else ("event loop", lag_ms)
    # A late last token adds its delay once to the time of all tokens.
    per_token_ms = after_ms / max(1.0, output_tokens - 1)
    for what, late_ms, name, latency in (
        (before, client.issue_to_engine or 0.0, "TTFT", ttft),
        (after, after_ms, "TTFT", ttft),
        (after, per_token_ms, "TPOT", tpot),
    ):
        if latency is None:
            continue
        statistic = next((one for one in ("p99", "p95", "p90") if latency.at(one) is not None), "p50")
        value_ms = latency.at(statistic) or 0.0
        if late_ms > CLIENT_SHARE * value_ms:
            yield f"client: {what} p99 {late_ms:.3g} ms of {statistic} {name} {value_ms:.3g} ms"


def cached_share(manifest: Manifest, prompt_tokens: int) -> float | None:
    """Return the share of prompt tokens from a cache; None if a server does not count them."""
    if not prompt_tokens:
        return None
    if not (clients := manifest.observed.clients):
        known = manifest.observed.cached_prompt_tokens
        return None if known is None else known / prompt_tokens
    cached = 0
    for server in _by_server(clients):
        by_metrics = [one.cached_tokens_by_metrics for one in server if one.cached_tokens_by_metrics is not None]
        if all(one.each_response_counts_reuse for one in server):
            cached += sum(one.cached_tokens for one in server)
        elif by_metrics:
            cached += max(by_metrics)  # each client reads the same counter
        else:
            return None
    return cached / prompt_tokens


def token_counts(manifest: Manifest, counted: int) -> TokenCounts:
    """Return the output tokens of all responses, by the servers and as received."""
    clients = manifest.observed.clients
    if texts := [one.text for one in clients if one.text is not None]:
        return TokenCounts(
            server=sum(one.tokens_by_usage for one in texts) if all(one.has_usage for one in clients) else None,
            counted=counted if all(one.is_tokenized for one in texts) else None,
            estimated=any(one.responses_estimated for one in texts),
        )
    excess = 0  # of the servers' counters, which also count probes and warm-up, over the tokens that came
    for server in _by_server(clients):
        by_metrics = [one.tokens_by_metrics for one in server if one.tokens_by_metrics is not None]
        if not by_metrics:
            return TokenCounts(server=None, counted=counted)
        excess += max(by_metrics) - sum(one.tokens_that_came for one in server)
    return TokenCounts(server=counted + excess if clients else None, counted=counted)


def short_responses(manifest: Manifest, output_tokens: NDArray[np.int64], requested: int | None) -> int:
    """Return the number of responses with fewer tokens than requested; of text servers, by their own count."""
    if requested is None:
        return 0
    if texts := [one.text for one in manifest.observed.clients if one.text is not None]:
        return sum(one.short for one in texts)
    return int((output_tokens < requested).sum())


def contention(manifest: Manifest) -> float | None:
    """Return the share of the cores' time that other processes used; None if it was not recorded."""
    return manifest.observed.foreign_share if isinstance(manifest.observed.contention, Contention) else None


def distortions(
    cached: float | None, tokens: TokenCounts, foreign: float | None, short: int, queries: int, *, has_server_here: bool
) -> Iterator[str]:
    """Yield the reasons of the engine and the machine. A server on this machine is one of the other processes."""
    if cached is not None and cached > CACHED_SHARE:
        yield f"cache: {cached:.1%} of the prompt tokens came from a cache"
    if tokens.server is not None and tokens.counted is not None:
        difference = tokens.server - tokens.counted
        if abs(difference) > TOKENS_SHARE * tokens.counted:
            yield f"tokens: the server counts {tokens.server:,} output tokens, the client {tokens.counted:,}"
    if tokens.estimated:
        yield "tokens: estimated from chunks"
    if short:
        yield f"tokens: {short:,} of {queries:,} responses are shorter than requested"
    if foreign is not None and foreign > FOREIGN_SHARE and not has_server_here:
        yield f"machine: other processes used {foreign:.0%} of the cores' time"


def _by_server(clients: list[ServerClient]) -> list[list[ServerClient]]:
    return [[one for one in clients if one.server == url] for url in dict.fromkeys(one.server for one in clients)]
