"""P-4, P-7 and H-2 on the requests of one leg: their times, ends, prompts and batch, and LoadGen's settings."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from compliance.finding import Finding, fail, note, warn
from compliance.signoff.evidence import Evidence, checks
from compliance.signoff.leg_conditions import batch_limit
from compliance.signoff.limits import CLOCK_READ_NS, CLOCK_SET_NS, STAMP_MEDIAN_NS
from compliance.signoff.proofs.replica_proofs import replicas
from runs.errors import InputError
from runs.loadgen.counts import defaults
from runs.loadgen.user_conf import mismatches, read_conf
from runs.record.manifest import Manifest
from runs.record.observed import FOREIGN_SHARE
from runs.record.requests_log import NO_TIME, RequestTable

LENGTH = "length"  # why an answer ended that has as many tokens as were allowed
ENDS = {LENGTH, "stop"}  # an engine's other words are for answers that it gave up


def request_checks(evidence: Evidence) -> Iterator[Finding]:
    """All of them on one leg with its manifest and requests.jsonl."""
    table, manifest = evidence.requests, evidence.manifest
    if table is None or manifest is None or not len(table):
        return
    yield from _times(evidence, table)
    yield from _ends(evidence, manifest, table)
    yield from _prompts(evidence, manifest, table)
    yield from _batch(evidence, manifest, table)
    yield from _user_conf(evidence, manifest)
    yield from replicas(evidence, manifest, table, contended=manifest.observed.foreign_share > FOREIGN_SHARE)


@checks("P-4", ("record_incomplete", "error", "the record has every request"))
def _times(evidence: Evidence, table: RequestTable) -> Iterator[Finding]:
    """P-4: each request has its times in order; in SingleStream no query comes before the one before it is complete."""
    where = evidence.run.requests
    lacking = int(np.count_nonzero(table.first_token_ns == NO_TIME))
    if lacking and evidence.detail.scenario != "Offline":  # nor may one be left out: most statistics need them all
        text = f"{lacking} requests have no time of their first token"
        yield fail("P-4/record_incomplete", text, where, count=lacking)
    first_ns = np.where(table.first_token_ns == NO_TIME, table.issue_ns, table.first_token_ns)
    back_ns = np.maximum(table.issue_ns - first_ns, first_ns - table.complete_ns)
    yield from _in_order(back_ns, 0, "requests have their times in an impossible order", evidence, table)
    if evidence.detail.scenario == "SingleStream" and len(table) > 1:
        gap_ns = table.issue_ns[1:] - table.complete_ns[:-1]
        said = "queries were followed by the next one before they were complete"
        yield from _in_order(-gap_ns, CLOCK_READ_NS, said, evidence, table)


@checks("P-4", ("impossible_times", "error", "the times of a request are in a possible order"))
def _in_order(
    back_ns: NDArray[np.int64], allowed_ns: int, said: str, evidence: Evidence, table: RequestTable
) -> Iterator[Finding]:
    """A step back of some milliseconds at one moment is a clock that was set: a warning."""
    wrong = np.flatnonzero(back_ns > allowed_ns)
    if len(wrong):
        once = back_ns.max() <= CLOCK_SET_NS and np.ptp(table.complete_ns[wrong]) <= 4 * CLOCK_SET_NS
        text = f"{len(wrong)} {said}, first seq {int(table.seq[wrong[0]])}"
        make = warn if once else fail
        yield make("P-4/impossible_times", text, evidence.run.requests, count=len(wrong))


@checks("P-4", ("other_limit", "error", "an answer that was cut at the limit is as long as the limit"))
def _ends(evidence: Evidence, manifest: Manifest, table: RequestTable) -> Iterator[Finding]:
    """P-4: an answer ended by itself, or was cut at the limit and has as many tokens as the limit; none has more."""
    if other := set(table.finish_reason) - ENDS:
        text = f"answers ended by {', '.join(sorted(other))[:80]}, and not by {' or '.join(sorted(ENDS))}"
        yield fail("P-4/other_limit", text, evidence.run.requests)
    plan = manifest.plan
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


@checks(
    "H-2",
    ("other_prompts", "error", "prompts are as long as in the data set"),
    ("prompts_not_compared", "note", "the data set is available"),
)
def _prompts(evidence: Evidence, manifest: Manifest, table: RequestTable) -> Iterator[Finding]:
    """H-2: each prompt is as long as in the data set, if that is at hand."""
    references = evidence.references
    if references is None or int(table.sample_index.max()) >= len(references.prompt_tokens):
        yield note("H-2/prompts_not_compared", "the data set is not available", evidence.run.manifest)
        return
    said, in_data = (
        manifest.plan.longest_prompt_tokens,
        references.prompt_tokens[: manifest.plan.sample_count],
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


@checks("P-7", ("more_than_the_batch", "error", "no more requests are answered at a time than the engine computes"))
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
    certain = not manifest.plan.engine_record.may_preempt or (pool is not None and held < pool)
    make = fail if certain and manifest.observed.foreign_share <= FOREIGN_SHARE else warn
    text = f"{most} requests were between first and last token at one time; by its record the engine computes {limit}"
    yield make("P-7/more_than_the_batch", text, evidence.run.requests, most=most, limit=limit)


def _worst_lag_ns(manifest: Manifest) -> int:
    lag = manifest.observed.loop_lag
    return round(lag.worst_ms * 1e6) if lag is not None else 0


@checks("P-7", ("settings_contradict_record", "error", "LoadGen logged the settings that it was given"))
def _user_conf(evidence: Evidence, manifest: Manifest) -> Iterator[Finding]:
    """P-7: LoadGen ran with what user.conf gives, but for what audit.config decides."""
    run, plan = evidence.run, manifest.plan
    try:
        settings = read_conf(run.user_conf)
        audited = {line.key for line in read_conf(run.audit_config)} if plan.audit else set()
    except InputError as error:
        yield fail("P-1/damaged_raw", error.message, run.user_conf)
        return
    scenario, models = evidence.detail.scenario, (plan.loadgen_key,)
    for found in mismatches(settings, models, evidence.detail, audited, defaults(evidence.benchmark, scenario)):
        said = found.line.value if found.line else "not given"
        text = f"{found.key} of user.conf is {said}, {found.record} of LoadGen's log has {found.logged:g}"
        yield fail("P-7/settings_contradict_record", text, run.user_conf, key=found.key, logged=found.logged)
