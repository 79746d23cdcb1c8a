"""The load of a run folder, replayed: which samples the client had to send, in which order, when, how many at a time.

The order follows from dataloader_random_seed and the size of the data set, Poisson arrivals from scheduler_random_seed
and the rate, both by Python's generator. [mlcommons/endpoints ea332753: load_generator/sample_order.py, delay.py,
strategy.py, session.py; config/runtime_settings.py] Latencies count from when a sample was sent, so a sample that was
sent late waited before its clock ran: who sent late is told.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compliance.finding import OURS, RERUN, Finding, applied, decides, fail, note, warn
from runs.endpoints.events import NO_TIME, Events
from runs.endpoints.folder import AUDIT, CACHED, CONFIG, NO_INDEX, REFERENCE, VERDICT, Config, EndpointsRun
from runs.reading import read_object

Times = NDArray[np.int64]

# The client's loop keeps its timers in whole milliseconds; the clock that it reads once a turn can be older than the
# event that its turn begins with.
EARLY_NS = 3_000_000
TURN_NS = 250_000_000
# A timer this late waited for a busy machine.
LATE_NS = 10_000_000
# The scatter of arrivals around another schedule of the same rate, against which theirs is held: theirs is a few ms.
ANOTHER_SCHEDULE = 0.2
# Beyond this many standard deviations of two schedules' difference the client did not keep up at all.
NOT_KEPT_UP = 5.0
# Poisson runs of the client end up to 0.15 s after the last answer; after a second somebody ended it.
STALLED_NS = 1_000_000_000
# What late sending may hide of the latencies.
LATE_SHARE = 0.10
# Share of the asked concurrency, on average, that is still that concurrency.
FULL_SHARE = 0.95
# The client asks for 10 a second where a run by duration names no rate, and for a tenth more than the duration takes.
USUAL_QPS, MORE = 10.0, 1.1
# Without the data set its size is looked for, up to so many times the highest index, in so many steps of shuffling.
SIZES, STEPS, TOLD_BY, CHANCE = 8, 4_000_000, 6, 1e-9
MOST_ROWS = 10_000_000
MS = 1e6
INTERRUPTED = "the run was interrupted"
ANY = -1  # one sample, whichever it is


@dataclass(frozen=True)
class Asked:
    """What a run was asked for where its own config.yaml does not say so: the two runs of an audit."""

    count: int
    repeats: int | None = None  # the index of the one sample that all queries are of


@dataclass(frozen=True)
class Load:
    """A run's measured phase: its samples in the order of issue."""

    run: EndpointsRun
    config: Config
    events: Events
    asked: Asked | None

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.events.tracked)

    @cached_property
    def index(self) -> NDArray[np.int64]:
        """In the data set."""
        return self.run.sample_index()[self.rows]

    @cached_property
    def issued_ns(self) -> Times:
        return self.events.issued_ns[self.rows]

    @cached_property
    def complete_ns(self) -> Times:
        return self.events.complete_ns[self.rows]

    @property
    def start_ns(self) -> int:
        return self.events.phases[0][0]

    @property
    def end_ns(self) -> int:
        end = self.events.phases[0][1]
        return self.events.last_ns if end == NO_TIME else end

    @cached_property
    def size(self) -> tuple[int | None, bool]:
        """Of the data set, by which the order follows from the seed; and whether that is sure."""
        return dataset_size(self.index, self.order_seed)

    @property
    def order_seed(self) -> int:
        return _seed(self.config.settings.runtime.dataloader_random_seed)

    @property
    def schedule_seed(self) -> int:
        return _seed(self.config.settings.runtime.scheduler_random_seed)

    @property
    def place(self) -> Path:
        return self.events.path


def _seed(value: int | None) -> int:
    return 42 if value is None else value  # the client's own


def replayed_order(seed: int, size: int, count: int) -> NDArray[np.int64]:
    """The first `count` indices: the data set shuffled, and what came of it shuffled again for each further pass."""
    draw, order = random.Random(seed), list(range(size))
    passes: list[int] = []
    while len(passes) < count:
        draw.shuffle(order)
        passes += order
    return np.array(passes[:count], np.int64)


def replayed_arrivals(seed: int, target_qps: float, count: int) -> Times:
    """When the first `count` samples are due, in ns from the start of sending."""
    draw, rate = random.Random(seed), target_qps / 1e9
    delays = np.array([max(1, int(draw.expovariate(rate))) for _ in range(count)], np.int64)
    return np.cumsum(delays)


def dataset_size(index: NDArray[np.int64], seed: int) -> tuple[int | None, bool]:
    """The size of a data set whose shuffled order begins with these indices, None where none does; and whether there is
    none, as far as chance allows.

    Sizes are tried from the smallest that holds them all to the place where the first index comes again.
    """
    if len(index) == 0 or index.min() < 0 or index.max() >= MOST_ROWS:
        return None, True
    _, firsts = np.unique(index, return_index=True)
    again = np.setdiff1d(np.arange(len(index)), firsts)
    first, steps = int(index.max()) + 1, 0
    # That all of `len(index)` lie below one share of the size has this chance: the share to that power.
    most = int(again[0]) if len(again) else int(first * min(SIZES, math.exp(-math.log(CHANCE) / len(index))))
    for size in range(first, most + 1):
        steps += size
        if steps > STEPS + first:
            return None, False
        begin = replayed_order(seed, size, min(size, len(index)))
        if np.array_equal(begin, index[: len(begin)]):
            return size, True
    return None, len(index) >= TOLD_BY


def read_load(run: EndpointsRun, asked: Asked | None = None) -> Load | None:
    """None where the folder has no measured phase that could be replayed."""
    events, config = run.events, run.config
    if events is None or config is None or not events.phases or not events.tracked.any():
        return None
    return Load(run, config, events, asked if asked is not None else audit_leg(run.root))


def audit_leg(root: Path) -> Asked | None:
    """What a folder was asked for as one of the two of an audit, by the configuration two folders up; by the verdict,
    where the audit ran alone and there is none."""
    root = root.resolve()
    top, verdict = EndpointsRun(root.parent.parent), root.parent / VERDICT
    if root.parent.name != AUDIT or root.name not in (REFERENCE, CACHED):
        return None
    audit = top.config.audit if top.has(CONFIG) and top.config is not None else None
    if audit is not None:
        repeated = audit.samples if audit.audit_samples is None else audit.audit_samples
        return Asked(audit.samples) if root.name == REFERENCE else Asked(repeated, audit.sample_index)
    if top.has(CONFIG) or not verdict.is_file():
        return None
    told = read_object(verdict, "take the unchanged file of the client's audit", within=root.parent)
    count = told.get("ref_requested" if root.name == REFERENCE else "audit_requested")
    return Asked(count if isinstance(count, int) else 0, None if root.name == REFERENCE else ANY)


def judge_load(load: Load) -> Iterator[Finding]:
    """Every rule on the load of one run."""
    yield from _order(load)
    yield from _count(load)
    pattern = load.config.settings.load_pattern
    if pattern.type == "poisson" and pattern.target_qps:
        yield from _arrivals(load, float(pattern.target_qps))
    elif pattern.type == "concurrency" and pattern.target_concurrency:
        yield from _concurrency(load, pattern.target_concurrency)
    elif pattern.type == "max_throughput":
        yield from _at_once(load)
    yield from _warm_up(load)
    yield from _drained(load)


@decides(
    "contradiction",
    ("endpoints-order", "error", OURS, "the samples' order follows from dataloader_random_seed",
     "take the unchanged folder; run again"),
    ("endpoints-prompts", "error", OURS, "one index of the data set stands for one prompt", RERUN),
)  # fmt: skip
def _order(load: Load) -> Iterator[Finding]:
    index, place = load.index, load.place
    if (index == NO_INDEX).any():
        lost = int((index == NO_INDEX).sum())
        yield fail(
            "endpoints-order",
            f"{lost} of {len(index)} samples sent have no index",
            load.run.path("sample_idx_map.json"),
        )
        return
    if load.asked is not None and load.asked.repeats is not None:
        repeated = int(index[0]) if load.asked.repeats == ANY else load.asked.repeats
        wrong = int((index != repeated).sum())
        yield applied(
            "endpoints-order", "queries of another sample than the repeated one", not wrong, f"{wrong}", "0", place
        )
    else:
        size, sure = load.size
        expected = None if size is None else replayed_order(load.order_seed, size, len(index))
        if not sure:
            yield note("endpoints-order", "too few samples to tell the size of the data set, and so their order", place)
        else:
            wrong = len(index) if expected is None else int((expected != index).sum())
            yield applied(
                "endpoints-order",
                f"samples out of the order of seed {load.order_seed}" + (f" and {size} rows" if size else ""),
                not wrong,
                f"{wrong} of {len(index)}",
                "0",
                place,
                rows=size,
            )
    hashes = load.events.prompt_hash[load.rows]
    pairs = np.unique(np.stack([index, hashes]), axis=1)
    doubled = pairs.shape[1] - len(np.unique(index))
    yield applied("endpoints-prompts", "indices with more than one prompt", not doubled, f"{doubled}", "0", place)


@decides(
    "contradiction",
    ("endpoints-count", "error", OURS, "as many samples were sent as were asked for", RERUN),
)  # fmt: skip
def _count(load: Load) -> Iterator[Finding]:
    wanted, sent = _wanted(load), len(load.rows)
    if wanted is None:
        yield note("endpoints-count", "how many samples were asked for hangs on the data set's size", load.place)
        return
    cut = _time_was_up(load)
    if sent < wanted and (cut or _interrupted(load)):
        said = "max_duration_ms was over" if cut else INTERRUPTED
        yield warn(
            "endpoints-count", f"{sent} of {wanted} samples were sent: {said}", load.place, sent=sent, asked=wanted
        )
    else:
        yield applied("endpoints-count", "samples sent", sent == wanted, f"{sent}", f"{wanted}", load.place)


def _time_was_up(load: Load) -> bool:
    limit_ns = float(load.config.settings.runtime.max_duration_ms or 0) * MS
    return 0 < limit_ns <= load.end_ns - load.start_ns + EARLY_NS


def _interrupted(load: Load) -> bool:
    """The client ends at ^C without a word of it: it sends nothing more and waits for no answer."""
    return _left(load) > 0 and (wanted := _wanted(load)) is not None and len(load.rows) < wanted


def _stopped_draining(load: Load) -> bool:
    """Whether the folder is as ^C leaves it once all is sent: no answer came for a while before the client stopped, or
    what is left waited no longer than others did for theirs. Of an answer taken out early neither holds."""
    left = load.complete_ns == NO_TIME
    if left.all():
        return True
    waited_ns = (np.where(left, load.end_ns, load.complete_ns) - load.issued_ns).astype(np.int64)
    return load.end_ns - int(load.complete_ns.max()) > STALLED_NS or bool(
        waited_ns[left].max() <= waited_ns[~left].max()
    )


def _left(load: Load) -> int:
    return int((load.complete_ns == NO_TIME).sum())


def _wanted(load: Load) -> int | None:
    runtime, size = load.config.settings.runtime, load.size[0]
    if load.asked is not None:
        return load.asked.count
    if runtime.n_samples_to_issue is not None:
        return runtime.n_samples_to_issue
    seconds = float(600_000 if runtime.min_duration_ms is None else runtime.min_duration_ms) / 1000
    if size is None or not seconds:
        return size
    rate = float(load.config.settings.load_pattern.target_qps or USUAL_QPS)
    return math.ceil(math.ceil(rate * seconds * MORE) / size) * size


@decides(
    "contradiction",
    ("endpoints-arrivals", "error", OURS, "samples were sent when scheduler_random_seed says", RERUN),
    ("endpoints-late", "warning", OURS, "no sample was sent late",
     "give the client cores of its own, or more workers; run again"),
)  # fmt: skip
def _arrivals(load: Load, target_qps: float) -> Iterator[Finding]:
    sent = load.issued_ns
    late = sent - load.start_ns - replayed_arrivals(load.schedule_seed, target_qps, len(sent))
    # When sending began is not told. Where most samples were sent in time, they tell it: none goes before them.
    fifth, quarter = np.percentile(late, [5, 25])
    least = fifth - EARLY_NS if quarter - fifth < EARLY_NS else -TURN_NS
    early = int((late < max(least, -TURN_NS)).sum())
    yield applied(
        "endpoints-arrivals",
        f"samples sent before their time by seed {load.schedule_seed} and {target_qps:g}/s",
        not early,
        f"{early}",
        f"0 by more than {EARLY_NS / MS:g} ms, what the client's timers err by",
        load.place,
    )
    if early:
        return
    late = late - late.min()
    # A schedule of other times drifts apart from there as a random walk does.
    lag = max(1, len(sent) // 8)
    apart = float(np.median(np.abs(late[lag:] - late[:-lag]))) if len(sent) > lag else 0.0
    walk = math.sqrt(2 * lag) / target_qps * 1e9
    kept_up = late[-1] < NOT_KEPT_UP * math.sqrt(2 * len(sent)) / target_qps * 1e9
    if kept_up and len(sent) >= TOLD_BY:
        yield applied(
            "endpoints-arrivals",
            f"how far {lag} samples' times shift against their schedule, half of the time",
            apart <= max(ANOTHER_SCHEDULE * walk, LATE_NS),
            f"{apart / MS:.1f} ms",
            f"at most {max(ANOTHER_SCHEDULE * walk, LATE_NS) / MS:.1f} ms; another schedule's shift {walk / MS:.0f} ms",
            load.place,
        )
    yield _lateness(load, late)


def _lateness(load: Load, late: Times) -> Finding:
    """What late sending hides: the wait before a late sample was sent is in no latency."""
    answered = load.complete_ns != NO_TIME
    latency = float(np.percentile((load.complete_ns - load.issued_ns)[answered], 99)) if answered.any() else 0.0
    p99, most = float(np.percentile(late, 99)), int(late.max())
    return applied(
        "endpoints-late",
        "p99 of how late samples were sent",
        p99 <= max(LATE_NS, LATE_SHARE * latency),
        f"{p99 / MS:.1f} ms, {int((late > LATE_NS).sum())} of {len(late)} more than {LATE_NS / MS:g} ms late, at most "
        f"{most / MS:.1f} ms",
        f"at most {LATE_SHARE:.0%} of the p99 latency of {latency / MS:.1f} ms, or {LATE_NS / MS:g} ms",
        load.place,
        p99_late_ms=p99 / MS,
        most_late_ms=most / MS,
    )


@decides(
    "contradiction",
    ("endpoints-concurrency", "error", OURS, "never more samples were open than asked for", RERUN),
    ("endpoints-concurrency-kept", "warning", OURS, "as many samples were open as asked for",
     "give the client cores of its own; run again"),
)  # fmt: skip
def _concurrency(load: Load, target: int) -> Iterator[Finding]:
    times, count = open_samples(load.issued_ns, load.complete_ns)
    most = int(count.max())
    yield applied(
        "endpoints-concurrency", "most samples open", most <= target, f"{most}", f"at most {target}", load.place
    )
    last = int(load.issued_ns[-1])  # from then on none is left to take the place of one that ends
    first = int(times[np.argmax(count >= min(target, most))])
    if most < target or last <= first:
        enough = len(load.rows) <= target
        text = f"{most} of {target} samples were open at most"
        yield (
            note("endpoints-concurrency-kept", text, load.place)
            if enough
            else warn("endpoints-concurrency-kept", text, load.place)
        )
        return
    inside = (times >= first) & (times < last)
    spans = np.diff(np.append(times[inside], last))
    mean = float((spans * count[inside]).sum() / (last - first))
    fewer_s = float(spans[count[inside] < target].sum()) / 1e9
    yield applied(
        "endpoints-concurrency-kept",
        "samples open on average, once they were as many as asked for",
        mean >= FULL_SHARE * target,
        f"{mean:.2f}; fewer for {fewer_s:.3f} of {(last - first) / 1e9:.3f} s",
        f"at least {FULL_SHARE:.0%} of {target}",
        load.place,
        mean_open=mean,
        fewer_s=fewer_s,
    )


def open_samples(issued_ns: Times, complete_ns: Times) -> tuple[Times, NDArray[np.int64]]:
    """Times at which the number of open samples changes, and the number from then on. Who ends makes room first."""
    ended = complete_ns[complete_ns != NO_TIME]
    times = np.concatenate([ended, issued_ns])
    step = np.concatenate([np.full(len(ended), -1, np.int64), np.ones(len(issued_ns), np.int64)])
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(step[order])


@decides(
    "contradiction",
    ("endpoints-burst", "warning", OURS, "all samples were sent at once",
     "give the client cores of its own; run again"),
)  # fmt: skip
def _at_once(load: Load) -> Iterator[Finding]:
    took, whole = int(load.issued_ns[-1]) - load.start_ns, load.end_ns - load.start_ns
    yield applied(
        "endpoints-burst",
        "time in which all samples were sent",
        took <= max(LATE_SHARE * whole, 100 * LATE_NS),
        f"{took / 1e9:.3f} s",
        f"at most {LATE_SHARE:.0%} of the run's {whole / 1e9:.3f} s, or 1 s",
        load.place,
    )


@decides(
    "contradiction",
    ("endpoints-warm-up", "error", OURS, "warm-up is what was asked for, and apart from what is measured", RERUN),
)  # fmt: skip
def _warm_up(load: Load) -> Iterator[Finding]:
    events, warm_up = load.events, load.config.settings.warmup
    before = events.issued_ns < load.start_ns
    sent = int(before.sum())
    wanted = 0 if not warm_up.enabled else warm_up.n_requests or load.size[0]
    if wanted is None:
        yield note(
            "endpoints-warm-up", f"{sent} samples were sent before; the data set's size is not known", load.place
        )
        return
    yield applied(
        "endpoints-warm-up", "samples sent before the measurement", sent == wanted, f"{sent}", f"{wanted}", load.place
    )
    # The client tells of a warm-up sample's completion only once the measurement runs.
    still_open = int((before & (events.complete_ns >= load.start_ns)).sum())
    if still_open and warm_up.drain:
        text = f"{still_open} samples of a warm-up that was to be drained ended while it was measured"
        yield warn("endpoints-warm-up", text, load.place)
    elif still_open:
        text = f"{still_open} samples of the warm-up were still being answered when the measurement began"
        yield warn("endpoints-warm-up", text, load.place, still_open=still_open)


@decides(
    "contradiction",
    ("endpoints-drained", "error", OURS, "every sample sent was waited for", RERUN),
)  # fmt: skip
def _drained(load: Load) -> Iterator[Finding]:
    left = _left(load)
    if not left:
        yield applied("endpoints-drained", "samples without an end", True, "0", "0", load.place)
        return
    patience_s = load.config.settings.drain.performance_timeout_s
    waited_ns = load.end_ns - int(load.issued_ns[-1])
    reasons = {
        "the time for draining was over": patience_s is not None and waited_ns >= patience_s * 1e9 - EARLY_NS,
        "max_duration_ms was over": _time_was_up(load),
        INTERRUPTED: _interrupted(load),
        f"{INTERRUPTED} while it drained, or answers were taken out": _stopped_draining(load),
    }
    text = f"{left} of {len(load.rows)} samples have no end"
    why = next((said for said, holds in reasons.items() if holds), None)
    if why is None:
        yield fail("endpoints-drained", f"{text}, and nothing in the folder says why", load.place, left=left)
    else:
        yield warn("endpoints-drained", f"{text}: {why}", load.place, left=left)
