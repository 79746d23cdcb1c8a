"""P-6 and B-4: were the queries LoadGen's, and was it on time? From the seeds in its log alone follow the loaded
samples and, in the Server scenario, the time of each: compared with the trace and with requests.jsonl."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compliance.finding import Finding, fail, note, warn
from compliance.signoff.evidence import Evidence, checks
from compliance.signoff.limits import AT_ONCE_MS, AT_ONCE_SHARE, LATE_ISSUE_P99_MS, OFF_SCHEDULE_MS
from runs.errors import InputError
from runs.loadgen.replay import expected_order, expected_samples
from runs.loadgen.schedule import poisson_offsets_ns
from runs.record.requests_log import RequestTable


@checks(
    "P-6",
    ("not_loadgens_queries", "error", "the queries are those that the seeds give"),
    ("replayed", "note", "the queries were replayed from the seeds"),
)
def replay(evidence: Evidence) -> Iterator[Finding]:
    """P-6 beyond the order of issue, which `verify` replays.

    A LoadGen that was built with another C++ library draws otherwise; its logs cannot be replayed, which for the
    LoadGen that this product runs is a FAIL.
    """
    table, detail = evidence.requests, evidence.detail
    count = len(table) if table is not None else expected_samples(detail) or 0
    expected = expected_order(detail, count) if count else None
    if expected is None:
        text = f"the loaded samples do not follow from qsl_rng_seed {detail.seeds.qsl_rng_seed}"
        yield fail("P-6/not_loadgens_queries", text, detail.path)
        return
    if table is None:
        return
    text = f"{count} samples in the order of the seeds; loaded set and order replayed"
    if evidence.is_performance and detail.scenario == "Server":
        yield from _schedule(evidence, table, scheduled_offsets_ns(evidence, count))
        text += f", and {count} scheduled times"
    yield note("P-6/replayed", text, detail.path, samples=count)


def scheduled_offsets_ns(evidence: Evidence, count: int) -> NDArray[np.int64]:
    """When a Server run's queries were due, from its start, by the seed and the load in its log.

    Raises:
        InputError: a load of nothing.
    """
    detail, qps = evidence.detail, evidence.detail.number("effective_target_qps")
    if not qps > 0:
        raise InputError(f"{detail.path}: effective_target_qps is {qps:g}", "give LoadGen's own log")
    return poisson_offsets_ns(detail.seeds.schedule_rng_seed, qps, count)


@checks("P-6", ("not_loadgens_schedule", "error", "the queries came when the seed has them due"))
def _schedule(evidence: Evidence, table: RequestTable, offsets_ns: NDArray[np.int64]) -> Iterator[Finding]:
    if evidence.trace is not None:
        scheduled_ns = evidence.trace.scheduled_ns - evidence.trace.scheduled_ns[0]
        wrong = np.flatnonzero(scheduled_ns != offsets_ns) if len(scheduled_ns) == len(offsets_ns) else np.arange(1)
        if len(wrong):
            seq = int(wrong[0])
            text = f"{len(wrong)} scheduled times in the trace are not those of schedule_rng_seed, first at seq {seq}"
            yield fail("P-6/not_loadgens_schedule", text, evidence.run.trace, seq=seq, different=len(wrong))
    lag_ns = table.issue_ns - offsets_ns
    lag_ns -= lag_ns.min()
    median_ms = float(np.median(lag_ns)) / 1e6
    if median_ms <= OFF_SCHEDULE_MS:
        return
    overdue = np.minimum(lag_ns[1:], lag_ns[:-1]) > OFF_SCHEDULE_MS * 1e6
    pause_ms, due_ms = (float(np.median(np.diff(times)[overdue])) / 1e6 for times in (table.issue_ns, offsets_ns))
    if pause_ms > max(AT_ONCE_SHARE * due_ms, AT_ONCE_MS):
        text = f"requests were issued {median_ms:.1f} ms off the schedule of the seed (median), what was overdue"
        text += f" every {pause_ms:.3g} ms, due every {due_ms:.3g} ms: LoadGen issues that at once"
        yield fail("P-6/not_loadgens_schedule", text, evidence.run.requests, median_ms=median_ms, pause_ms=pause_ms)


def issue_delays_ns(evidence: Evidence) -> NDArray[np.int64] | None:
    """How late LoadGen issued each query of a performance leg: from its schedule, the most punctual query being on time
    (Server), or from the completion before it (SingleStream). None in Offline, which has one query.
    """
    table, detail = evidence.requests, evidence.detail
    if table is None or len(table) < 2 or detail.scenario == "Offline" or not evidence.is_performance:
        return None
    if detail.scenario == "Server":
        lag_ns = table.issue_ns - scheduled_offsets_ns(evidence, len(table))
        return lag_ns - int(lag_ns.min())
    return table.issue_ns[1:] - table.complete_ns[:-1]


@checks("B-4", ("issue_delay", "note", "how late LoadGen issued"))
def late_issues(evidence: Evidence) -> Iterator[Finding]:
    """B-4: a machine that other work keeps busy issues late. That counts against the result, so it is no FAIL."""
    late_ns = issue_delays_ns(evidence)
    if late_ns is None:
        return
    p99_ms = float(np.quantile(late_ns, 0.99)) / 1e6
    numbers: dict[str, Any] = {"p99_ms": p99_ms, "limit_ms": LATE_ISSUE_P99_MS}
    if p99_ms > LATE_ISSUE_P99_MS:
        text = f"LoadGen issued {p99_ms:.1f} ms late (p99), more than {LATE_ISSUE_P99_MS:g} ms: the machine was busy"
        yield warn("B-4/contended", text, evidence.run.requests, **numbers)
    else:
        yield note("B-4/issue_delay", f"issued {p99_ms:.2f} ms late (p99)", evidence.run.requests, **numbers)
