"""Facts of the servers and clients of a run that its end reports, such as failed responses and late clients."""

from collections.abc import Iterator, Mapping

from runs.record.engines.server_facts import COUNTS_SHARE
from runs.record.observed import Observed, ServerClient

FAILED_SHARE = 0.01  # share of failed responses above which a run ends
OF_A_LIMIT = 0.05  # share of a latency limit above which a delay is reported as a note


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


def stated_verdict(verdict: str, observed: Observed) -> str:
    """Return the verdict of LoadGen on a performance run, or that it is unclear because token counts contradict."""
    return f"unclear (LoadGen: {verdict})" if doubtful_tokens(observed.clients) else verdict


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


def late_ends(observed: Observed, limits_ns: Mapping[str, int]) -> Iterator[str]:
    """Yield notes on servers that send the end of a response long after its last token.

    The median gap is long above `OF_A_LIMIT` of the lowest limit, and the p99 above `OF_A_LIMIT` of the highest limit.

    Args:
        limits_ns: effective TTFT and TPOT limits.
    """
    if not limits_ns:
        return
    bounds_ms = {"p50": OF_A_LIMIT * min(limits_ns.values()) / 1e6, "p99": OF_A_LIMIT * max(limits_ns.values()) / 1e6}
    for client in observed.clients:
        for name, bound_ms in bounds_ms.items():
            counted_ms, gap_ms = (
                getattr(gap, f"{name}_ms", None) or 0.0
                for gap in (client.last_token_to_loadgen, client.last_token_to_end)
            )
            if gap_ms > bound_ms:
                effect = "do not include this gap"
                if counted_ms > bound_ms:
                    effect = (
                        f"include {counted_ms:.0f} ms of it, because only the end shows that the response is complete"
                    )
                yield (
                    f"server {client.server}: the end of a response arrives {gap_ms:.0f} ms ({name}) after its last "
                    f"token, which is more than {OF_A_LIMIT:.0%} of a latency limit; LoadGen's times {effect}"
                )
                break


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
