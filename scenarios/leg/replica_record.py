"""What each of several engines did, from the record of the requests."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runs.record.layout import RunDir
from runs.record.requests_log import NO_TIME, read_requests


def with_numbers(replicas: list[dict[str, Any]], run_dir: RunDir) -> list[dict[str, Any]]:
    """The records of a leg's replicas, with output tokens and p99 of TTFT and TPOT (from the issue; None = no first
    tokens)."""
    if not replicas:
        return replicas
    table = read_requests(run_dir.requests)
    assert table.replica is not None
    completed = []
    for record in replicas:
        mine = table.replica == record["replica"]
        first = table.first_token_ns[mine]
        tokens = table.output_tokens[mine]
        streamed = first != NO_TIME
        several = streamed & (tokens > 1)
        ttft_ns = (first - table.issue_ns[mine])[streamed]
        tpot_ns = ((table.complete_ns[mine] - first)[several]) / (tokens[several] - 1)
        completed.append(
            {
                **record,
                "output_tokens": int(tokens.sum()),
                "ttft_p99_ms": _p99_ms(ttft_ns),
                "tpot_p99_ms": _p99_ms(tpot_ns),
            }
        )
    return completed


def _p99_ms(values_ns: NDArray[np.int64] | NDArray[np.float64]) -> float | None:
    return round(float(np.percentile(values_ns, 99)) / 1e6, 3) if len(values_ns) else None
