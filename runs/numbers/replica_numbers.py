"""What each of several engines did, from the record of the requests."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runs.record.requests_log import NO_TIME, RequestTable


def replica_numbers(table: RequestTable, number: int) -> dict[str, Any]:
    """Queries, output tokens, and p99 of TTFT and TPOT in ms (from the issue; None = no first tokens) of one engine."""
    mine = _mine(table, number)
    first = table.first_token_ns[mine]
    return {
        "queries": int(mine.sum()),
        "output_tokens": int(table.output_tokens[mine].sum()),
        "ttft_p99_ms": _p99_ms((first - table.issue_ns[mine])[first != NO_TIME]),
        "tpot_p99_ms": _p99_ms(times_per_token_ns(table, number)),
    }


def times_per_token_ns(table: RequestTable, number: int) -> NDArray[np.float64]:
    """Of one engine: the time per output token behind the first, for each answer that has several."""
    several = _mine(table, number) & (table.first_token_ns != NO_TIME) & (table.output_tokens > 1)
    spans_ns = (table.complete_ns - table.first_token_ns)[several]
    return np.asarray(spans_ns / (table.output_tokens[several] - 1), np.float64)


def _mine(table: RequestTable, number: int) -> NDArray[np.bool_]:
    assert table.replica is not None  # of a leg with several engines
    return np.asarray(table.replica == number)


def _p99_ms(values_ns: NDArray[np.int64] | NDArray[np.float64]) -> float | None:
    return round(float(np.percentile(values_ns, 99)) / 1e6, 3) if len(values_ns) else None
