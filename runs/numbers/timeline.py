"""The times at which each sample was scheduled, issued, had its first token and completed.

Times have two sources: LoadGen's trace, exact to the nanosecond, and the harness's requests.jsonl, whose times differ
slightly from LoadGen's (later at issue, earlier at completion; runs/numbers/log_comparison.py).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from runs.errors import InputError
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.schedule import poisson_offsets_ns
from runs.loadgen.trace_log import Trace
from runs.record.requests_log import NO_TIME, RequestTable

TimeSource = Literal["trace", "requests"]


@dataclass(frozen=True)
class Timeline:
    """Per-sample times in order of issue; int64 arrays of equal length, in ns."""

    source: TimeSource
    scheduled_ns: NDArray[np.int64]  # from the start of the test
    issued_ns: NDArray[np.int64]  # from the start of the test
    latency_ns: NDArray[np.int64]  # from scheduled to completed
    ttft_ns: NDArray[np.int64] | None  # from scheduled to first token; None in Offline

    def __len__(self) -> int:
        return len(self.latency_ns)


def timeline(detail: DetailLog, requests: RequestTable, trace: Trace | None) -> Timeline:
    """Return the per-sample times, from the trace if it exists.

    Raises:
        InputError: If the request log is empty, or first tokens are missing.
    """
    if len(requests) == 0:
        raise InputError(
            f"the request log of the run of {detail.path} is empty", "use the requests.jsonl that belongs to these logs"
        )
    if trace is not None and len(trace) > 0:
        return _from_trace(detail, trace)
    return _from_requests(detail, requests)


def _from_trace(detail: DetailLog, trace: Trace) -> Timeline:
    scheduled_ns = trace.scheduled_ns - trace.scheduled_ns[0]
    return Timeline(
        source="trace",
        scheduled_ns=scheduled_ns,
        issued_ns=scheduled_ns + trace.issue_delay_ns,
        latency_ns=trace.complete_ns,
        ttft_ns=_checked_ttft(detail, trace.first_token_ns, trace.first_token_ns != NO_TIME, "trace"),
    )


def scheduled_offsets_ns(detail: DetailLog, count: int) -> NDArray[np.int64]:
    """Return the scheduled times of a Server run's queries since its start, from the seed and rate in its log.

    Raises:
        InputError: If LoadGen cannot have this rate.
    """
    target_qps = detail.number("effective_target_qps")
    if not 1e-6 <= target_qps <= 1e9:
        raise InputError(f"{detail.path}: effective_target_qps is {target_qps}", "use the run's unchanged log")
    return poisson_offsets_ns(detail.seeds.schedule_rng_seed, target_qps, count)


def _from_requests(detail: DetailLog, requests: RequestTable) -> Timeline:
    issue_ns = requests.issue_ns
    if detail.scenario == "Server":
        offsets_ns = scheduled_offsets_ns(detail, len(requests))
        # LoadGen issues no query before its scheduled time, so the query with the smallest delay gives the start of the
        # test.
        start_ns = int((issue_ns - offsets_ns).min())
        scheduled_ns = offsets_ns
    elif detail.scenario == "Offline":
        start_ns = int(issue_ns.min())
        scheduled_ns = np.zeros_like(issue_ns)
    else:
        # SingleStream: LoadGen issues the next query after each completion, and reads its clock before it waits for the
        # interpreter lock. The previous completion is closer to that time than the harness's time of issue, which may
        # be tens of milliseconds later.
        start_ns = int(issue_ns[0])
        issue_ns = np.concatenate((issue_ns[:1], np.minimum(issue_ns[1:], requests.complete_ns[:-1])))
        scheduled_ns = issue_ns - start_ns
    due_ns = start_ns + scheduled_ns
    return Timeline(
        source="requests",
        scheduled_ns=scheduled_ns,
        issued_ns=issue_ns - start_ns,
        latency_ns=requests.complete_ns - due_ns,
        ttft_ns=_checked_ttft(
            detail, requests.first_token_ns - due_ns, requests.first_token_ns != NO_TIME, "requests.jsonl"
        ),
    )


def _checked_ttft(
    detail: DetailLog, ttft_ns: NDArray[np.int64], has_first_token: NDArray[np.bool_], source: str
) -> NDArray[np.int64] | None:
    """Return the first-token times. LoadGen reports them in all scenarios except Offline."""
    if detail.scenario == "Offline" or not detail.uses_token_latencies:
        return None
    if not has_first_token.all():
        raise InputError(
            f"{source} has no first token for {int((~has_first_token).sum())} of {len(has_first_token)} samples "
            f"(first: seq {int(np.argmin(has_first_token))})",
            "rerun; in this scenario the engine must report the first token of each sample",
        )
    return ttft_ns
