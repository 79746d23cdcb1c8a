"""How late the client of a server was, beside the limits of its leg: `observed["engine"]` of manifest.json.

LoadGen's times hold the client's own lateness, because LoadGen stamps when it is called. It is little or the times are
the client's as much as the server's.
"""

from collections.abc import Iterator
from typing import Any

OF_A_LIMIT = 0.05  # more than this share of a limit is flagged


def late_client(observed: dict[str, Any], loadgen_settings: dict[str, Any]) -> Iterator[str]:
    """Sentences on a client that was later than `OF_A_LIMIT` of a limit (p99); nothing where no client measured itself.

    Args:
        observed: of the manifest.
        loadgen_settings: of the manifest; limits in ns, None outside LoadGen's Server scenario.
    """
    record = observed.get("engine") or {}
    clients = record.get("replicas") or [record]
    sent = [late for client in clients if (late := (client.get("issue_to_wire") or {}).get("p99_ms")) is not None]
    told_ms = (record.get("read_to_loadgen") or {}).get("p99_ms")
    if not sent or told_ms is None:
        return
    sent_ms = max(sent)
    tokens = sum(client["tokens"] for client in clients) / max(1, sum(client["answers"] for client in clients))
    shares = (
        ("TTFT", "ttft_latency", sent_ms + told_ms),
        ("TPOT", "tpot_latency", told_ms / max(1.0, tokens - 1)),
    )
    for name, setting, late_ms in shares:
        limit_ns = loadgen_settings.get(setting)
        if limit_ns and late_ms > OF_A_LIMIT * limit_ns / 1e6:
            yield (
                f"the client itself was {late_ms:.1f} ms late (p99), more than {OF_A_LIMIT:.0%} of the {name} limit of "
                f"{limit_ns / 1e6:.0f} ms: give it more cores, or more client processes"
            )
