"""P-4: does the record of the requests fit LoadGen's, and in the way that a real one does?

Our stamps are read inside LoadGen's: later than its own at issue, earlier at a token or a completion. So no statistic
of our raw times may exceed LoadGen's of the same measure, and none is equal to the nanosecond: a record that was made
up to fit LoadGen's results errs on one of these sides.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compliance.finding import Finding, fail, warn
from compliance.signoff.evidence import Evidence
from compliance.signoff.limits import (
    CLOCK_READ_NS,
    CLOCK_SET_NS,
    COARSE_NS,
    EQUAL_REQUESTS,
    EQUAL_STAMP_SHARE,
    EQUAL_STATISTICS,
    FAR_STAMP_NS,
    FEW_SAMPLES,
    SPAN_NS,
    SPAN_SHARE,
    STAMP_MEDIAN_NS,
)
from compliance.signoff.proofs.issued_queries import scheduled_offsets_ns
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.early_stopping import SECOND_PERCENTILE, estimate_percentile
from runs.loadgen.trace_log import Trace
from runs.numbers.compare import LONE_STAMP_NS, stopped_at_most
from runs.numbers.numbers import PERCENTILE_SHARES, STATISTICS, LatencyNumbers, reported_numbers
from runs.numbers.rederive import statistics
from runs.record.requests_log import NO_TIME, RequestTable

_OF_MOST = 0.95  # percentiles up to this one do not move with a few requests that waited for a core


def stamps(evidence: Evidence) -> Iterator[Finding]:
    """All of P-4 on one leg with its record."""
    table = evidence.requests
    if table is None or not len(table):
        return
    yield from _one_by_one(evidence, table)
    yield from _copied_times(evidence, table)
    if evidence.trace is not None and len(evidence.trace) == len(table):
        yield from _against_trace(evidence, table, evidence.trace)
    if evidence.is_performance and evidence.detail.has_results:
        yield from _against_results(evidence, table)


def _one_by_one(evidence: Evidence, table: RequestTable) -> Iterator[Finding]:
    """Each request on its own: its times in order, and no query before the one before it in SingleStream."""
    where = evidence.run.requests
    lacking = int(np.count_nonzero(table.first_token_ns == NO_TIME))
    if lacking and evidence.detail.scenario != "Offline":  # nor may one be left out: most statistics need them all
        text = f"{lacking} requests have no time of their first token"
        yield fail("P-4/record_incomplete", text, where, count=lacking)
    first_ns = np.where(table.first_token_ns == NO_TIME, table.issue_ns, table.first_token_ns)
    back_ns = np.maximum(table.issue_ns - first_ns, first_ns - table.complete_ns)
    yield from _in_order(back_ns, 0, "requests have their times in an impossible order", evidence, table)
    if evidence.detail.scenario == "Server" and evidence.is_performance:
        lag_ns = table.issue_ns - scheduled_offsets_ns(evidence, len(table))
        yield from _too_regular(lag_ns, "the time from schedule to issue", evidence)
    if evidence.detail.scenario == "SingleStream" and len(table) > 1:
        gap_ns = table.issue_ns[1:] - table.complete_ns[:-1]
        said = "queries were followed by the next one before they were complete"
        yield from _in_order(-gap_ns, CLOCK_READ_NS, said, evidence, table)
        yield from _too_regular(gap_ns, "the time between completion and next issue", evidence)


def _in_order(
    back_ns: NDArray[np.int64], allowed_ns: int, said: str, evidence: Evidence, table: RequestTable
) -> Iterator[Finding]:
    """A step back of some milliseconds at one moment is a clock that was set, of which a reader is told."""
    wrong = np.flatnonzero(back_ns > allowed_ns)
    if len(wrong):
        once = back_ns.max() <= CLOCK_SET_NS and np.ptp(table.complete_ns[wrong]) <= 4 * CLOCK_SET_NS
        text = f"{len(wrong)} {said}, first seq {int(table.seq[wrong[0]])}"
        make = warn if once else fail
        yield make("P-4/impossible_times", text, evidence.run.requests, count=len(wrong))


def _copied_times(evidence: Evidence, table: RequestTable) -> Iterator[Finding]:
    """Requests with the times of other ones, and stamps with fewer digits than the clock has."""
    where = evidence.run.requests
    if evidence.detail.scenario != "Offline":  # there a batch may end at one stamp
        times = np.stack((table.first_token_ns - table.issue_ns, table.complete_ns - table.issue_ns))
        copied = len(table) - np.unique(times, axis=1).shape[1]
        if copied >= EQUAL_REQUESTS:
            text = f"{copied} requests have the times of another one to the nanosecond: copied, not read from a clock"
            yield fail("P-4/record_made_to_fit", text, where, copied=copied)
    coarse = float(np.mean(table.complete_ns % COARSE_NS == 0))
    if len(table) >= FEW_SAMPLES and coarse > EQUAL_STAMP_SHARE:
        text = f"{coarse:.0%} of the completions are whole microseconds: the record went through something else"
        yield warn("P-4/coarse_stamps", text, where, share=coarse)


def _against_trace(evidence: Evidence, table: RequestTable, trace: Trace) -> Iterator[Finding]:
    """Sample by sample. The trace counts from an origin of its own, which the most punctual issue gives."""
    where = evidence.run.requests
    issued_ns = trace.scheduled_ns + trace.issue_delay_ns
    origin_ns = int((table.issue_ns - issued_ns).min())
    measures: list[tuple[str, NDArray[np.int64]]] = [
        ("issue", table.issue_ns - issued_ns - origin_ns),
        ("completion", trace.scheduled_ns + trace.complete_ns + origin_ns - table.complete_ns),
    ]
    both = (table.first_token_ns != NO_TIME) & (trace.first_token_ns != NO_TIME)
    if both.any():
        late_ns = (trace.scheduled_ns + trace.first_token_ns + origin_ns - table.first_token_ns)[both]
        measures.append(("first token", late_ns))
    for name, gap_ns in measures:
        median_ms, least_ms, most_ms = (float(f(gap_ns)) / 1e6 for f in (np.median, np.min, np.max))
        numbers: dict[str, Any] = {"median_ms": median_ms, "least_ms": least_ms, "most_ms": most_ms}
        text = f"the stamps of {name} in requests.jsonl and trace are {least_ms:.3f} to {most_ms:.3f} ms apart"
        if median_ms > STAMP_MEDIAN_NS / 1e6 or gap_ns.min() < -CLOCK_READ_NS or gap_ns.max() > LONE_STAMP_NS:
            yield fail("P-4/stamps_differ", f"{text} (median {median_ms:.3f})", where, **numbers)
        elif gap_ns.max() > FAR_STAMP_NS:
            yield warn("P-4/stamps_far_apart", f"{text} (median {median_ms:.3f})", where, **numbers)
    yield from _too_regular(dict(measures)["completion"], "the distance of completions from the trace's", evidence)


def _too_regular(gap_ns: NDArray[np.int64], name: str, evidence: Evidence) -> Iterator[Finding]:
    """Readings of a clock differ in the last digits; computed stamps do not."""
    if len(gap_ns) < FEW_SAMPLES:
        return
    _, counts = np.unique(gap_ns, return_counts=True)
    share = float(counts.max()) / len(gap_ns)
    if share > EQUAL_STAMP_SHARE:
        text = f"{name} is the same to the nanosecond in {share:.0%} of the requests: computed, not read from a clock"
        yield fail("P-4/record_made_to_fit", text, evidence.run.requests, share=share)


def _against_results(evidence: Evidence, table: RequestTable) -> Iterator[Finding]:
    """Our times against LoadGen's statistics, which count from earlier and to later."""
    reported = reported_numbers(evidence.detail)
    where = evidence.run.requests
    due_ns = table.issue_ns
    if evidence.detail.scenario == "Server":  # the schedule is known; no query is issued before its time
        offsets_ns = scheduled_offsets_ns(evidence, len(table))
        due_ns = offsets_ns + (table.issue_ns - offsets_ns).min()
    measures = [("latency", table.complete_ns - due_ns, reported.latency_ns)]
    if reported.ttft_ns is not None and not (table.first_token_ns == NO_TIME).any():
        measures.append(("TTFT", table.first_token_ns - due_ns, reported.ttft_ns))
    equal: list[str] = []
    for name, raw_ns, theirs in measures:
        if theirs is None:
            continue
        ours = statistics(raw_ns)
        both = {s: (getattr(ours, s), getattr(theirs, s)) for s in STATISTICS}
        if name == measures[-1][0]:
            both |= _estimates(evidence.detail, raw_ns)
        worst, (mine, said) = max(both.items(), key=lambda one: one[1][0] - one[1][1])
        if mine - said > CLOCK_READ_NS:
            text = f"{worst} {name} is {mine / 1e6:.3f} ms in our record, {said / 1e6:.3f} ms to LoadGen"
            text += ", whose clock runs longer"
            yield fail("P-4/record_contradicts_loadgen", text, where, statistic=worst, above_ns=mine - said)
        if evidence.detail.scenario != "Offline":
            yield from _too_regular(raw_ns - table.issue_ns + due_ns, f"the {name} from its issue", evidence)
        values = {getattr(theirs, statistic): statistic for statistic in STATISTICS}
        as_recorded = statistics(raw_ns - table.issue_ns + due_ns)
        known = {(s, getattr(one, s)) for one in (ours, as_recorded) for s in STATISTICS}
        equal += [f"{s} {name} {value} ns" for value, s in values.items() if (s, value) in known]
    if len(equal) >= EQUAL_STATISTICS:
        text = f"{len(equal)} statistics are LoadGen's to the nanosecond ({equal[0]}): the record was made from them"
        yield fail("P-4/record_made_to_fit", text, where, equal=len(equal))
    if reported.tpot_ns is not None and not (table.first_token_ns == NO_TIME).any():
        yield from _spans(table, reported.tpot_ns, evidence)


def _estimates(detail: DetailLog, raw_ns: NDArray[np.int64]) -> dict[str, tuple[int, int]]:
    """SingleStream's score and the other one that early stopping estimates, by our record and by LoadGen."""
    if detail.scenario != "SingleStream":
        return {}
    target, values_ns = detail.number("effective_target_latency_percentile"), np.sort(raw_ns)
    pairs = (("early_stopping_latency_ss", target), ("early_stopping_latency_ms", SECOND_PERCENTILE))
    found = {key: (estimate_percentile(values_ns, share), detail.integer(key)) for key, share in pairs}
    return {key: (mine, said) for key, (mine, said) in found.items() if mine is not None}


def _spans(table: RequestTable, theirs: LatencyNumbers, evidence: Evidence) -> Iterator[Finding]:
    """The time per output token ties each latency to its own number of tokens: times dealt out anew do not fit it, nor
    do LoadGen's own made smaller by little more than the stamps are apart."""
    gaps = np.maximum(table.output_tokens - 1, 1)
    values_ns = np.sort((table.complete_ns - table.first_token_ns) // gaps)
    ours, stopped = statistics(values_ns), stopped_at_most(len(table))
    allowed_ns, apart_ns = (one / float(np.median(gaps)) for one in (SPAN_NS, STAMP_MEDIAN_NS))
    for statistic, share in PERCENTILE_SHARES.items():
        mine, said = getattr(ours, statistic), getattr(theirs, statistic)
        # Of some requests the machine was stopped between a stamp of ours and LoadGen's.
        surely_ns = int(values_ns[max(0, int(np.searchsorted(values_ns, mine)) - stopped)])
        far = share <= _OF_MOST and abs(mine - said) > allowed_ns + SPAN_SHARE * said
        if far or surely_ns > said + apart_ns:
            text = f"{statistic} TPOT is {mine / 1e6:.4f} ms in our record and {said / 1e6:.4f} ms to LoadGen"
            yield fail("P-4/stamps_differ", text, evidence.run.requests, ours_ns=mine, theirs_ns=said)
            return
