"""What may distort the numbers of a run: the client, a cache, other processes, and different counts of tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runs.bench.bench_record import ClientLateness, Latency, OutputTokens
from runs.record.engines.server_notes import doubtful_tokens
from runs.record.manifest import Manifest
from runs.record.observed import FOREIGN_SHARE, Contention, ServerClient
from runs.wording import milliseconds

# Shares above which a circumstance is reported as a reason:
CACHED_SHARE = 0.01  # prompt tokens from a cache, as a share of all prompt tokens
CLIENT_SHARE = 0.05  # delay of the client, as a share of a latency
HELD_SHARE = 0.05  # first tokens that arrived together with later tokens, as a share of all queries
# Difference between the token IDs that the client received and the increase of the server's counter.
METRICS_SHARE = 0.01
AT_ONCE_SHARE = 0.01  # responses that may arrive at once, so that their TPOT is 0, as a share of all queries
LOOP_TIMER_MS = 1.0  # resolution of the timers by which the lag of the event loop is measured


@dataclass(frozen=True)
class Circumstances:
    """The circumstances of one run; None for values that were not measured."""

    client: ClientLateness
    cached_share: float | None
    tokens: OutputTokens
    contention: float | None
    short_responses: int
    queries: int
    mean_output_tokens: float
    servers: list[ServerClient]  # empty for an engine of this harness

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        prompt_tokens: NDArray[np.int64],
        output_tokens: NDArray[np.int64],
        requested_tokens: int | None,
        late_issue_ms: float | None,
    ) -> "Circumstances":
        """Read the circumstances from the manifest.

        Args:
            requested_tokens: as `output_tokens` of `measure_run`.
            late_issue_ms: p99 from the scheduled time to the issue; None without a schedule, where the time after the
                issue contains the wait for earlier queries.
        """
        observed, servers = manifest.observed, manifest.observed.clients
        if late_issue_ms is not None:
            late_issue_ms += max((server.issue_to_wire.p99_ms or 0.0 for server in servers), default=0.0)
        read, lag = observed.read_to_loadgen, observed.loop_lag
        texts = [server_facts.text for server_facts in servers if server_facts.text is not None]
        short = int((output_tokens < (requested_tokens or 0)).sum())
        cached = _cached_tokens(servers) if servers else observed.cached_prompt_tokens
        return cls(
            client=ClientLateness(
                issue_to_engine=late_issue_ms,
                read_to_loadgen=read.p99_ms if read else None,
                loop_lag=lag.p99_ms if lag else None,
            ),
            cached_share=None if cached is None else cached / max(1, int(prompt_tokens.sum())),
            tokens=counted_output_tokens(servers, int(output_tokens.sum())),
            # A server on this machine is one of the other processes, so their share says nothing about contention.
            contention=None
            if any(server.on_this_machine for server in servers) or not isinstance(observed.contention, Contention)
            else observed.foreign_share,
            # The tokens of a text may be fewer than the server generated, so its client counts short responses.
            short_responses=sum(text.short for text in texts) if texts and requested_tokens else short,
            queries=len(output_tokens),
            mean_output_tokens=float(output_tokens.mean()),
            servers=servers,
        )

    def fields(self) -> dict[str, Any]:
        """Return the fields of BenchRun."""
        return {name: getattr(self, name) for name in _FIELDS}

    def _delays(self) -> dict[str, tuple[float, str]]:
        """Return the p99 delay in ms that the client adds to each latency, and the part of the client that adds it."""
        lag_ms = max(0.0, (self.client.loop_lag or 0.0) - LOOP_TIMER_MS)
        before, after, after_ms = "issue to engine", "event loop", lag_ms
        if self.servers:
            before, after, after_ms = "issue to wire", "response to LoadGen", self.client.read_to_loadgen or 0.0
        first = max((self.client.issue_to_engine or 0.0, before), (after_ms, after))
        # A late last token adds its delay once to the time of all tokens.
        return {"TTFT": first, "TPOT": (after_ms / max(1.0, self.mean_output_tokens - 1), after), "latency": first}

    def delays_ms(self) -> dict[str, float]:
        """Return the p99 delay in ms that the client adds to each latency."""
        return {name: delay_ms for name, (delay_ms, _) in self._delays().items()}

    def late_client(self, latencies: Mapping[str, Latency]) -> Iterator[str]:
        """Yield a reason for each latency that a delay of the client could explain.

        Args:
            latencies: by the names of BenchRun.
        """
        for name, (late_ms, part) in self._delays().items():
            latency = latencies.get(name.lower())
            if latency is None or (
                name == "latency" and "ttft" in latencies
            ):  # the delay of the TTFT, of a larger time
                continue
            statistic = next((name for name in ("p99", "p95", "p90") if latency.at(name) is not None), "p50")
            value_ms = latency.at(statistic) or 0.0
            if late_ms > CLIENT_SHARE * value_ms:
                yield f"client: {part} p99 {milliseconds(late_ms)} ms of {statistic} {name} {milliseconds(value_ms)} ms"

    @property
    def doubtful_tokens(self) -> str | None:
        """The numbers of tokens in words if the tokenizer contradicts the server's numbers; otherwise None."""
        doubt = doubtful_tokens(self.servers)
        return doubt and f"tokens: {doubt}"

    @property
    def without_tpot(self) -> str | None:
        """The reason why the TPOT is not measured, if too many responses arrived at once."""
        at_once = sum(client.answers_read_at_once for client in self.servers)
        if at_once <= AT_ONCE_SHARE * self.queries:
            return None
        return f"TPOT: not measured, because {at_once:,} of {self.queries:,} responses arrived at once"

    def distortions(self) -> Iterator[str]:
        """Yield the reasons of the engine and the machine."""
        if self.cached_share is not None and self.cached_share > CACHED_SHARE:
            yield f"cache: {self.cached_share:.1%} of the prompt tokens were read from a cache"
        server, received = self.tokens.server, self.tokens.counted
        if (
            server is not None
            and received is not None
            and all(server_facts.text is None for server_facts in self.servers)
        ):
            is_different = abs(server - received) > METRICS_SHARE * received
            yield from [f"tokens: the server counts {server:,} output tokens, the client {received:,}"] * is_different
        if self.tokens.estimated:
            yield "tokens: estimated from chunks"
        if self.short_responses:
            yield f"tokens: {self.short_responses:,} of {self.queries:,} responses are shorter than requested"
        if (
            held_back := sum(server_facts.first_tokens_with_others for server_facts in self.servers)
        ) > HELD_SHARE * self.queries:
            yield f"TTFT: {held_back:,} of {self.queries:,} first tokens arrived together with later tokens"
        if self.contention is not None and self.contention > FOREIGN_SHARE:
            yield f"machine: other processes used {self.contention:.0%} of the cores' time"


_FIELDS = ("client", "cached_share", "tokens", "contention", "short_responses")


def _cached_tokens(servers: list[ServerClient]) -> int | None:
    """Return the prompt tokens from a cache; None if a server does not count them."""
    cached = 0
    for server in _by_url(servers):
        by_metrics = [
            client.cached_tokens_by_metrics for client in server if client.cached_tokens_by_metrics is not None
        ]
        if all(client.each_response_counts_reuse for client in server):
            cached += sum(client.cached_tokens for client in server)
        elif by_metrics:
            cached += max(by_metrics)  # each client reads the same counter
        else:
            return None
    return cached


def counted_output_tokens(servers: list[ServerClient], counted: int) -> OutputTokens:
    """Return the number of output tokens of all responses: as the servers report it, and as received."""
    if texts := [server_facts.text for server_facts in servers if server_facts.text is not None]:
        has_usage = all(server_facts.has_usage for server_facts in servers)
        counted_tokens = sum(text.tokens_by_tokenizer for text in texts) if has_usage else counted
        return OutputTokens(
            server=sum(text.tokens_by_usage for text in texts) if has_usage else None,
            counted=counted_tokens if all(text.is_tokenized for text in texts) else None,
            estimated=any(text.responses_estimated for text in texts),
        )
    # Tokens that the counters of the servers report in addition to the received tokens: of probes and warm-up.
    excess = 0
    for server in _by_url(servers):
        by_metrics = [client.tokens_by_metrics for client in server if client.tokens_by_metrics is not None]
        if not by_metrics:
            return OutputTokens(server=None, counted=counted)
        excess += max(by_metrics) - sum(client.tokens_that_came for client in server)
    return OutputTokens(server=counted + excess if servers else None, counted=counted)


def _by_url(servers: list[ServerClient]) -> list[list[ServerClient]]:
    return [
        [server for server in servers if server.server == url]
        for url in dict.fromkeys(server.server for server in servers)
    ]
