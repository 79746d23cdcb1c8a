"""Rules on one run directory: its files, the order of its events, and the reported numbers."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, NotApplied, Severity, compared, stated
from compliance.mlperf_endpoints.derive import COMPLETED, FAILED, INPUT, OUTPUT, ROUNDING, TPOT, Metrics
from compliance.mlperf_endpoints.endpoints_evidence import COMPLETE, EndpointsEvidence
from compliance.mlperf_endpoints.load import AGENTIC, RERUN, SECOND
from compliance.mlperf_endpoints.summary_comparison import (
    Difference,
    compare_report,
    compare_summary,
    reported_differences,
    reported_metrics,
)
from runs.mlperf_endpoints.events import NO_TIME, NOTHING, TEXT, EventColumn, Events
from runs.mlperf_endpoints.folder import PERFORMANCE
from runs.mlperf_endpoints.layout import CONFIG, EVENTS, REPORT, SAMPLES, SNAPSHOT, SUMMARY
from runs.wording import counted, printable

MAX_SHOWN = 8  # differences of one file that are findings of their own
TOKENS_OFF_PCT = 1.0  # percent
# Share of the samples; an honest server sends one or two of 60 short responses in one piece.
FEW_LATE = 0.05
# The client writes a snapshot at this interval from the start of the session, and the last one after tokenizing all
# responses. [mlcommons/endpoints ea332753: services/metrics_aggregator/publisher.py, __main__.py]
SNAPSHOT_S, TIMER_S = 0.25, 0.1  # interval, and error of its timers
MAX_APART = 8  # intervals from one snapshot to the next on average; at most 2.6 on a busy machine
# The same within the session, after its first second; at most 1.0 in recorded runs.
MAX_APART_IN_SESSION, START_S = 3, 1.0
# Tokenizing ends some seconds after the session; a longer time can show that the session was shortened.
LONG_AFTER_S, LONG_AFTER_SHARE = 10.0, 0.05
# Share of failed samples, and number of them at the end, that show a server that died; fewer failures can be chance.
MAX_FAILED, FAILED_AT_END = 0.05, 5
UNCHANGED = "restore the files that the client wrote"
KEEP = "keep the complete directory as the client wrote it"


@decides(
    "result",
    ("endpoints-files", "error", OURS, "missing files", KEEP),
    ("endpoints-finished", "error", OURS, "state of the client at the end", RERUN),
)  # fmt: skip
def check_files(case: EndpointsEvidence) -> Iterator[Finding | NotApplied]:
    """Check whether the client wrote all its files and finished."""
    run = case.run
    missing = ", ".join(run.missing) or "none"
    yield compared("endpoints-files", not run.missing, missing, "none", run.root, missing=run.missing)
    for name in run.missing:
        yield NotApplied("the file is missing", what=name)
    if (summary := run.summary) is not None:
        done = summary.complete and summary.state == COMPLETE
        missing = f"{printable(summary.state, 40)}, statistics {'complete' if summary.complete else 'incomplete'}"
        yield compared("endpoints-finished", done, missing, f"{COMPLETE}, statistics complete", run.path(SUMMARY))


@decides(
    "contradiction",
    ("endpoints-events", "error", OURS, "order of the events", UNCHANGED),
    ("endpoints-samples", "error", OURS, "samples in sample_idx_map.json, compared with the events", UNCHANGED),
    needs=("events",),
)  # fmt: skip
def order_of_events(case: EndpointsEvidence) -> Iterator[Finding | NotApplied]:
    """Check the order of the events, and compare sample_idx_map.json with them."""
    run, events = case.run, case.run.events
    if events is None:
        return
    agentic = run.config is not None and run.config.settings.load_pattern.type == AGENTIC
    if agentic:
        yield NotApplied("in an agentic run, the client itself completes samples", what="order of completions")
    value = f"{sum(events.counts.values()):,} events of {counted(len(events), 'sample')}"
    odd = list(_odd(events, agentic, case.is_complete))[:MAX_SHOWN]
    yield from odd or [compared("endpoints-events", True, value, "", events.path)]
    if run.indices is not None:
        files = run.path(SAMPLES), events.path
        wrong = [stated("endpoints-samples", text, *files) for text in _samples(run.indices, events)]
        yield from wrong or [compared("endpoints-samples", True, "equal", "", *files)]


def _odd(events: Events, agentic: bool, complete: bool) -> Iterator[Finding]:
    """Report events that are out of place."""
    for what, odd in events.odd.items():
        if not (agentic and "completion" in what):
            subject = f" of sample {printable(odd.uuid, 40)}" if odd.uuid else ""
            more = f", and {odd.count - 1:,} more" if odd.count > 1 else ""
            yield stated("endpoints-events", f"{what}{subject}{more}", events.path, line=odd.line)
    if early := int((events.completed & (events.complete_ns < events.issued_ns)).sum()):
        yield stated("endpoints-events", f"{counted(early, 'sample')} completed before they were issued", events.path)
    missing = {
        "start": events.started_ns == NO_TIME,
        "end": events.ended_ns == NO_TIME,
        "start of measuring": not events.phases,
        "end of measuring": bool(events.phases) and events.phases[-1][1] == NO_TIME,
    }
    if complete and (names := ", no ".join(name for name, is_missing in missing.items() if is_missing)):
        text = f"the client reports a complete session, but its events have no {names}"
        yield stated("endpoints-events", text, events.path)


def _samples(phases: dict[str, dict[str, int]], events: Events) -> Iterator[str]:
    """Yield the differences between sample_idx_map.json and the events."""
    rows = {name: np.array([events.rows.get(uuid, -1) for uuid in phases[name]], np.int64) for name in phases}
    measured, tracked = rows.pop(PERFORMANCE, np.zeros(0, np.int64)), np.flatnonzero(events.tracked)
    for name, indices in (*rows.items(), (PERFORMANCE, measured)):
        if (indices < 0).any():
            yield f"phase {printable(name, 40)} has a sample that was never issued"
            break
    if not np.array_equal(np.sort(measured), tracked):
        yield f"measured samples: {len(measured):,} in this file, {len(tracked):,} in the events"
    elif not np.array_equal(measured, tracked):
        yield "the measured samples are not in the order of issue"
    of_datasets = np.concatenate([np.zeros(0, np.int64), *rows.values()])
    late = np.flatnonzero(~events.tracked & (np.arange(len(events)) > tracked.max(initial=-1)))
    if len(tracked) and not np.array_equal(np.sort(of_datasets), late):
        yield f"samples after the measured phase: {len(of_datasets):,} in this file, {len(late):,} in the events"


@decides(
    "contradiction",
    ("endpoints-clock", "error", OURS, "time from the session's start to the last snapshot", UNCHANGED),
    needs=("events", "snapshot", "complete"),
)  # fmt: skip
def check_clock(case: EndpointsEvidence) -> Iterator[Finding]:
    """Compare the session with the number of snapshots, which another process of the client counts by its own clock."""
    events, snapshot = case.run.events, case.run.snapshot
    if events is None or snapshot is None or snapshot.timestamp_ns is None or not case.is_complete:
        return
    session_s, taken_s = ((time_ns - events.started_ns) / SECOND for time_ns in (events.last_ns, snapshot.timestamp_ns))
    counted_s, files = ((snapshot.counter or 1) - 1) * SNAPSHOT_S - TIMER_S, (case.run.path(SNAPSHOT), events.path)
    most_s = MAX_APART_IN_SESSION * SNAPSHOT_S * (snapshot.counter or 0) + START_S
    limit = f"at least {session_s:.3f} s (length of the session)"
    yield compared("endpoints-clock", taken_s >= session_s, f"{taken_s:.3f} s", limit, *files)
    problems = {
        f"at least {counted_s:.3f} s ({snapshot.counter} snapshots)": taken_s < counted_s,
        f"about {SNAPSHOT_S * (snapshot.counter or 0):.3f} s ({snapshot.counter} snapshots)": taken_s
        > MAX_APART * SNAPSHOT_S * (snapshot.counter or 0),
        f"at most {most_s:.3f} s for the session ({snapshot.counter} snapshots)": session_s > most_s,
        f"about {session_s:.3f} s (length of the session); tokenizing was slow, or the session was shortened": taken_s
        > session_s + max(LONG_AFTER_S, LONG_AFTER_SHARE * session_s),
    }
    for problem in (problem for problem, holds in problems.items() if holds):
        what = "time from the session's start to the last snapshot"
        yield stated("endpoints-clock", f"{what}: {taken_s:.3f} s, expected: {problem}", *files, severity="warning")


@decides(
    "contradiction",
    ("endpoints-summary", "error", OURS, "result_summary.json, recomputed from the events", UNCHANGED),
    ("endpoints-snapshot", "error", OURS, "final_snapshot.json, recomputed from the events", UNCHANGED),
    ("endpoints-report", "error", OURS, "report.txt, compared with result_summary.json", UNCHANGED),
    needs=("complete",),
)  # fmt: skip
def check_reported_numbers(case: EndpointsEvidence) -> Iterator[Finding | NotApplied]:
    """Compare the reported numbers with the events, and the files of the report with each other."""
    run, summary, snapshot = case.run, case.run.summary, case.run.snapshot
    against, reported = run.path(EVENTS), {} if snapshot is None else reported_metrics(snapshot)
    if summary is not None and (reported or case.metrics):
        unequal = compare_summary(run, summary, case.metrics)
        yield from _compared("endpoints-summary", unequal, run.path(SUMMARY), against)
    if snapshot is not None and run.events is not None:
        unequal = reported_differences(reported, case.metrics)
        yield from _compared("endpoints-snapshot", unequal, run.path(SNAPSHOT), against)
        yield from _token_series(case, run.events, reported)
    if run.report is not None and summary is not None:
        unequal = compare_report(run.report, summary)
        yield from _compared("endpoints-report", unequal, run.path(REPORT), run.path(SUMMARY), source=SUMMARY)


def _compared(
    rule: str, differences: Iterable[Difference], *files: Path, source: str = "recomputed"
) -> Iterator[Finding]:
    listed = list(differences)
    for name, reported, expected in listed[:MAX_SHOWN]:
        # The run_config of the summary is a copy of settings in config.yaml.
        origin = CONFIG if name.startswith("run_config") else source
        place = name if source == "recomputed" else f"{files[0].name}: {name}"
        text = f"{place}: {_shown(reported)}, {origin}: {_shown(expected)}"
        yield stated(rule, text, *files, name=name, reported=_plain(reported), expected=_plain(expected))
    if len(listed) > MAX_SHOWN:
        yield stated(rule, f"{len(listed) - MAX_SHOWN} more numbers differ", *files, differences=len(listed))
    if not listed:
        yield compared(rule, True, "all numbers agree", "", *files)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return "missing" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)[:60]


def _plain(value: Any) -> Any:
    """Return a value for programs: numbers unchanged, other values as text."""
    if isinstance(value, float):
        return float(value)
    return value if value is None or (isinstance(value, int) and abs(value) < 2**63) else str(value)[:200]


def _token_series(case: EndpointsEvidence, events: Events, reported: Metrics) -> Iterator[Finding | NotApplied]:
    """Check reported token counts without a tokenizer: their number, their totals, and their own consistency."""
    path, done = case.run.path(SNAPSHOT), events.answered
    streamed = done & (events.first_ns != NO_TIME) & (events.rest_bytes > 0)
    prompts = events.tracked & (events.prompt_kind != NOTHING)
    for name, title, texts, sizes, kinds in (
        (OUTPUT, "output lengths", done, events.response_bytes, events.response_kind),
        (INPUT, "input lengths", prompts, events.prompt_size, events.prompt_kind),
        (TPOT, "TPOT", streamed, events.rest_bytes, events.response_kind),
    ):
        if name not in reported or name in case.metrics:
            continue
        count, total, most = reported[name]["count"], reported[name]["total"], int(texts.sum())
        if not count and most:
            yield NotApplied("the client counted no tokens, because it found no tokenizer for the model", what=title)
            continue
        problem = "the counts of the client differ from those of the tokenizer of --model-path"
        yield NotApplied(problem if case.model_path else "give --model-path to count tokens", what=title)
        of_bytes, of_text = sizes[texts], name != TPOT and bool((kinds[texts] == TEXT).all())
        problems = {
            f"{name}.count: {count}; texts in the events: {most}": count > most or (name != TPOT and count != most),
            f"{name}.total: {total} tokens in {of_bytes.sum()} bytes": of_text and (total or 0) > of_bytes.sum(),
            f"{name}.percentiles: more tokens than bytes": of_text
            and _exceeds(reported[name]["percentiles"], of_bytes),
            **{f"{name}: {text}": holds for text, holds in unfit(reported[name]).items()},
        }
        yield from (stated("endpoints-snapshot", text, path, events.path) for text, holds in problems.items() if holds)


def _exceeds(percentiles: dict[str, Any], sizes: EventColumn) -> bool:
    """Return whether a percentile of tokens is above that of bytes; a tokenizer may add one token to a text."""
    shares = list(map(float, percentiles))
    most = np.percentile(sizes, shares, method="higher") + 1 if len(sizes) else np.zeros(len(shares))
    return any(value > limit for value, limit in zip(percentiles.values(), most.tolist(), strict=True))


def unfit(stat: dict[str, Any]) -> dict[str, bool]:
    """Return the contradictions that a series can have in itself, and whether it has them."""
    count, total, least, most = (stat[name] for name in ("count", "total", "min", "max"))
    grid = [stat["percentiles"][share] for share in sorted(stat["percentiles"], key=float)]
    ordered = [value for value in (least, *grid, most) if value is not None]
    is_complete = None not in (total, least, most)
    return {
        "percentiles are out of order": ordered != sorted(ordered),
        "the number of values in the histogram differs from count": bool(stat["histogram"])
        and sum(number for _, number in stat["histogram"]) != count,
        "the total is below count × minimum": is_complete and least > 0 and least * count > total * (1 + ROUNDING),
        "the total is above count × maximum": is_complete and most > 0 and total > most * count * (1 + ROUNDING),
    }


@decides(
    "plausible",
    ("endpoints-failed", "error", OURS, "failed samples", "correct the server, and run again"),
    ("endpoints-first-token", "warning", OURS, "samples whose first token came with the complete response",
     "set the server to stream its responses piece by piece"),
    needs=("events",),
)  # fmt: skip
def hidden_failures(case: EndpointsEvidence) -> Iterator[Finding]:
    """Check failed samples and late first tokens, which the client's numbers hide."""
    events, summary, metrics = case.run.events, case.run.summary, case.metrics
    if events is None:
        return
    failed, completed, alone = metrics[FAILED], metrics[COMPLETED], case.numbers["answered_qps"]
    if failed:
        rate = f"QPS {summary.qps:.4g}" if summary is not None and summary.qps is not None else "QPS"
        text = (
            f"{failed:,} of {completed:,} completed samples failed; the client includes them in its {rate}; "
            f"without them: {alone or 0:.4g}/s"
        )
        severity: Severity = "error" if _is_dead(events) else "warning"
        yield stated("endpoints-failed", text, events.path, failed=failed, answered_per_second=alone, severity=severity)
    else:
        yield compared("endpoints-failed", True, "0", "0", events.path)
    if case.streaming:
        first_ns, streamed = events.first_ns, events.tracked & events.completed & (events.rest_bytes > 0)
        if late := int((streamed & (first_ns >= events.complete_ns)).sum()):
            text = f"the first token of {counted(late, 'sample')} came with the complete response, so TPOT is 0 or less"
            severity = "warning" if late > FEW_LATE * completed else "note"
            yield stated("endpoints-first-token", text, events.path, samples=late, severity=severity)
        else:
            yield compared("endpoints-first-token", True, "0", "", events.path)


def _is_dead(events: Events) -> bool:
    """Return whether many samples failed, or all of the last, as if the server had died."""
    rows = np.flatnonzero(events.tracked & events.completed)
    failed = events.failed[rows[np.argsort(events.complete_ns[rows], kind="stable")]]
    count = int(failed.sum())
    return count >= FAILED_AT_END and bool(count > MAX_FAILED * len(failed) or failed[-FAILED_AT_END:].all())


@decides(
    "result",
    ("endpoints-tokens", "error", OURS, "reported tokens, compared with the texts of the responses",
     "give --model-path the model that was served"),
    ("endpoints-tokens-served", "error", OURS, "reported tokens, compared with the limit of the requests",
     "let the client count tokens from the token IDs or the usage in the responses"),
)  # fmt: skip
def honest_tokens(case: EndpointsEvidence) -> Iterator[Finding | NotApplied]:
    """Compare the reported tokens with the texts, and with the number of tokens that the requests allow."""
    events, config, total, by_tokenizer = case.run.events, case.run.config, case.reported_tokens, case.total_tokens
    if total is None or events is None:
        yield NotApplied("the client counted no tokens", what="tokens")
        return
    files = case.run.path(SUMMARY), events.path
    if by_tokenizer is not None:
        off = 100 * (total / by_tokenizer - 1) if by_tokenizer else 0.0
        text = (
            f"the client reports {total:,} tokens; the tokenizer of --model-path counts {by_tokenizer:,} ({off:+.2f}%)"
        )
        numbers: dict[str, Any] = {"reported": total, "counted": by_tokenizer, "difference_pct": off}
        if total == by_tokenizer:
            yield compared("endpoints-tokens", True, text, "", *files, **numbers)
        else:
            severity: Severity = "error" if abs(off) > TOKENS_OFF_PCT else "warning"
            yield stated("endpoints-tokens", text, *files, severity=severity, **numbers)
    elif case.model_path is not None:
        yield NotApplied("counting reasoning and tool calls requires a chat template", what="tokens")
    most = config.model_params.max_new_tokens if config is not None else None
    if most is None:
        yield NotApplied("config.yaml has no max_new_tokens", what="tokens of the server")
        return
    limit = most * int(events.answered.sum())
    over = 100 * (total / limit - 1) if limit else 0.0
    if over <= TOKENS_OFF_PCT:
        text = f"{total:,} tokens reported, at most {limit:,} allowed"
        yield compared("endpoints-tokens-served", True, text, "", events.path, reported=total, allowed=limit)
        yield NotApplied("the run contains neither usage nor token IDs of the server", what="tokens of the server")
        return
    # Without a tokenizer the client's count could be wrong, so the rule is a warning.
    text = (
        f"the client reports {total:,} tokens, {over:.1f}% above the limit of the requests ({limit:,}); the client "
        f"tokenizes the text of each response, so its tokens differ from those that the server generated"
    )
    severity = "error" if case.model_path is not None else "warning"
    yield stated(
        "endpoints-tokens-served", text, files[0], reported=total, allowed=limit, over_pct=over, severity=severity
    )
