"""The load of a run folder, replayed: which samples the client had to send, in which order, when, how many at a time.

The order follows from dataloader_random_seed and the size of the dataset, Poisson arrivals from scheduler_random_seed
and the rate, both by Python's generator. [mlcommons/endpoints ea332753: load_generator/sample_order.py, delay.py,
strategy.py, session.py; config/runtime_settings.py] Latencies count from when a sample was sent, so a sample that was
sent late waited before its latency began.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared, fail, note, warn
from compliance.judge.rule import OURS, RERUN
from runs.endpoints.events import NO_TIME, Column, Events
from runs.endpoints.folder import NO_INDEX, Config, EndpointsRun
from runs.endpoints.layout import AUDIT, CACHED, CONFIG, REFERENCE, SAMPLES, VERDICT
from runs.reading import read_object

# The client's loop keeps its timers in whole milliseconds; the clock that it reads once a turn can be older than the
# event that its turn begins with.
EARLY_NS = 3_000_000
TURN_NS = 250_000_000
# A timer this late waited for a busy machine.
LATE_NS = 10_000_000
# The client's arrivals scatter by a few ms around their schedule; around another of the same rate by this share more.
ANOTHER_SCHEDULE = 0.2
# Beyond this many standard deviations of two schedules' difference the client did not keep up at all.
NOT_KEPT_UP = 5.0
# Poisson runs of the client end up to 0.15 s after the last response; after a second it was stopped.
STALLED_NS = 1_000_000_000
# What late sending may hide of the latencies.
LATE_SHARE = 0.10
# Share of the asked concurrency, on average, that is still that concurrency.
FULL_SHARE = 0.95
# The client asks for 10 a second where a run by duration names no rate, and for a tenth more than the duration takes.
USUAL_QPS, MORE = 10.0, 1.1
# Without the dataset its size is looked for, up to so many times the highest index, in so many steps of shuffling.
SIZES, STEPS, ENOUGH, CHANCE = 8, 4_000_000, 6, 1e-9
MAX_ROWS = 10_000_000
MS, SECOND = 1e6, 1e9
INTERRUPTED = "the run was interrupted"
ANY_SAMPLE = -1  # one sample, whichever it is


@dataclass(frozen=True)
class Load:
    """A run's measured phase: its samples in the order of issue."""

    run: EndpointsRun
    config: Config
    events: Events
    rows: Column  # of the events
    index: Column  # in the dataset
    issued_ns: Column
    complete_ns: Column
    answered: NDArray[np.bool_]  # neither failed nor open
    start_ns: int
    end_ns: int
    audit_samples: int | None  # of a run of an audit, whose own config.yaml does not have it: how many were asked for
    repeats: int | None  # and the index of the one sample that all queries are of

    @cached_property
    def size(self) -> tuple[int | None, bool]:
        """Of the dataset, by which the order follows from the seed; and whether that is sure."""
        return dataset_size(self.index, self.config.settings.runtime.dataloader_random_seed)

    @cached_property
    def wanted(self) -> int | None:
        """How many samples were asked for; None where that depends on a size that is not known."""
        runtime, size = self.config.settings.runtime, self.size[0]
        if self.audit_samples is not None:
            return self.audit_samples
        if runtime.n_samples_to_issue is not None:
            return runtime.n_samples_to_issue
        if size is None or not runtime.min_duration_ms:
            return size
        rate = float(self.config.settings.load_pattern.target_qps or USUAL_QPS)
        return math.ceil(math.ceil(rate * float(runtime.min_duration_ms) / 1000 * MORE) / size) * size

    @property
    def left(self) -> NDArray[np.bool_]:
        """Samples without an end."""
        return np.asarray(self.complete_ns == NO_TIME)


def replayed_order(seed: int, size: int, count: int) -> Column:
    """The first `count` indices: the dataset shuffled, and what came of it shuffled again for each further pass."""
    draw, order = random.Random(seed), list(range(size))
    passes: list[int] = []
    while len(passes) < count:
        draw.shuffle(order)
        passes += order
    return np.array(passes[:count], np.int64)


def replayed_arrivals(seed: int, target_qps: float, count: int) -> Column:
    """When the first `count` samples are due, in ns from the start of sending."""
    draw, rate = random.Random(seed), target_qps / SECOND
    return np.cumsum(np.array([max(1, int(draw.expovariate(rate))) for _ in range(count)], np.int64))


def dataset_size(index: Column, seed: int) -> tuple[int | None, bool]:
    """The size of a dataset whose shuffled order begins with these indices, None where none does; and whether there is
    none, as far as chance allows.

    Sizes are tried from the smallest that holds them all to the place where the first index comes again.
    """
    if len(index) == 0 or index.min() < 0 or index.max() >= MAX_ROWS:
        return None, True
    first, steps = int(index.max()) + 1, 0
    # That all of `len(index)` lie below one share of the size has this chance: the share to that power.
    most = int(first * min(SIZES, math.exp(-math.log(CHANCE) / len(index))))
    once = np.unique(index, return_index=True)[1]
    again = np.setdiff1d(np.arange(len(index)), once)
    for size in range(first, (int(again[0]) if len(again) else most) + 1):
        steps += size
        if steps > STEPS + first:
            return None, False
        begin = replayed_order(seed, size, min(size, len(index)))
        if np.array_equal(begin, index[: len(begin)]):
            return size, True
    return None, len(index) >= ENOUGH


def read_load(run: EndpointsRun) -> Load | None:
    """None where the folder has no measured phase that could be replayed."""
    events, config = run.events, run.config
    if events is None or config is None or not events.phases or not events.tracked.any():
        return None
    rows = np.flatnonzero(events.tracked)
    answered = (events.completed & ~events.failed)[rows]
    start_ns, end_ns = events.phases[0]
    return Load(
        run, config, events, rows, run.sample_index()[rows], events.issued_ns[rows], events.complete_ns[rows], answered,
        start_ns, events.last_ns if end_ns == NO_TIME else end_ns, *_asked_by_audit(run.root.resolve()),
    )  # fmt: skip


def _asked_by_audit(root: Path) -> tuple[int | None, int | None]:
    """What one of the two runs of an audit was asked for, by the configuration two folders up; by the verdict, where
    the audit ran alone and there is none: the number of samples, and the index of the one that is repeated."""
    top, verdict, repeats = EndpointsRun(root.parent.parent), root.parent / VERDICT, root.name == CACHED
    if root.parent.name != AUDIT or root.name not in (REFERENCE, CACHED):
        return None, None
    if top.config is not None and (audit := top.config.audit) is not None:
        repeated = audit.samples if audit.audit_samples is None else audit.audit_samples
        return (repeated, audit.sample_index) if repeats else (audit.samples, None)
    if top.has(CONFIG) or not verdict.is_file():
        return None, None
    reported = read_object(verdict, "take the unchanged file of the client's audit", within=root.parent)
    count = reported.get("audit_requested" if repeats else "ref_requested")
    return count if isinstance(count, int) else 0, ANY_SAMPLE if repeats else None


@decides(
    "contradiction",
    ("endpoints-order", "error", OURS, "the samples' order follows from dataloader_random_seed",
     "take the unchanged folder; run again"),
    ("endpoints-prompts", "error", OURS, "one index of the dataset stands for one prompt", RERUN),
    ("endpoints-count", "error", OURS, "as many samples were sent as were asked for", RERUN),
    ("endpoints-arrivals", "error", OURS, "samples were sent at the times of scheduler_random_seed", RERUN),
    ("endpoints-late", "warning", OURS, "no sample was sent late",
     "give the client cores of its own, or more workers; run again"),
    ("endpoints-concurrency", "error", OURS, "never more samples were open than asked for", RERUN),
    ("endpoints-concurrency-kept", "warning", OURS, "as many samples were open as asked for",
     "give the client cores of its own; run again"),
    ("endpoints-burst", "warning", OURS, "all samples were sent at once",
     "give the client cores of its own; run again"),
    ("endpoints-warm-up", "error", OURS, "warm-up is what was asked for, and apart from what is measured", RERUN),
    ("endpoints-drained", "error", OURS, "every sample sent was waited for", RERUN),
)  # fmt: skip
def judge_load(load: Load) -> Iterator[Finding]:
    """Every rule on the load of one run."""
    pattern = load.config.settings.load_pattern
    yield from _order(load)
    yield from _whole(load)
    if pattern.type == "poisson" and pattern.target_qps:
        yield from _arrivals(load, float(pattern.target_qps))
    elif pattern.type == "concurrency" and pattern.target_concurrency:
        yield from _concurrency(load, pattern.target_concurrency)
    elif pattern.type == "max_throughput":
        took_s, whole_s = (
            time_ns / SECOND for time_ns in (load.issued_ns[-1] - load.start_ns, load.end_ns - load.start_ns)
        )
        limit = f"at most {LATE_SHARE:.0%} of the run's {whole_s:.3f} s, or 1 s"
        right = took_s <= max(LATE_SHARE * whole_s, 1.0)
        yield _compared(load, "burst", "time in which all samples were sent", right, f"{took_s:.3f} s", limit)
    yield from _warm_up(load)


def _compared(
    load: Load, rule: str, text: str, right: bool, found: object, required: object, **numbers: Any
) -> Finding:
    return compared(f"endpoints-{rule}", text, right, str(found), str(required), load.events.path, **numbers)


def _order(load: Load) -> Iterator[Finding]:
    index, seed, place = load.index, load.config.settings.runtime.dataloader_random_seed, load.events.path
    if lost := int((index == NO_INDEX).sum()):
        yield fail("endpoints-order", f"{lost} of {len(index)} samples sent have no index", load.run.path(SAMPLES))
        return
    size, sure = load.size
    if load.repeats is not None:
        wrong = int((index != (index[0] if load.repeats == ANY_SAMPLE else load.repeats)).sum())
        yield _compared(load, "order", "queries of another sample than the repeated one", not wrong, wrong, 0)
    elif not sure:
        yield note("endpoints-order", "too few samples to find the size of the dataset, and so their order", place)
    else:
        wrong = len(index) if size is None else int((replayed_order(seed, size, len(index)) != index).sum())
        text = f"samples out of the order of seed {seed}" + (f" and {size} rows" if size else "")
        yield _compared(load, "order", text, not wrong, f"{wrong} of {len(index)}", 0, rows=size)
    pairs = np.unique(np.stack([index, load.events.prompt_hash[load.rows]]), axis=1)
    doubled = pairs.shape[1] - len(np.unique(index))
    yield _compared(load, "prompts", "indices with more than one prompt", not doubled, doubled, 0)


def _arrivals(load: Load, target_qps: float) -> Iterator[Finding]:
    count, seed = len(load.rows), load.config.settings.runtime.scheduler_random_seed
    late = load.issued_ns - load.start_ns - replayed_arrivals(seed, target_qps, count)
    # No event marks when sending began. Where most samples were sent in time, they show it: none goes before them.
    fifth, quarter = np.percentile(late, [5, 25])
    least = fifth - EARLY_NS if quarter - fifth < EARLY_NS else -TURN_NS
    early = int((late < max(least, -TURN_NS)).sum())
    text = f"samples sent before their time by seed {seed} and {target_qps:g}/s"
    limit = f"0 by more than {EARLY_NS / MS:g} ms, what the client's timers err by"
    yield _compared(load, "arrivals", text, not early, early, limit)
    if early:
        return
    late = late - late.min()
    # A schedule of other times drifts apart from there as a random walk does.
    lag, step_ns = max(1, count // 8), math.sqrt(2) / target_qps * SECOND
    if count >= ENOUGH and late[-1] < NOT_KEPT_UP * math.sqrt(count) * step_ns:
        apart, random_walk_ns = float(np.median(np.abs(late[lag:] - late[:-lag]))), math.sqrt(lag) * step_ns
        most = max(ANOTHER_SCHEDULE * random_walk_ns, LATE_NS)
        text = f"how far {lag} samples' times shift against their schedule, half of the time"
        limit = f"at most {most / MS:.1f} ms; another schedule's shift {random_walk_ns / MS:.0f} ms"
        yield _compared(load, "arrivals", text, apart <= most, f"{apart / MS:.1f} ms", limit)
    # What late sending hides: the wait before a late sample was sent is in no latency.
    ended = ~load.left
    latency = float(np.percentile((load.complete_ns - load.issued_ns)[ended], 99)) if ended.any() else 0.0
    p99, most_late = float(np.percentile(late, 99)), int(late.max())
    found = f"{p99 / MS:.1f} ms, {int((late > LATE_NS).sum())} of {count} more than {LATE_NS / MS:g} ms late, at most "
    limit = f"at most {LATE_SHARE:.0%} of the p99 latency of {latency / MS:.1f} ms, or {LATE_NS / MS:g} ms"
    yield _compared(
        load, "late", "p99 of how late samples were sent", p99 <= max(LATE_NS, LATE_SHARE * latency),
        f"{found}{most_late / MS:.1f} ms", limit, p99_late_ms=p99 / MS, most_late_ms=most_late / MS,
    )  # fmt: skip


def _concurrency(load: Load, target: int) -> Iterator[Finding]:
    # Times at which the number of open samples changes, and the number from then on. Who ends makes room first.
    times = np.concatenate([ended := load.complete_ns[~load.left], load.issued_ns])
    order = np.argsort(times, kind="stable")
    times, count = times[order], np.cumsum(np.where(order < len(ended), -1, 1))
    most = int(count.max())
    yield _compared(load, "concurrency", "most samples open", most <= target, most, f"at most {target}")
    last = int(load.issued_ns[-1])  # from then on none is left to take the place of one that ends
    first = int(times[np.argmax(count >= min(target, most))])
    if most < target or last <= first:
        make = note if most >= FULL_SHARE * len(load.rows) else warn
        yield make("endpoints-concurrency-kept", f"{most} of {target} samples were open at most", load.events.path)
        return
    inside = (times >= first) & (times < last)
    spans = np.diff(np.append(times[inside], last))
    mean = float((spans * count[inside]).sum() / (last - first))
    fewer_s = float(spans[count[inside] < target].sum()) / SECOND
    yield _compared(
        load, "concurrency-kept", "samples open on average, once they were as many as asked for",
        mean >= FULL_SHARE * target, f"{mean:.2f}; fewer for {fewer_s:.3f} of {(last - first) / SECOND:.3f} s",
        f"at least {FULL_SHARE:.0%} of {target}", mean_open=mean, fewer_s=fewer_s,
    )  # fmt: skip


def _warm_up(load: Load) -> Iterator[Finding]:
    place, warm_up = load.events.path, load.config.settings.warmup
    before = load.events.issued_ns < load.start_ns
    sent, wanted = int(before.sum()), (warm_up.n_requests or load.size[0]) if warm_up.enabled else 0
    if wanted is None:
        yield note("endpoints-warm-up", f"{sent} samples were sent before; the dataset's size is not known", place)
        return
    yield _compared(load, "warm-up", "samples sent before the measurement", sent == wanted, sent, wanted)
    # The client records a warm-up sample's completion only once the measurement runs.
    if still_open := int((before & (load.events.complete_ns >= load.start_ns)).sum()):
        text = f"{still_open} samples of the warm-up were still being answered when the measurement began"
        text += ", and it was to be drained" if warm_up.drain else ""
        yield warn("endpoints-warm-up", text, place, still_open=still_open)


def _whole(load: Load) -> Iterator[Finding]:
    """Was everything sent, and did it end; if not, does the folder show why?"""
    place, settings, left = load.events.path, load.config.settings, load.left
    wanted, sent, open_ones = load.wanted, len(load.rows), int(left.sum())
    patience_s, limit_ns = settings.drain.performance_timeout_s, float(settings.runtime.max_duration_ms) * MS
    time_was_up = 0 < limit_ns <= load.end_ns - load.start_ns + EARLY_NS
    # The client writes nothing of ^C: it sends nothing more and waits for no response.
    interrupted = open_ones > 0 and wanted is not None and sent < wanted
    if wanted is None:
        yield note("endpoints-count", "how many samples were asked for depends on the dataset's size", place)
    elif sent < wanted and (time_was_up or interrupted):
        text = f"{sent} of {wanted} samples were sent: {'max_duration_ms was over' if time_was_up else INTERRUPTED}"
        yield warn("endpoints-count", text, place, sent=sent, asked=wanted)
    else:
        yield _compared(load, "count", "samples sent", sent == wanted, sent, wanted)
    if not open_ones:
        yield _compared(load, "drained", "samples without an end", True, 0, 0)
        if (idle_ns := load.end_ns - int(load.complete_ns.max())) > STALLED_NS:
            text = (
                f"measuring ended {idle_ns / SECOND:.3f} s after the last response: later samples may have been "
                "taken out"
            )
            yield warn("endpoints-drained", text, place, idle_s=idle_ns / SECOND)
        return
    # After ^C once all is sent, no response came for a while before the client stopped, or what is left waited no
    # longer than others did for theirs. Of a response taken out early neither holds.
    waited_ns = np.where(left, load.end_ns, load.complete_ns) - load.issued_ns
    while_it_drained = (
        bool(left.all())
        or load.end_ns - int(load.complete_ns.max()) > STALLED_NS
        or bool(waited_ns[left].max() <= waited_ns[~left].max())
    )
    drained_ns = load.end_ns - int(load.issued_ns[-1])
    reasons = {
        "the time for draining was over": patience_s is not None and drained_ns >= patience_s * SECOND - EARLY_NS,
        "max_duration_ms was over": time_was_up,
        INTERRUPTED: interrupted,
        f"{INTERRUPTED} while it drained, or responses were taken out": while_it_drained,
    }
    why = next((reason for reason, holds in reasons.items() if holds), None)
    text = f"{open_ones} of {sent} samples have no end" + (
        f": {why}" if why else ", and nothing in the folder explains it"
    )
    yield (warn if why else fail)("endpoints-drained", text, place, left=open_ones)
