"""Rules on one run folder: whole, in order, and its numbers those of its events."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from compliance.endpoints.compare import (
    Difference,
    compare_report,
    compare_summary,
    differences,
    reported_metrics,
)
from compliance.endpoints.derive import (
    COMPLETED,
    FAILED,
    INPUT,
    OUTPUT,
    ROUNDING,
    TPOT,
    Derived,
    Metrics,
    answered_per_second,
    count_tokens,
    derive,
)
from compliance.endpoints.load import Load, read_load
from compliance.finding import OURS, RERUN, Finding, applied, decides, fail, note, warn
from qsl.tokenizers import load_tokenizer
from runs.endpoints.events import NO_TIME, NOTHING, TEXT, Events
from runs.endpoints.folder import EVENTS, PERFORMANCE, REPORT, SAMPLES, SNAPSHOT, SUMMARY, EndpointsRun
from runs.wording import counted, printable

COMPLETE = "complete"
AGENTIC = "agentic_inference"  # its client ends samples by itself, in no order of receiving
MOST_TOLD = 8  # differences of one file that are findings of their own
TOKENS_OFF_PCT = 1.0
# Short answers do come at once: with an honest server of a few answers at a time, one or two of 60.
FEW_LATE = 0.05
UNCHANGED = "take the client's own files, unchanged"
KEEP = "keep the whole folder as the client wrote it"


@dataclass(eq=False)
class Case:
    """A run folder, what was derived of it, and what it is judged with."""

    run: EndpointsRun
    model_path: str | None = None  # whose tokenizer counts tokens
    dataset_path: Path | None = None  # for scores
    not_judged: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def load(self) -> Load | None:
        return read_load(self.run)

    @cached_property
    def recounted(self) -> Derived | None:
        """With tokens counted again; None without a tokenizer or events, or where a chat template would be needed."""
        if self.model_path is None or self.run.events is None:
            return None
        tokens = count_tokens(self.run.events, load_tokenizer(self.model_path))
        return None if tokens is None else derive(self.run.events, streaming=self._streaming, tokens=tokens)

    @cached_property
    def derived(self) -> Derived | None:
        """With tokens where the tokenizer counts what the client counted; None without events."""
        summary, tokens = self.run.summary, self.recounted
        reported = None if summary is None else summary.output_sequence_lengths.total
        if tokens is not None and reported == int(tokens.values[OUTPUT].sum()):
            return tokens
        return None if self.run.events is None else derive(self.run.events, streaming=self._streaming)

    @cached_property
    def metrics(self) -> Metrics:
        """What is derived, as the client's snapshot has it; empty without events."""
        config = self.run.config
        early = config is None or config.settings.early_stopping.enabled
        return {} if self.derived is None else self.derived.metrics(early_stopping=early)

    @property
    def _streaming(self) -> bool | None:
        return self.run.config.streaming if self.run.config else None

    @property
    def is_complete(self) -> bool:
        """Whether the client ended by itself: else its statistics are estimates of a part."""
        said = self.run.summary or self.run.snapshot
        return said is not None and said.state == COMPLETE

    def leave(self, what: str, why: str) -> None:
        """Say that something was not judged."""
        self.not_judged.setdefault(what, []).append(why)


@decides(
    "result",
    ("endpoints-files", "error", OURS, "the folder has every file that the client writes", KEEP),
    ("endpoints-finished", "error", OURS, "the client ended by itself and counted everything", RERUN),
)  # fmt: skip
def whole(case: Case) -> Iterator[Finding]:
    """Is everything there, and did the run end?"""
    run = case.run
    found = "missing: " + ", ".join(run.missing) if run.missing else "all there"
    yield applied("endpoints-files", "", not run.missing, found, "all of them", run.root, missing=run.missing)
    for name in run.missing:
        case.leave(name, "the file is missing")
    if (summary := run.summary) is not None:
        done = summary.complete and summary.state == COMPLETE
        found = f"state {printable(summary.state, 40)}, {'complete' if summary.complete else 'not complete'}"
        yield applied("endpoints-finished", "", done, found, f"state {COMPLETE}, complete", run.path(SUMMARY))


@decides(
    "contradiction",
    ("endpoints-events", "error", OURS, "every event stands where the client writes it, once, in its order", UNCHANGED),
    ("endpoints-samples", "error", OURS, "sample_idx_map.json has the events' samples, in their order", UNCHANGED),
)  # fmt: skip
def order_of_events(case: Case) -> Iterator[Finding]:
    """Do the events fit one another, and the map of samples?"""
    events = case.run.events
    if events is None:
        return
    pattern = case.run.config.settings.load_pattern.type if case.run.config else ""
    texts = list(_odd(events, pattern == AGENTIC)) + list(_session(events, case.is_complete))
    if pattern == AGENTIC:
        case.leave("order of completions", "the client of an agentic run ends samples by itself")
    for text, line in texts[:MOST_TOLD]:
        yield fail("endpoints-events", text, events.path, line=line)
    if not texts:
        found = f"{sum(events.counts.values()):,} events of {counted(len(events), 'sample')}"
        yield applied("endpoints-events", "", True, found, "", events.path)
    if case.run.has(SAMPLES):
        if wrong := list(_samples(case.run, events)):
            for text in wrong[:MOST_TOLD]:
                yield fail("endpoints-samples", text, case.run.path(SAMPLES), events.path)
        else:
            yield applied("endpoints-samples", "", True, "the same samples", "", case.run.path(SAMPLES))


def _odd(events: Events, agentic: bool) -> Iterator[tuple[str, int | None]]:
    for what, odd in events.odd.items():
        if agentic and "completion" in what:
            continue
        of = f" of sample {printable(odd.uuid, 40)}" if odd.uuid else ""
        yield f"{what}{of}" + (f", and {odd.count - 1:,} more" if odd.count > 1 else ""), odd.line
    early = np.flatnonzero(events.completed & (events.complete_ns < events.issued_ns))
    if len(early):
        yield f"{counted(len(early), 'sample')} completed before they were issued", None


def _session(events: Events, complete: bool) -> Iterator[tuple[str, int | None]]:
    lacking = [name for name, time in (("start", events.started_ns), ("end", events.ended_ns)) if time == NO_TIME]
    if not events.phases:
        lacking.append("start of measuring")
    elif events.phases[-1][1] == NO_TIME:
        lacking.append("end of measuring")
    if lacking and complete:
        yield f"the session has no {', no '.join(lacking)}, and the client says that it is complete", None


def _samples(run: EndpointsRun, events: Events) -> Iterator[str]:
    phases = run.indices or {}
    measured = [events.rows.get(uuid) for uuid in phases.get(PERFORMANCE, {})]
    lacking = [name for name in phases if any(uuid not in events.rows for uuid in phases[name])]
    if lacking:
        yield f"phase {printable(lacking[0], 40)} has a sample that was not issued"
    rows = np.array([row for row in measured if row is not None], np.int64)
    tracked = np.flatnonzero(events.tracked)
    if len(rows) != len(tracked) or not np.array_equal(np.sort(rows), tracked):
        yield f"{len(tracked):,} samples were issued while the client measured, and the map has {len(measured):,}"
    elif not np.array_equal(rows, tracked):
        yield "the map has the measured samples in another order than they were issued"
    others = np.array([events.rows.get(uuid, -1) for name in phases if name != PERFORMANCE for uuid in phases[name]])
    late = np.flatnonzero(~events.tracked & (np.arange(len(events)) > (tracked[-1] if len(tracked) else -1)))
    if len(tracked) and not np.array_equal(np.sort(others), late):
        yield f"{len(late):,} samples were issued after measuring, and the map has {len(others):,} of other phases"


@decides(
    "contradiction",
    ("endpoints-summary", "error", OURS, "result_summary.json follows from the events", UNCHANGED),
    ("endpoints-snapshot", "error", OURS, "final_snapshot.json follows from the events", UNCHANGED),
    ("endpoints-report", "error", OURS, "report.txt says what result_summary.json says", UNCHANGED),
)  # fmt: skip
def reported_numbers(case: Case) -> Iterator[Finding]:
    """Are the reported numbers those of the events, and the same in every file?"""
    run, summary, snapshot = case.run, case.run.summary, case.run.snapshot
    if not case.is_complete:
        case.leave("reported numbers", "the client did not end by itself: its statistics are estimates of a part")
        return
    against, told = run.path(EVENTS), {} if snapshot is None else reported_metrics(snapshot)
    if summary is not None and (told or case.metrics):
        differing = compare_summary(run, summary, case.metrics)
        yield from _compared("endpoints-summary", differing, run.path(SUMMARY), against)
    if snapshot is not None and case.metrics:
        yield from _compared("endpoints-snapshot", differences(told, case.metrics), run.path(SNAPSHOT), against)
        yield from _token_series(case, told)
    if run.report is not None and summary is not None:
        differing = compare_report(run.report, summary)
        yield from _compared("endpoints-report", differing, run.path(REPORT), run.path(SUMMARY))


def _compared(rule: str, differences: Iterable[Difference], *files: Path) -> Iterator[Finding]:
    found = list(differences)
    for one in found[:MOST_TOLD]:
        yield fail(rule, str(one), *files, name=one.name, reported=_plain(one.reported), expected=_plain(one.expected))
    if len(found) > MOST_TOLD:
        yield fail(rule, f"and {len(found) - MOST_TOLD} more numbers", *files, differences=len(found))
    if not found:
        yield applied(rule, "", True, "every number agrees", "", *files)


def _plain(value: Any) -> Any:
    """For programs: a number as it is, what a configuration or a histogram has as a text."""
    if isinstance(value, float):
        return float(value)
    return value if value is None or (isinstance(value, int) and abs(value) < 2**63) else str(value)[:200]


def _token_series(case: Case, told: Metrics) -> Iterator[Finding]:
    """What can be said of token counts without their tokenizer: how many there are, and that they fit themselves."""
    events, path = case.run.events, case.run.path(SNAPSHOT)
    assert events is not None
    done = events.tracked & events.completed & (events.answer_kind != NOTHING)
    streamed = done & (events.first_ns != NO_TIME) & (events.rest_bytes > 0)
    asked = events.tracked & (events.prompt_kind != NOTHING)
    for name, title, texts in (
        (OUTPUT, "output lengths", done),
        (INPUT, "input lengths", asked),
        (TPOT, "TPOT", streamed),
    ):
        if name not in told or name in case.metrics:
            continue
        count, total, most = told[name]["count"], told[name]["total"], int(texts.sum())
        if not count and most:
            case.leave(title, "the client counted none: it found no tokenizer for the model")
            continue
        if name == INPUT:
            case.leave(title, "prompts are not tokenised again")
        else:
            other = "the tokenizer of --model-path counts others"
            case.leave(title, other if case.model_path else "give --model-path to count tokens again")
        if count > most or (name != TPOT and count != most):
            yield fail("endpoints-snapshot", f"{name}.count: {count} reported, {most} texts", path, events.path)
        of_text = name == OUTPUT and not (events.answer_kind[done] > TEXT).any()
        if of_text and total is not None and total > (of_bytes := int(events.answer_bytes[done].sum())):
            text = f"{name}.total: {total} tokens in {of_bytes} bytes"
            yield fail("endpoints-snapshot", text, path, events.path)
        if text := _unfit(told[name]):
            yield fail("endpoints-snapshot", f"{name}: {text}", path)


def _unfit(stat: dict[str, Any]) -> str:
    """What in a series cannot be true by itself."""
    count, total, least, most = (stat[name] for name in ("count", "total", "min", "max"))
    grid = [stat["percentiles"][share] for share in sorted(stat["percentiles"], key=float)]
    ordered = [value for value in (least, *grid, most) if value is not None]
    problems = {
        "percentiles out of order": ordered != sorted(ordered),
        "the histogram has another number of values": stat["histogram"]
        and sum(number for _, number in stat["histogram"]) != count,
    }
    if None not in (total, least, most):
        problems["a total below its least"] = least > 0 and least * count > total * (1 + ROUNDING)
        problems["a total above its most"] = most > 0 and total > most * count * (1 + ROUNDING)
    return next((text for text, holds in problems.items() if holds), "")


@decides(
    "plausible",
    ("endpoints-failed", "warning", OURS, "no sample failed", "run again with a server that answers every request"),
    ("endpoints-first-token", "warning", OURS, "a first token comes before the whole answer",
     "have the server send its pieces one by one"),
)  # fmt: skip
def failures(case: Case) -> Iterator[Finding]:
    """What the client's own numbers hide."""
    found, summary, metrics = case.derived, case.run.summary, case.metrics
    if found is None:
        return
    events, failed, completed = found.events, metrics[FAILED], metrics[COMPLETED]
    if failed:
        rate = f"QPS {summary.qps:.4g}" if summary is not None and summary.qps is not None else "QPS"
        alone = answered_per_second(metrics)
        text = (
            f"{failed:,} of {completed:,} completed samples failed; the client counts them as completed, "
            f"in its {rate}; answers alone: {alone or 0:.4g}/s"
        )
        yield warn("endpoints-failed", text, events.path, failed=failed, answered_per_second=alone)
    else:
        yield applied("endpoints-failed", "", True, "none", "none", events.path)
    if found.streaming:
        late = events.tracked & events.completed & (events.first_ns >= events.complete_ns) & (events.rest_bytes > 0)
        if late.any():
            late_ones = counted(int(late.sum()), "sample")
            text = f"the first token of {late_ones} came with the whole answer: its TPOT is 0 or less"
            make = warn if late.sum() > FEW_LATE * completed else note
            yield make("endpoints-first-token", text, events.path, samples=int(late.sum()))
        else:
            yield applied("endpoints-first-token", "", True, "in every sample", "", events.path)


@decides(
    "result",
    ("endpoints-tokens", "error", OURS, "the reported tokens are those of the answers' texts, within 1 %",
     "name the tokenizer of the model that was served"),
    ("endpoints-tokens-served", "error", OURS, "no more tokens are reported than the server can have made, within 1 %",
     "count tokens by the server's usage or ids"),
)  # fmt: skip
def honest_tokens(case: Case) -> Iterator[Finding]:
    """Tokens counted again, and against the most that the server was allowed to make."""
    summary, events, config = case.run.summary, case.run.events, case.run.config
    total = summary.output_sequence_lengths.total if summary is not None else None
    if summary is None or total is None or events is None:
        case.leave("tokens", "the client counted none")
        return
    if case.model_path is not None and case.recounted is None:
        case.leave("tokens", "answers with reasoning or tool calls are counted through a chat template")
    if case.recounted is not None:
        ours = int(case.recounted.values[OUTPUT].sum())
        off = 100 * (total / ours - 1) if ours else 0.0
        said = f"the client reports {total:,} tokens, its answers have {ours:,} by this tokenizer, {off:+.2f} %"
        make = fail if abs(off) > TOKENS_OFF_PCT else warn
        numbers: dict[str, Any] = {"reported": total, "counted": ours, "difference_pct": off}
        if total == ours:
            yield applied("endpoints-tokens", "", True, said, "", case.run.path(SUMMARY), events.path, **numbers)
        else:
            yield make("endpoints-tokens", said, case.run.path(SUMMARY), events.path, **numbers)
    most = config.model_params.max_new_tokens if config is not None else None
    if most is None:
        case.leave("tokens of the server", "config.yaml has no max_new_tokens")
        return
    answered = events.tracked & events.completed & (events.answer_kind != NOTHING)
    limit = most * int(answered.sum())
    over = 100 * (total / limit - 1) if limit else 0.0
    if over <= TOKENS_OFF_PCT:
        found = f"{total:,} reported, {limit:,} allowed"
        yield applied("endpoints-tokens-served", "", True, found, "", events.path, reported=total, allowed=limit)
        case.leave("tokens of the server", "the folder records neither its usage nor its ids")
        return
    # Without a tokenizer nothing says whether the client's own count was honest; with one the excess is the client's.
    make = fail if case.model_path is not None else warn
    text = (
        f"{total:,} tokens are reported, {over:.1f} % more than the server was allowed to make ({limit:,}): the client "
        f"tokenises the text of each answer again, which gives other tokens than the server made"
    )
    yield make("endpoints-tokens-served", text, case.run.path(SUMMARY), reported=total, allowed=limit, over_pct=over)
