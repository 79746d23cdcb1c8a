"""Rules on the load of a run directory: samples, order, issue times and concurrency, replayed from the settings.

The order follows from dataloader_random_seed and the size of the dataset, Poisson arrivals from scheduler_random_seed
and the rate, both by Python's generator. [mlcommons/endpoints ea332753: load_generator/sample_order.py, delay.py,
strategy.py, session.py; config/runtime_settings.py] The latency of a sample starts when it is issued, so the delay of a
sample that is issued late is in no latency.
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

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, Severity, compared, stated
from runs.files.reading import read_object
from runs.mlperf_endpoints.events import NO_TIME, EventColumn, Events
from runs.mlperf_endpoints.folder import CLIENT_FORMS, NO_INDEX, Config, EndpointsRun
from runs.mlperf_endpoints.layout import AUDIT, CACHED, CONFIG, REFERENCE, SAMPLES, VERDICT

# Errors of the client's timers: it rounds times to milliseconds, and reads its clock once per turn of its loop.
EARLY_NS = 3_000_000
TURN_NS = 250_000_000
# Lateness of a sample that shows an overloaded client.
LATE_NS = 10_000_000
# Share of the random walk between two schedules of one rate; issue times of the client scatter by a few ms only.
ANOTHER_SCHEDULE = 0.2
# Standard deviations between two schedules; a client that is later did not keep up with the rate.
NOT_KEPT_UP = 5.0
# Time from the last response to the end; Poisson runs take up to 0.15 s, so a longer time shows that the run stopped.
STALLED_NS = 1_000_000_000
# Share of the p99 latency that late issuing may hide.
LATE_SHARE = 0.10
# Minimum share of the requested concurrency, on average.
FULL_SHARE = 0.95
# Defaults of the client for a run by duration: requests per second, and the factor on the number of samples.
USUAL_QPS, MORE = 10.0, 1.1
# Limits of the search for the dataset's size: multiple of the highest index, steps of shuffling, minimum of samples,
# and probability of a wrong size.
SIZES, STEPS, ENOUGH, CHANCE = 8, 4_000_000, 6, 1e-9
MAX_ROWS = 10_000_000
MS, SECOND = 1e6, 1e9
INTERRUPTED = "the run was interrupted"
SEPARATE_CORES, RERUN = "run the client on separate CPU cores", "run the client again"
ANY_SAMPLE = -1  # index of a repeated sample that is unknown

AGENTIC = "agentic_inference"  # load pattern whose client ends samples itself, in any order


@dataclass(frozen=True)
class MeasuredPhase:
    """The measured phase of a run: its samples in the order of issue."""

    run: EndpointsRun
    config: Config
    events: Events
    rows: EventColumn  # rows of the samples in the events
    index: EventColumn  # indices of the samples in the dataset
    issued_ns: EventColumn
    complete_ns: EventColumn
    answered: NDArray[np.bool_]  # samples that completed and did not fail
    start_ns: int
    end_ns: int
    audit_samples: int | None  # requested samples of an audit run, which are not in its own config.yaml
    repeats: int | None  # index of the sample that an audit run repeats

    @cached_property
    def size(self) -> tuple[int | None, bool]:
        """The size of the dataset, found from the order of the samples, and whether the search was complete."""
        return dataset_size(self.index, self.config.settings.runtime.dataloader_random_seed)

    @cached_property
    def wanted(self) -> int | None:
        """The requested number of samples; None if the size of the dataset or the client's default is unknown."""
        count, size, times = self.config.settings.runtime.n_samples_to_issue, self.size[0], self.run.time_settings
        if self.audit_samples is not None:
            return self.audit_samples
        if count is not None:
            return count
        if times.form is None and times.min_duration_ms is None:
            return None
        if size is None or not times.min_duration_ms:
            return size
        rate = float(self.config.settings.load_pattern.target_qps or USUAL_QPS)
        return math.ceil(math.ceil(rate * float(times.min_duration_ms) / 1000 * MORE) / size) * size

    @property
    def left(self) -> NDArray[np.bool_]:
        """Boolean mask of samples that never completed."""
        return np.asarray(self.complete_ns == NO_TIME)


def replayed_order(seed: int, size: int, count: int) -> EventColumn:
    """Return the first `count` indices. Each pass over the dataset shuffles the order of the previous pass."""
    draw, order = random.Random(seed), list(range(size))
    passes: list[int] = []
    while len(passes) < count:
        draw.shuffle(order)
        passes += order
    return np.array(passes[:count], np.int64)


def replayed_arrivals(seed: int, target_qps: float, count: int) -> EventColumn:
    """Return the issue times of the first `count` samples, in ns from the start of issuing."""
    draw, rate = random.Random(seed), target_qps / SECOND
    return np.cumsum(np.array([max(1, int(draw.expovariate(rate))) for _ in range(count)], np.int64))


def dataset_size(index: EventColumn, seed: int) -> tuple[int | None, bool]:
    """Find the size of the dataset whose shuffled order begins with these indices.

    Sizes are tried upward from the highest index, up to the position of the first repeated index.

    Returns:
        The size, None if no size fits; and whether the search was complete.
    """
    if len(index) == 0 or index.min() < 0 or index.max() >= MAX_ROWS:
        return None, True
    first, steps = int(index.max()) + 1, 0
    # All indices lie below a share of the size with a probability of that share to the power of len(index).
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


def read_load(run: EndpointsRun) -> MeasuredPhase | None:
    """Read the measured phase of a run; None if the directory has none that can be replayed."""
    events, config = run.events, run.config
    if events is None or config is None or not events.phases or not events.tracked.any():
        return None
    rows = np.flatnonzero(events.tracked)
    answered = (events.completed & ~events.failed)[rows]
    start_ns, end_ns = events.phases[0]
    return MeasuredPhase(
        run, config, events, rows, run.sample_index()[rows], events.issued_ns[rows], events.complete_ns[rows], answered,
        start_ns, events.last_ns if end_ns == NO_TIME else end_ns, *_asked_by_audit(run.root.resolve()),
    )  # fmt: skip


def _asked_by_audit(root: Path) -> tuple[int | None, int | None]:
    """Return the requested samples of an audit run, and the index of the sample that it repeats.

    They come from the configuration two directories up; for an audit that ran alone, from its verdict.
    """
    top, verdict, repeats = EndpointsRun(root.parent.parent), root.parent / VERDICT, root.name == CACHED
    if root.parent.name != AUDIT or root.name not in (REFERENCE, CACHED):
        return None, None
    if top.config is not None and (audit := top.config.audit) is not None:
        repeated = audit.samples if audit.audit_samples is None else audit.audit_samples
        return (repeated, audit.sample_index) if repeats else (audit.samples, None)
    if top.has(CONFIG) or not verdict.is_file():
        return None, None
    reported = read_object(verdict, "restore the file that the client wrote", within=root.parent)
    count = reported.get("audit_requested" if repeats else "ref_requested")
    return count if isinstance(count, int) else 0, ANY_SAMPLE if repeats else None


@decides(
    "contradiction",
    ("endpoints-order", "error", OURS, "samples that differ from the order of dataloader_random_seed",
     "restore the directory that the client wrote, or run again"),
    ("endpoints-prompts", "error", OURS, "dataset indices with more than one prompt", RERUN),
    ("endpoints-count", "error", OURS, "issued samples", RERUN),
    ("endpoints-arrivals", "error", OURS, "issue times, compared with the schedule of scheduler_random_seed", RERUN),
    ("endpoints-late", "warning", OURS, "lateness of issued samples",
     "run the client with more workers or on separate CPU cores"),
    ("endpoints-concurrency", "error", OURS, "largest number of open samples", RERUN),
    ("endpoints-concurrency-kept", "warning", OURS, "average number of open samples", SEPARATE_CORES),
    ("endpoints-burst", "warning", OURS, "time to issue all samples", SEPARATE_CORES),
    ("endpoints-warm-up", "error", OURS, "warm-up samples", RERUN),
    ("endpoints-drained", "error", OURS, "issued samples that never completed", RERUN),
)  # fmt: skip
def judge_load(load: MeasuredPhase) -> Iterator[Finding]:
    """Check the load of one run."""
    pattern = load.config.settings.load_pattern
    if pattern.type == AGENTIC:
        # The client issues turns of conversations, and with enable_salt each repetition has other prompts.
        yield stated("endpoints-order", "load not checked: the run is agentic", load.events.path, severity="note")
        return
    yield from _order(load)
    yield from _whole(load)
    if pattern.type == "poisson" and pattern.target_qps:
        yield from _arrivals(load, float(pattern.target_qps))
    elif pattern.type == "concurrency" and pattern.target_concurrency:
        yield from _concurrency(load, pattern.target_concurrency)
    elif pattern.type == "max_throughput":
        took_s = (load.issued_ns[-1] - load.start_ns) / SECOND
        most_s = max(LATE_SHARE * (load.end_ns - load.start_ns) / SECOND, 1.0)
        yield _compared(load, "burst", "", took_s <= most_s, f"{took_s:.3f} s", f"at most {most_s:.3f} s")
    yield from _warm_up(load)


def _compared(
    load: MeasuredPhase, rule: str, text: str, right: bool, found: object, required: object, **numbers: Any
) -> Finding:
    return compared(f"endpoints-{rule}", right, str(found), str(required), load.events.path, **numbers, text=text)


def _order(load: MeasuredPhase) -> Iterator[Finding]:
    index, seed, place = load.index, load.config.settings.runtime.dataloader_random_seed, load.events.path
    if lost := int((index == NO_INDEX).sum()):
        text = f"{lost} of {len(index)} issued samples have no dataset index"
        yield stated("endpoints-order", text, load.run.path(SAMPLES))
        return
    size, sure = load.size
    if load.repeats is not None:
        wrong = int((index != (index[0] if load.repeats == ANY_SAMPLE else load.repeats)).sum())
        yield _compared(load, "order", "samples other than the repeated sample", not wrong, wrong, 0)
    elif not sure:
        yield stated(
            "endpoints-order",
            "order not checked: too few samples to find the size of the dataset",
            place,
            severity="note",
        )
    else:
        wrong = len(index) if size is None else int((replayed_order(seed, size, len(index)) != index).sum())
        text = f"samples that differ from the order of seed {seed}" + (f" and {size} rows" if size else "")
        yield _compared(load, "order", text, not wrong, f"{wrong} of {len(index)}", 0, rows=size)
    pairs = np.unique(np.stack([index, load.events.prompt_hash[load.rows]]), axis=1)
    doubled = pairs.shape[1] - len(np.unique(index))
    yield _compared(load, "prompts", "", not doubled, doubled, 0)


def _arrivals(load: MeasuredPhase, target_qps: float) -> Iterator[Finding]:
    count, seed = len(load.rows), load.config.settings.runtime.scheduler_random_seed
    late = load.issued_ns - load.start_ns - replayed_arrivals(seed, target_qps, count)
    # No event marks the start of issuing. If most samples were issued on time, the earliest of them show it.
    fifth, quarter = np.percentile(late, [5, 25])
    least = fifth - EARLY_NS if quarter - fifth < EARLY_NS else -TURN_NS
    early = int((late < max(least, -TURN_NS)).sum())
    text = f"samples issued over {EARLY_NS / MS:g} ms before their time (schedule of seed {seed}, {target_qps:g}/s)"
    yield _compared(load, "arrivals", text, not early, early, 0)
    if early:
        return
    late = late - late.min()
    # The difference between two schedules is a random walk.
    lag, step_ns = max(1, count // 8), math.sqrt(2) / target_qps * SECOND
    if count >= ENOUGH and late[-1] < NOT_KEPT_UP * math.sqrt(count) * step_ns:
        apart, random_walk_ns = float(np.median(np.abs(late[lag:] - late[:-lag]))), math.sqrt(lag) * step_ns
        most = max(ANOTHER_SCHEDULE * random_walk_ns, LATE_NS)
        text = f"median drift from the schedule over {lag} samples"
        limit = f"at most {most / MS:.1f} ms (with a different schedule, about {random_walk_ns / MS:.0f} ms)"
        yield _compared(load, "arrivals", text, apart <= most, f"{apart / MS:.1f} ms", limit)
    # Late issuing hides waiting time, because the latency of a sample starts when it is issued.
    ended = ~load.left
    latency = float(np.percentile((load.complete_ns - load.issued_ns)[ended], 99)) if ended.any() else 0.0
    p99, most_late = float(np.percentile(late, 99)), int(late.max())
    most = max(LATE_NS, LATE_SHARE * latency)
    value = f"{p99 / MS:.1f} ms (maximum {most_late / MS:.1f} ms; {int((late > LATE_NS).sum())} of {count} samples "
    value += f"above {LATE_NS / MS:g} ms)"
    yield _compared(
        load, "late", "p99 of the lateness of issued samples", p99 <= most, value, f"at most {most / MS:.1f} ms",
        p99_late_ms=p99 / MS, most_late_ms=most_late / MS,
    )  # fmt: skip


def _concurrency(load: MeasuredPhase, target: int) -> Iterator[Finding]:
    # Times at which the number of open samples changes, and the number from then on. At equal times, completions are
    # counted before new issues.
    times = np.concatenate([ended := load.complete_ns[~load.left], load.issued_ns])
    order = np.argsort(times, kind="stable")
    times, count = times[order], np.cumsum(np.where(order < len(ended), -1, 1))
    most = int(count.max())
    yield _compared(load, "concurrency", "", most <= target, most, f"at most {target}")
    last = int(load.issued_ns[-1])  # After the last issue the number of open samples falls.
    first = int(times[np.argmax(count >= min(target, most))])
    if most < target or last <= first:
        severity: Severity = "note" if most >= FULL_SHARE * len(load.rows) else "warning"
        text = f"at most {most} samples were open, requested: {target}"
        yield stated("endpoints-concurrency-kept", text, load.events.path, severity=severity)
        return
    inside = (times >= first) & (times < last)
    spans = np.diff(np.append(times[inside], last))
    mean = float((spans * count[inside]).sum() / (last - first))
    fewer_s = float(spans[count[inside] < target].sum()) / SECOND
    yield _compared(
        load, "concurrency-kept", "average number of open samples after full concurrency was first reached",
        mean >= FULL_SHARE * target,
        f"{mean:.2f} (below {target} for {fewer_s:.3f} of {(last - first) / SECOND:.3f} s)",
        f"at least {FULL_SHARE * target:.2f} ({FULL_SHARE:.0%} of {target})", mean_open=mean, fewer_s=fewer_s,
    )  # fmt: skip


def _warm_up(load: MeasuredPhase) -> Iterator[Finding]:
    place, warm_up = load.events.path, load.config.settings.warmup
    before = load.events.issued_ns < load.start_ns
    sent, wanted = int(before.sum()), (warm_up.n_requests or load.size[0]) if warm_up.enabled else 0
    if wanted is None:
        text = f"number of warm-up samples ({sent}) not checked: the size of the dataset is unknown"
        yield stated("endpoints-warm-up", text, place, severity="note")
        return
    yield _compared(load, "warm-up", "samples issued before the measured phase", sent == wanted, sent, wanted)
    # The client records completions of warm-up samples only in the measured phase.
    if still_open := int((before & (load.events.complete_ns >= load.start_ns)).sum()):
        text = f"{still_open} warm-up samples were open when the measured phase began"
        text += ", although warmup.drain is on" if warm_up.drain else ""
        yield stated("endpoints-warm-up", text, place, still_open=still_open, severity="warning")


def _whole(load: MeasuredPhase) -> Iterator[Finding]:
    """Check whether all samples were issued and completed; otherwise look for the reason."""
    place, times, left = load.events.path, load.run.time_settings, load.left
    wanted, sent, open_ones = load.wanted, len(load.rows), int(left.sum())
    patience_s, limit_ns = times.drain_timeout_s, float(times.max_duration_ms or 0) * MS
    time_up = f"{times.max_duration} was reached"
    time_was_up = 0 < limit_ns <= load.end_ns - load.start_ns + EARLY_NS
    # The client does not record Ctrl-C: it issues no more samples and waits for no response.
    interrupted = open_ones > 0 and wanted is not None and sent < wanted
    if wanted is None:
        if load.size[0] is None:
            text = "issued samples not checked: the size of the dataset is unknown"
            yield stated("endpoints-count", text, place, severity="note")
    elif sent < wanted and (time_was_up or interrupted):
        text = f"{sent} of {wanted} samples were issued: {time_up if time_was_up else INTERRUPTED}"
        yield stated("endpoints-count", text, place, sent=sent, asked=wanted, severity="warning")
    else:
        # How later clients compute a count from a duration was read in their tests only.
        is_by_duration = load.config.settings.runtime.n_samples_to_issue is None and bool(times.min_duration_ms)
        severity: Severity = "warning" if is_by_duration and times.form != CLIENT_FORMS[0] else "error"
        yield _compared(load, "count", "", sent == wanted, sent, wanted, severity=severity)
    if not open_ones:
        yield _compared(load, "drained", "", True, 0, 0)
        if (idle_ns := load.end_ns - int(load.complete_ns.max())) > STALLED_NS:
            text = f"the measured phase ended {idle_ns / SECOND:.3f} s after the last response; samples may be missing"
            yield stated("endpoints-drained", text, place, idle_s=idle_ns / SECOND, severity="warning")
        return
    # An interrupt after the last issue leaves a time without responses at the end, or open samples that waited no
    # longer than completed ones. If a response was removed, neither is true.
    waited_ns = np.where(left, load.end_ns, load.complete_ns) - load.issued_ns
    while_it_drained = (
        bool(left.all())
        or load.end_ns - int(load.complete_ns.max()) > STALLED_NS
        or bool(waited_ns[left].max() <= waited_ns[~left].max())
    )
    drained_ns = load.end_ns - int(load.issued_ns[-1])
    reasons = {
        f"{times.drain_timeout} was reached": patience_s is not None and drained_ns >= patience_s * SECOND - EARLY_NS,
        time_up: time_was_up,
        INTERRUPTED: interrupted,
        f"{INTERRUPTED} while it waited for responses, or responses were removed": while_it_drained,
    }
    why = next((reason for reason, holds in reasons.items() if holds), None)
    text = f"{open_ones} of {sent} samples never completed: {why or 'the reason is unknown'}"
    yield stated("endpoints-drained", text, place, severity="warning" if why else "error", left=open_ones)
