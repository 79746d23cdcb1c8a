"""Checks P-4, P-6, P-7, H-2 and B-4: on the requests of one run.

The seeds in LoadGen's log determine the loaded samples and, in Server, the time of each query; the trace and the
request log must agree with them. Each replica must have responded, with the same weights, and no faster than its
devices allow. A large share of the tokens is a warning, because a pause of another replica also causes it. A short
median time per token is an error if all replicas have equal devices.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compliance.judge.rule import Need, check_of
from compliance.judge.verdict import Finding, Severity, stated
from compliance.results.run_evidence import ids_unknown
from compliance.signoff.evidence import FASTER_FAIL, FEW_SAMPLES, STAMP_MEDIAN_NS, Evidence, checks
from runs.errors import InputError
from runs.loadgen.conf_in_log import mismatches
from runs.loadgen.conf_lines import read_stored
from runs.loadgen.defaults import defaults
from runs.loadgen.replay import expected_order, expected_samples
from runs.numbers.timeline import scheduled_offsets_ns
from runs.record.fingerprint import value_text
from runs.record.manifest import Manifest
from runs.record.observed import FOREIGN_SHARE
from runs.record.requests_log import NO_TIME, RequestTable

# Limit of the delay of a query after its scheduled time (Server) or after the preceding completion (SingleStream). Runs
# of the dummy engine on a shared machine with two cores stay below 30 ms.
LATE_ISSUE_P99_MS = 100.0
# After a pause of the machine, LoadGen issues all overdue queries at once, one every 0.02 ms or faster.
OFF_SCHEDULE_MS = 50.0
AT_ONCE_SHARE = 0.5  # maximum time between overdue queries, as a share of the scheduled time between them
AT_ONCE_MS = 0.2  # maximum time between overdue queries on a machine that cannot keep up, in ms
CLOCK_READ_NS = 50_000  # allowed difference between two readings of one clock; honest runs have at least 2 µs
CLOCK_SET_NS = 5_000_000  # largest step of the clock by an NTP daemon
# speed relative to the other replicas from which a replica is flagged; shared cores halve the speed
REPLICA_FASTER_FLAG = 2.0
LENGTH = "length"  # finish reason of a response that reached the token limit
ENDS = {LENGTH, "stop"}  # other finish reasons mark failed responses
_REQUESTS: tuple[Need, ...] = ("files", "manifest", "requests")


@checks(
    "P-6",
    ("not_loadgens_queries", "error", "loaded samples, compared with the seeds"),
    ("replayed", "note", "queries, compared with the seeds"),
    needs=("files",),
)
def replay(evidence: Evidence) -> Iterator[Finding]:
    """Compare the loaded samples and the times of the queries with the seeds (P-6). `verify` compares their order.

    A LoadGen built with another C++ library draws other numbers. This harness does not use such a build.
    """
    table, detail = evidence.requests, evidence.detail
    if evidence.manifest is None and evidence.trace is None:
        return
    count = len(table) if table is not None else expected_samples(detail) or 0
    expected = expected_order(detail, count) if count else None
    if expected is None:
        text = f"the loaded samples do not follow from qsl_rng_seed {detail.seeds.qsl_rng_seed}"
        yield stated("P-6/not_loadgens_queries", text, detail.path)
        return
    if table is None:
        return
    text = f"loaded set and order of {count} samples follow from the seeds"
    if evidence.is_performance and detail.scenario == "Server":
        yield from _schedule(evidence, table, scheduled_offsets_ns(detail, count))
        text += f", as do {count} scheduled times"
    yield stated("P-6/replayed", text, detail.path, samples=count)


@checks("P-6", ("not_loadgens_schedule", "error", "times of the queries, compared with the seed"))
def _schedule(evidence: Evidence, table: RequestTable, offsets_ns: NDArray[np.int64]) -> Iterator[Finding]:
    if evidence.trace is not None:
        scheduled_ns = evidence.trace.scheduled_ns - evidence.trace.scheduled_ns[0]
        wrong = np.flatnonzero(scheduled_ns != offsets_ns) if len(scheduled_ns) == len(offsets_ns) else np.arange(1)
        if len(wrong):
            seq = int(wrong[0])
            text = f"times in the trace that differ from schedule_rng_seed: {len(wrong)}, first at seq {seq}"
            yield stated("P-6/not_loadgens_schedule", text, evidence.dir.trace, seq=seq, different=len(wrong))
    lag_ns = table.issue_ns - offsets_ns
    lag_ns -= lag_ns.min()
    median_ms = float(np.median(lag_ns)) / 1e6
    if median_ms <= OFF_SCHEDULE_MS:
        return
    overdue = np.minimum(lag_ns[1:], lag_ns[:-1]) > OFF_SCHEDULE_MS * 1e6
    pause_ms, due_ms = (float(np.median(np.diff(times)[overdue])) / 1e6 for times in (table.issue_ns, offsets_ns))
    if pause_ms > max(AT_ONCE_SHARE * due_ms, AT_ONCE_MS):
        text = f"requests were issued {median_ms:.1f} ms (median) after the time that follows from the seed; overdue"
        text += f" requests were {pause_ms:.3g} ms apart (scheduled: {due_ms:.3g} ms)"
        yield stated(
            "P-6/not_loadgens_schedule", "", evidence.dir.requests, found=text,
            required="LoadGen issues them at once", median_ms=median_ms, pause_ms=pause_ms,
        )  # fmt: skip


@checks("B-4", ("issue_delay", "note", "delay of LoadGen's queries"), needs=("files", "requests"))
def late_issues(evidence: Evidence) -> Iterator[Finding]:
    """Check the delay of the queries of a performance run (B-4).

    The delay counts from the scheduled time, less the smallest delay (Server), or from the preceding completion
    (SingleStream). A busy machine delays LoadGen and makes the result worse, so it is a warning.
    """
    table, detail = evidence.table, evidence.detail
    if len(table) < 2 or detail.scenario == "Offline" or not evidence.is_performance:
        return
    late_ns = table.issue_ns[1:] - table.complete_ns[:-1]
    if detail.scenario == "Server":
        late_ns = table.issue_ns - scheduled_offsets_ns(detail, len(table))
        late_ns -= late_ns.min()
    p99_ms = float(np.quantile(late_ns, 0.99)) / 1e6
    numbers: dict[str, Any] = {"p99_ms": p99_ms, "limit_ms": LATE_ISSUE_P99_MS}
    if p99_ms > LATE_ISSUE_P99_MS:
        text = f"delay of LoadGen's queries: {p99_ms:.1f} ms (p99), required: at most {LATE_ISSUE_P99_MS:g} ms"
        yield stated("B-4/contended", text, evidence.dir.requests, **numbers, severity="warning")
    else:
        yield stated(
            "B-4/issue_delay", f"delay of LoadGen's queries: {p99_ms:.2f} ms (p99)", evidence.dir.requests, **numbers
        )


@checks("P-4", ("record_incomplete", "error", "requests without the time of their first token"), needs=_REQUESTS)
def _times(evidence: Evidence) -> Iterator[Finding]:
    """Check the order of the times of each request and, in SingleStream, of consecutive queries (P-4)."""
    where, table = evidence.dir.requests, evidence.table
    lacking = int(np.count_nonzero(table.first_token_ns == NO_TIME))
    if lacking and evidence.detail.scenario != "Offline":  # most statistics need the first token times of all requests
        text = f"requests without the time of their first token: {lacking}, required: none"
        yield stated("P-4/record_incomplete", text, where, count=lacking)
    first_ns = np.where(table.first_token_ns == NO_TIME, table.issue_ns, table.first_token_ns)
    back_ns = np.maximum(table.issue_ns - first_ns, first_ns - table.complete_ns)
    yield from _in_order(back_ns, 0, "requests with times in an impossible order", evidence, table)
    if evidence.detail.scenario == "SingleStream" and len(table) > 1:
        gap_ns = table.issue_ns[1:] - table.complete_ns[:-1]
        text = "queries that were incomplete when LoadGen issued the next query"
        yield from _in_order(-gap_ns, CLOCK_READ_NS, text, evidence, table)


@checks("P-4", ("impossible_times", "error", "requests with times in an impossible order"))
def _in_order(
    back_ns: NDArray[np.int64], allowed_ns: int, what: str, evidence: Evidence, table: RequestTable
) -> Iterator[Finding]:
    """Report times in an impossible order. A single step of a few ms is a warning, because NTP sets clocks."""
    wrong = np.flatnonzero(back_ns > allowed_ns)
    if len(wrong):
        once = back_ns.max() <= CLOCK_SET_NS and np.ptp(table.complete_ns[wrong]) <= 4 * CLOCK_SET_NS
        text = f"{what}: {len(wrong)}, first seq {int(table.seq[wrong[0]])}, required: none"
        severity: Severity = "warning" if once else "error"
        yield stated("P-4/impossible_times", text, evidence.dir.requests, count=len(wrong), severity=severity)


@checks(
    "P-4",
    ("other_limit", "error", "number of output tokens, compared with the limits"),
    needs=_REQUESTS,
    applies=ids_unknown,
)
def _ends(evidence: Evidence) -> Iterator[Finding]:
    """Check that each response ended with an end-of-sequence token or is exactly as long as the limit (P-4)."""
    table, plan = evidence.table, evidence.record.plan
    if reasons := set(table.finish_reason) - ENDS:
        text = f"finish reasons: {', '.join(sorted(reasons))[:80]}, required: {' or '.join(sorted(ENDS))}"
        yield stated("P-4/other_limit", text, evidence.dir.requests)
    least, limit = plan.sampling.min_tokens, plan.sampling.max_tokens
    if plan.engine_record.is_server:
        least = 0  # some servers ignore min_tokens
    cut = np.array([reason == LENGTH for reason in table.finish_reason])
    wrong = np.flatnonzero((np.where(cut, limit, least) > table.output_tokens) | (table.output_tokens > limit))
    if len(wrong):
        seq, tokens = int(table.seq[wrong[0]]), int(table.output_tokens[wrong[0]])
        text = f"responses with a wrong number of tokens: {len(wrong)}, for example seq {seq} with {tokens}"
        text += f", required: {least} to {limit} ({limit} if the response was cut)"
        yield stated("P-4/other_limit", text, evidence.dir.requests, count=len(wrong), tokens=tokens, limit=limit)


@checks(
    "H-2",
    ("other_prompts", "error", "prompt length, compared with the dataset"),
    ("prompts_not_compared", "note", "missing dataset, which has the prompts"),
    needs=_REQUESTS,
)
def _prompts(evidence: Evidence) -> Iterator[Finding]:
    """Compare the length of each prompt with the dataset, if it is available (H-2)."""
    references, table, plan = evidence.references, evidence.table, evidence.record.plan
    prompts = None if references is None else references.prompt_tokens
    if prompts is not None and plan.rows is not None:
        prompts = prompts[plan.rows] if max(plan.rows) < len(prompts) else None
    if prompts is None or int(table.sample_index.max()) >= len(prompts):
        yield stated(
            "H-2/prompts_not_compared",
            "the dataset is missing: prompts were not compared with it",
            evidence.dir.manifest,
        )
        return
    recorded, longest = plan.longest_prompt_tokens, prompts[: plan.sample_count].max()
    if recorded != longest:
        stated_length, required = f"longest prompt: {recorded} tokens in the manifest", f"{longest} in the dataset"
        yield stated(
            "H-2/other_prompts", "", evidence.dir.manifest, found=stated_length, required=required, recorded=recorded
        )
    expected = prompts[table.sample_index]
    wrong = np.flatnonzero(expected != table.prompt_tokens)
    if len(wrong):
        place = int(wrong[0])
        text = (
            f"prompts whose length differs from the dataset: {len(wrong)}, first seq {int(table.seq[place])} with "
            f"{int(table.prompt_tokens[place])} tokens instead of {int(expected[place])}"
        )
        yield stated("H-2/other_prompts", text, evidence.dir.requests, count=len(wrong))


def most_at_once(starts: NDArray[np.int64], ends: NDArray[np.int64], amounts: NDArray[np.int64] | None = None) -> int:
    """Return the largest number of requests in flight, or the largest sum of their `amounts`, such as tokens."""
    amounts = np.ones(len(starts), np.int64) if amounts is None else amounts
    changes, moments = np.concatenate((amounts, -amounts)), np.concatenate((starts, ends))
    return int(np.cumsum(changes[np.lexsort((changes, moments))]).max())


def batch_limit(manifest: Manifest) -> int | None:
    """Return the maximum number of requests that the engine computes at once, from the manifest; None if unknown."""
    plan, configuration = manifest.plan, manifest.engine.configuration
    most = configuration.get(plan.engine_record.batch_field, plan.engine_options.get(plan.engine_record.batch_field))
    copies = configuration.get("data_parallel_size")
    return most * (copies if isinstance(copies, int) else 1) if isinstance(most, int) and most > 0 else None


@checks(
    "P-7",
    ("more_than_the_batch", "error", "concurrent requests, compared with the engine's batch limit"),
    needs=_REQUESTS,
)
def at_once(evidence: Evidence) -> Iterator[Finding]:
    """Check that the number of requests between first and last token never exceeded the engine's batch limit (P-7).

    Preempted requests count too, and so do responses that a busy machine logged late. If these are possible, the
    finding is a warning.
    """
    manifest, table = evidence.record, evidence.table
    limit = batch_limit(manifest)
    has_first_token = table.first_token_ns != NO_TIME
    if limit is None or not has_first_token.any():
        return
    starts_ns = table.first_token_ns[has_first_token]
    # Subtract the largest delay with which the event loop may have logged a time.
    lag = manifest.observed.loop_lag
    slack_ns = max(STAMP_MEDIAN_NS, round(lag.worst_ms * 1e6) if lag is not None else 0)
    most = most_at_once(starts_ns, np.maximum(table.complete_ns[has_first_token] - slack_ns, starts_ns))
    if most <= limit:
        return
    pool = evidence.engine_log.kv_cache_tokens
    tokens_held = int((table.prompt_tokens + table.output_tokens).max()) * most
    certain = not manifest.plan.engine_record.may_preempt or (pool is not None and tokens_held < pool)
    severity: Severity = "error" if certain and manifest.observed.foreign_share <= FOREIGN_SHARE else "warning"
    text = f"requests between first and last token at once: {most}, required: at most the batch limit {limit}"
    yield stated("P-7/more_than_the_batch", text, evidence.dir.requests, most=most, limit=limit, severity=severity)


@checks("P-7", ("settings_contradict_record", "error", "effective settings, compared with user.conf"), needs=_REQUESTS)
def _user_conf(evidence: Evidence) -> Iterator[Finding]:
    """Check that LoadGen ran with the settings of user.conf (P-7). Settings of audit.config are excepted."""
    run, plan = evidence.dir, evidence.record.plan
    try:
        settings = read_stored(run.user_conf)
        audited = {line.key for line in read_stored(run.audit_config)} if plan.audit else set()
    except InputError as error:
        yield stated("P-1/damaged_raw", error.message, run.user_conf)
        return
    scenario, models = evidence.detail.scenario, (plan.loadgen_key,)
    for mismatch in mismatches(settings, models, evidence.detail, audited, defaults(evidence.benchmark, scenario)):
        value = mismatch.line.value if mismatch.line else "missing"
        yield stated(
            "P-7/settings_contradict_record", "", run.user_conf, key=mismatch.key, logged=mismatch.logged,
            found=f"{mismatch.key} is {value} in user.conf",
            required=f"{mismatch.record} is {mismatch.logged:g} in LoadGen's log",
        )  # fmt: skip


@checks("P-4", ("silent_replica", "error", "replicas without responses"), needs=_REQUESTS)
@checks("P-7", ("replicas_differ", "error", "weights of the replicas, compared with the manifest"))
def replicas(evidence: Evidence) -> Iterator[Finding]:
    """Check the responses, weights and speed of each replica (P-4, P-7, H-5)."""
    manifest, table = evidence.record, evidence.table
    records = manifest.replicas
    if table.replica is None or not records:
        return
    # The first queries go to the replicas in turn, so each replica has at least one.
    silent = {record.replica for record in records} - set(table.replica.tolist())
    if silent and len(table) >= len(records):
        text = f"replica {', '.join(map(str, sorted(silent)))} responded to none of the {len(table)} queries"
        yield stated("P-4/silent_replica", text, evidence.dir.requests, replicas=sorted(silent))
    for record in records:
        expected = {file: manifest.model.sha256.get(file) for file in record.weights_sha256}
        if record.weights_sha256 != expected:
            text = f"weights of replica {record.replica} ({record.host}): {value_text(record.weights_sha256, 80)}"
            text += f", required by the manifest: {value_text(expected, 80)}"
            yield stated("P-7/replicas_differ", text, evidence.dir.manifest, replica=record.replica)
    if len(records) < 2 or len(table) < FEW_SAMPLES * len(records):
        return
    sizes = [len(record.devices or record.cores) or 1 for record in records]
    times_ns = [table.tpot_ns(table.replica == record.replica) for record in records]
    if all(len(times) >= FEW_SAMPLES for times in times_ns):
        speeds = [1 / max(float(np.median(times)), 1.0) for times in times_ns]
        certain = _same_devices(manifest)
        yield from _fastest(evidence, "median time per token", speeds, sizes, certain=certain)
    tokens = [max(1.0, float(table.output_tokens[table.replica == record.replica].sum())) for record in records]
    yield from _fastest(evidence, "number of output tokens", tokens, sizes, certain=False)


@checks("H-5", ("replica_too_fast", "error", "speed of the fastest replica, relative to its devices"))
def _fastest(
    evidence: Evidence, measure: str, speeds: Sequence[float], sizes: Sequence[int], *, certain: bool
) -> Iterator[Finding]:
    fastest = int(np.argmax(speeds))
    remaining, larger = (np.median(np.delete(column, fastest)) for column in (speeds, sizes))
    # A replica with more devices may be faster.
    times = float(speeds[fastest] / remaining / max(1.0, sizes[fastest] / larger))
    if times > REPLICA_FASTER_FLAG:
        severity: Severity = "error" if certain and times > FASTER_FAIL else "warning"
        text = f"replica {fastest} is {times:.1f} times as fast per device or core as the others ({measure})"
        yield stated(
            "H-5/replica_too_fast",
            text,
            evidence.dir.requests,
            replica=fastest,
            times=round(times, 3),
            severity=severity,
        )


def _same_devices(manifest: Manifest) -> bool:
    """Return True if all replicas have devices of one kind, or cores of one machine without load by other processes."""
    kind, plan = manifest.plan.engine_record, manifest.plan
    if kind.is_server:
        return False  # the devices of a server are unknown
    if not any(record.devices for record in manifest.replicas):
        contended = manifest.observed.foreign_share > FOREIGN_SHARE  # the load of the other nodes is unknown
        return not plan.nodes and not contended
    names = {row.get("name") for row in manifest.observed.accelerators}
    return len(names) == 1 and None not in names


# The checks, in the order of their findings.
CHECKS = tuple(map(check_of, (replay, _times, _ends, _prompts, at_once, _user_conf, replicas, late_issues)))
