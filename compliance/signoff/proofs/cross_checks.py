"""What the files of one leg say of each other, beside the stamps of each request (stamps.py).

Each is a small thing that an honest leg has right without trying, and that somebody who makes a result, or its record,
has to remember.
"""

from collections.abc import Iterator

import numpy as np

from compliance.finding import Finding, fail, note, warn
from compliance.signoff.evidence import Evidence
from compliance.signoff.leg_conditions import batch_limit
from compliance.signoff.limits import (
    HEARTBEAT_SLACK,
    HISTOGRAM_BIN,
    HISTOGRAM_LOW_MS,
    STAMP_MEDIAN_NS,
    WINDOW_SLACK_S,
    WINDOW_SLACK_SHARE,
)
from compliance.signoff.proofs.replica_proofs import replicas
from runs.errors import InputError
from runs.loadgen.given import UNLOGGED, defaults, mismatches
from runs.loadgen.user_conf import in_force, read_conf
from runs.record.manifest import Manifest
from runs.record.observed import FOREIGN_SHARE, foreign_share, loop_lag_of, query_times_of
from runs.record.requests_log import NO_TIME, RequestTable

LENGTH = "length"  # why an answer ended that has as many tokens as were allowed
ENDS = {LENGTH, "stop"}  # an engine's other words are for answers that it gave up


def cross_checks(evidence: Evidence) -> Iterator[Finding]:
    """All of them on one leg with its manifest and its record."""
    table, manifest = evidence.requests, evidence.manifest
    if table is None or manifest is None or not len(table):
        return
    yield from _heartbeat(evidence, table)
    yield from _engine_times(evidence, manifest, table)
    yield from _ends(evidence, manifest, table)
    yield from _prompts(evidence, manifest, table)
    yield from _batch(evidence, manifest, table)
    yield from _user_conf(evidence, manifest)
    yield from replicas(evidence, manifest, table, contended=foreign_share(manifest.observed) > FOREIGN_SHARE)


def _heartbeat(evidence: Evidence, table: RequestTable) -> Iterator[Finding]:
    """P-4: the last heartbeat counted the same requests, from histograms of its own."""
    progress, where = evidence.progress, evidence.run.progress
    if progress.get("phase") != "done":
        return
    for name, count in (("samples_per_second", len(table)), ("tokens_per_second", int(table.output_tokens.sum()))):
        told = progress[name] * progress["elapsed_s"]
        if abs(told - count) > HEARTBEAT_SLACK * count:
            text = f"{name} of the last heartbeat is {progress[name]:.4g}, in {progress['elapsed_s']:.4g} s that is"
            yield fail("P-4/heartbeat_differs", f"{text} {told:.4g}, and the record has {count}", where, told=told)
    known = table.first_token_ns != NO_TIME
    several = known & (table.output_tokens > 1)
    spans_ns = (table.complete_ns - table.first_token_ns)[several] / (table.output_tokens[several] - 1)
    for name, times_ns in (
        ("ttft_p99_ms", (table.first_token_ns - table.issue_ns)[known].astype(np.float64)),
        ("tpot_p99_ms", spans_ns),
    ):
        said_ms = progress.get(name)
        if not len(times_ns) or not isinstance(said_ms, int | float):
            if len(times_ns) or said_ms is not None:  # of an engine that shows no first tokens neither has any
                has, lacks = ("record", "last heartbeat") if len(times_ns) else ("last heartbeat", "record")
                yield fail("P-4/heartbeat_differs", f"the {lacks} has no {name}, the {has} has", where)
            continue
        true_ms = float(np.sort(times_ns)[min(int(len(times_ns) * 0.99), len(times_ns) - 1)]) / 1e6
        true_ms = max(true_ms, HISTOGRAM_LOW_MS)
        if not said_ms * (1 - HEARTBEAT_SLACK) <= true_ms <= said_ms * HISTOGRAM_BIN * (1 + HEARTBEAT_SLACK):
            text = f"{name} of the last heartbeat is {said_ms:.4g}, the record gives {true_ms:.4g}"
            yield fail("P-4/heartbeat_differs", text, where, said_ms=said_ms, record_ms=true_ms)


def _engine_times(evidence: Evidence, manifest: Manifest, table: RequestTable) -> Iterator[Finding]:
    """P-7: no queries were in the engine, by its own statistics and clock, for longer than they took us altogether."""
    times = query_times_of(manifest.observed.get("engine"))
    if times is None:
        return
    inside_s = times.queued_s + times.prefill_s + times.decode_s
    took_s = int((table.complete_ns - table.issue_ns).sum()) / 1e9
    if inside_s > took_s * (1 + WINDOW_SLACK_SHARE) + WINDOW_SLACK_S:
        text = (
            f"the queries were {inside_s:.2f} s in the engine by its own times, by the record they took {took_s:.2f} s"
        )
        yield fail("P-7/engine_contradicts_record", text, evidence.run.manifest, inside_s=inside_s, took_s=took_s)


def _ends(evidence: Evidence, manifest: Manifest, table: RequestTable) -> Iterator[Finding]:
    """P-4: an answer ended by itself, or was cut at the limit and has as many tokens as the limit; none has more."""
    if other := set(table.finish_reason) - ENDS:
        text = f"answers ended by {', '.join(sorted(other))[:80]}, and not by {' or '.join(sorted(ENDS))}"
        yield fail("P-4/other_limit", text, evidence.run.requests)
    plan = manifest.resolved
    least, limit = plan.sampling.get("min_tokens"), plan.sampling.get("max_tokens")
    if not isinstance(limit, int) or not isinstance(least, int):
        return
    if plan.engine_record.is_server:
        least = 0  # not every server has a way to be asked for it
    cut = np.array([reason == LENGTH for reason in table.finish_reason])
    wrong = np.flatnonzero((np.where(cut, limit, least) > table.output_tokens) | (table.output_tokens > limit))
    if len(wrong):
        seq, tokens = int(table.seq[wrong[0]]), int(table.output_tokens[wrong[0]])
        text = f"{len(wrong)} answers do not have {least} to {limit} tokens, those that were cut {limit}: that of seq"
        text += f" {seq} has {tokens}"
        yield fail("P-4/other_limit", text, evidence.run.requests, count=len(wrong), tokens=tokens, limit=limit)


def _prompts(evidence: Evidence, manifest: Manifest, table: RequestTable) -> Iterator[Finding]:
    """H-2: each prompt is as long as in the data set, if that is at hand."""
    references = evidence.references
    if references is None or int(table.sample_index.max()) >= len(references.prompt_tokens):
        yield note("H-2/prompts_not_compared", "the data set is not at hand", evidence.run.manifest)
        return
    said, in_data = (
        manifest.resolved.longest_prompt_tokens,
        references.prompt_tokens[: manifest.resolved.sample_count],
    )
    if said != in_data.max():
        text = f"the longest prompt has {said} tokens by the record, {in_data.max()} in the data set"
        yield fail("H-2/other_prompts", text, evidence.run.manifest, said=said)
    expected = references.prompt_tokens[table.sample_index]
    wrong = np.flatnonzero(expected != table.prompt_tokens)
    if len(wrong):
        place = int(wrong[0])
        text = (
            f"{len(wrong)} prompts are not as long as in the data set, first at seq {int(table.seq[place])}: "
            f"{int(table.prompt_tokens[place])} tokens, there {int(expected[place])}"
        )
        yield fail("H-2/other_prompts", text, evidence.run.requests, count=len(wrong))


def _batch(evidence: Evidence, manifest: Manifest, table: RequestTable) -> Iterator[Finding]:
    """P-7: no more requests were between first and last token than the engine computes at a time.

    A request that was preempted is in between without being computed, and on a machine that others used, answers are
    looked at late; where that cannot be excluded it is a FLAG.
    """
    limit = batch_limit(manifest)
    known = table.first_token_ns != NO_TIME
    if limit is None or not known.any():
        return
    starts = np.sort(table.first_token_ns[known])
    # Our own loop may have looked at a finished answer that much after the engine gave it.
    slack_ns = max(STAMP_MEDIAN_NS, _worst_lag_ns(manifest))
    ends = np.sort(np.maximum(table.complete_ns[known] - slack_ns, table.first_token_ns[known]))
    most = int((np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")).max())
    if most <= limit:
        return
    pool = evidence.engine_log.kv_cache_tokens
    held = int((table.prompt_tokens + table.output_tokens).max()) * most
    certain = not manifest.resolved.engine_record.may_preempt or (pool is not None and held < pool)
    make = fail if certain and foreign_share(manifest.observed) <= FOREIGN_SHARE else warn
    text = f"{most} requests were between first and last token at one time; by its record the engine computes {limit}"
    yield make("P-7/more_than_the_batch", text, evidence.run.requests, most=most, limit=limit)


def _worst_lag_ns(manifest: Manifest) -> int:
    lag = loop_lag_of(manifest.observed)
    return round(lag.worst_ms * 1e6) if lag is not None else 0


def _user_conf(evidence: Evidence, manifest: Manifest) -> Iterator[Finding]:
    """P-7: LoadGen ran with what user.conf gives, but for what audit.config decides."""
    run, plan = evidence.run, manifest.resolved
    try:
        settings = read_conf(run.user_conf)
        audited = {line.key for line in read_conf(run.audit_config)} if plan.audit else set()
    except InputError as error:
        yield fail("P-1/damaged_raw", error.message, run.user_conf)
        return
    scenario, models = evidence.detail.scenario, (plan.loadgen_key,)
    for key in UNLOGGED:
        line = in_force(settings, models, scenario, key)
        given, recorded = float(line.value) if line else 0.0, manifest.loadgen_settings.get(key, 0)
        if given != (0 if key == "mode" else recorded):
            text = f"user.conf gives {key} {given:g}, manifest.json has {recorded}"
            yield fail("P-7/settings_contradict_record", text, run.user_conf, key=key)
    otherwise = defaults(evidence.benchmark, scenario) if manifest.current else {}
    for found in mismatches(settings, models, evidence.detail, audited, otherwise):
        said = found.line.value if found.line else "not given"
        text = f"{found.key} of user.conf is {said}, {found.record} of LoadGen's log has {found.logged:g}"
        yield fail("P-7/settings_contradict_record", text, run.user_conf, key=found.key, logged=found.logged)
