"""The comparison of benches: conditions that must be equal, what changed, and one sentence with its noise.

Noise is measured by equal runs of one bench: the second run at the best rate, or --repeats. Runs of two benches are
paired if they have the same absolute load. A difference counts if it exceeds twice the noise (half of the 95% interval)
and RESOLUTION; best rates must also differ by more than the distance of the measured rates.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from runs.bench.bench_record import BenchRecord, BenchRun, Best
from runs.record.fingerprint import differences, value_text
from runs.wording import counted, shortened_list

RESOLUTION = 0.01  # differences up to this share are never called different
QUEUE = 1.5  # factor on the noise of TTFT, whose differences are not normally distributed near saturation
# Quantiles of Student's t for 95% intervals, by degrees of freedom from 1.
_QUANTILES = (12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
_MAX_CHANGES = 6  # changes of the system in a sentence

Load = tuple[str, float]


@dataclass(frozen=True)
class Measure:
    """One quantity of two systems. `change` and `noise` are shares of the base's value; more speed is positive."""

    name: str
    loads: int  # number of equal loads
    change: float
    noise: float | None  # None if neither bench has equal runs
    is_different: bool | None  # None: not tested against noise

    @property
    def text(self) -> str:
        """The change with its noise."""
        noise = f", more than twice its noise ({self.noise:.1%})" if self.noise is not None else ""
        return f"{self.name} at {counted(self.loads, 'equal load')} {self.change:+.1%}{noise}"


@dataclass(frozen=True)
class Against:
    """One bench compared with the first one."""

    base: str
    label: str
    changed: list[tuple[str, Any, Any]]  # facts of the system: name, value of the base, value of this bench
    change_text: str  # changed facts, and the ratio of tokens/s
    sentence: str
    best: Measure | None
    measures: list[Measure]
    pairs: list[dict[str, Any]]  # equal loads with the values of both benches

    @property
    def slower_by(self) -> float:
        """The largest slowdown that exceeds the noise or is not tested against it, as a share; 0 for none."""
        tested = [one for one in (self.best, *self.measures) if one is not None and one.is_different is not False]
        return max([0.0, *(-one.change for one in tested)])


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`."""

    labels: list[str]
    unequal: dict[str, list[Any]]  # conditions that differ, with the value of each bench
    against: list[Against]  # empty if a condition differs

    @property
    def is_comparable(self) -> bool:
        return not self.unequal


def compare(records: Sequence[BenchRecord]) -> Comparison:
    """Compare benches with the first one."""
    base, *others = records
    unequal: dict[str, list[Any]] = {}
    for other in others:
        for name in differences(base.conditions.equal, other.conditions.equal):
            unequal[name] = [one.conditions.equal.get(name) for one in records]
        if not unequal and not _measures(base, other) and _best(base, other) is None:
            unequal["loads"] = [", ".join(sorted({_load_text(run) for run in _done(one)})) for one in records]
    labels = [one.label for one in records]
    return Comparison(labels, unequal, [] if unequal else [_against(base, other) for other in others])


def _against(base: BenchRecord, other: BenchRecord) -> Against:
    best, measures = _best(base, other), _measures(base, other)
    changed = list(_changed(base, other))
    return Against(
        base.label, other.label, changed, _change_text(base, other, changed), _sentence(base, other, best, measures),
        best, measures, list(_pairs(base, other)),
    )  # fmt: skip


# What changed -------------------------------------------------------------------------------------------------------


def _changed(base: BenchRecord, other: BenchRecord) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of the systems. An effective option is left out if the requested option differs."""
    found = differences(base.conditions.system, other.conditions.system)
    for key, (one, two) in found.items():
        name = key.removeprefix("resolved.")
        if name == key or f"engine_options.{name}" not in found:
            yield name.removeprefix("engine_options."), one, two


def _change_text(base: BenchRecord, other: BenchRecord, changed: Sequence[tuple[str, Any, Any]]) -> str:
    texts = [f"{name} {value_text(one, 40)} → {value_text(two, 40)}" for name, one, two in changed]
    what = shortened_list(texts, _MAX_CHANGES) or "nothing in the recorded system"
    one, two = _tokens(base), _tokens(other)
    return f"{what}: {two / one:.3g} × tokens/s" if one and two else what


def _tokens(record: BenchRecord) -> float | None:
    """Return output tokens/s at the best rate; without a higher rate that was violated, the highest of all runs."""
    if record.best is not None and record.best.high is not None and record.best.tokens_per_s:
        return record.best.tokens_per_s
    return max((run.output_tokens_per_s for run in record.runs if run.output_tokens_per_s), default=None)


# Measures -----------------------------------------------------------------------------------------------------------


def _done(record: BenchRecord) -> list[BenchRun]:
    return [run for run in record.runs if run.verdict != "failed"]


def _load(run: BenchRun) -> Load:
    return run.kind, float(run.asked_qps or run.concurrency or math.inf)


def _load_text(run: BenchRun) -> str:
    if run.kind == "offline":
        return "Offline"
    return f"{run.asked_qps:g} queries/s" if run.kind == "server" else f"{run.concurrency} open queries"


def _speed(run: BenchRun) -> float | None:
    """Return the logarithm of a run's tokens/s; in Server, where the arrivals decide tokens/s, of 1 / mean TPOT."""
    if run.kind != "server":
        return math.log(run.output_tokens_per_s) if run.output_tokens_per_s else None
    latency = run.tpot or run.latency
    return None if latency is None or latency.mean <= 0 else -math.log(latency.mean)


def _quickness(run: BenchRun) -> float | None:
    """Return the logarithm of 1 / mean TTFT."""
    return None if run.ttft is None or run.ttft.mean <= 0 else -math.log(run.ttft.mean)


def _values(record: BenchRecord, of: Callable[[BenchRun], float | None]) -> dict[Load, list[float]]:
    """Return the values of a quantity by load."""
    values: dict[Load, list[float]] = {}
    for run in _done(record):
        if (value := of(run)) is not None:
            values.setdefault(_load(run), []).append(value)
    return values


def _squares(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the sum of squares about the means of groups, and its degrees of freedom."""
    return sum((x - fmean(one)) ** 2 for one in groups for x in one), sum(len(one) - 1 for one in groups)


def _measures(base: BenchRecord, other: BenchRecord) -> list[Measure]:
    """Return the changes over equal loads. With different numbers of accelerators, no load is equal."""
    if _per_accelerator(base, other):
        return []
    measures = ("speed", _speed, 1.0), ("1 / TTFT", _quickness, QUEUE)
    return [one for args in measures if (one := _measure(base, other, *args)) is not None]


def _measure(
    base: BenchRecord, other: BenchRecord, name: str, of: Callable[[BenchRun], float | None], scale: float
) -> Measure | None:
    ours, theirs = _values(base, of), _values(other, of)
    loads = [load for load in ours if load in theirs]
    if not loads:
        return None
    changes = [fmean(theirs[load]) - fmean(ours[load]) for load in loads]
    change = fmean(changes)
    squares, freedom = _squares([*ours.values(), *theirs.values()])
    if not freedom:
        return Measure(name, len(loads), math.expm1(change), None, None)
    # A change has the variance of one run times this number.
    spreads = [1 / len(ours[load]) + 1 / len(theirs[load]) for load in loads]
    squares += sum((one - change) ** 2 / spread for one, spread in zip(changes, spreads, strict=True))
    freedom += len(loads) - 1
    noise = scale * _quantile(freedom) / 2 * math.sqrt(squares / freedom * sum(spreads)) / len(loads)
    return Measure(name, len(loads), math.expm1(change), noise, abs(change) > max(2 * noise, RESOLUTION))


def _quantile(freedom: int) -> float:
    return _QUANTILES[freedom - 1] if freedom <= len(_QUANTILES) else 1.96 + 2.7 / freedom


def _equal_runs(records: Sequence[BenchRecord]) -> float | None:
    """Return the noise of the difference between two equal runs, from equal runs of each bench; None without them."""
    groups = [group for record in records for group in _values(record, _speed).values()]
    squares, freedom = _squares(groups)
    return _quantile(freedom) / 2 * math.sqrt(2 * squares / freedom) if freedom else None


def _best(base: BenchRecord, other: BenchRecord) -> Measure | None:
    """Return the change of the best rate; None unless both benches have one."""
    ours, theirs = base.best, other.best
    if min(len(base.runs), len(other.runs)) == 1:  # single runs: their rate is a setting
        return None
    if ours is None or theirs is None or ours.low is None or theirs.low is None:
        return None
    if ours.high is None and theirs.high is None:  # the highest rate of both is a setting
        return None
    per = (base.accelerators, other.accelerators) if _per_accelerator(base, other) else (1, 1)
    change = theirs.low / (per[1] or 1) / (ours.low / (per[0] or 1)) - 1
    noise = _equal_runs([base, other])
    if noise is None:
        return Measure("best rate", 0, change, None, None)
    gap = max(_gap(ours, theirs, per), _gap(theirs, ours, per[::-1]))
    return Measure("best rate", 0, change, noise, gap > max(2 * noise, RESOLUTION))


def _gap(low: Best, high: Best, per: Sequence[int | None]) -> float:
    """Return by which share the best rate of one bench is above the lowest violated rate of the other one."""
    if low.high is None or high.low is None:
        return 0.0
    return math.log(high.low / (per[1] or 1) / (low.high / (per[0] or 1)))


def _per_accelerator(base: BenchRecord, other: BenchRecord) -> bool:
    return bool(base.accelerators and other.accelerators and base.accelerators != other.accelerators)


def _pairs(base: BenchRecord, other: BenchRecord) -> Iterator[dict[str, Any]]:
    for run in _done(base):
        twin = next((one for one in _done(other) if _load(one) == _load(run) and one.again == run.again
                     and one.repetition == run.repetition), None)  # fmt: skip
        if twin is not None:
            yield {"load": _load_text(run), "base": run.number, "other": twin.number}


# The sentence -------------------------------------------------------------------------------------------------------


def _sentence(base: BenchRecord, other: BenchRecord, best: Measure | None, measures: Sequence[Measure]) -> str:
    """Return the difference of the best rates, or of the runs at equal loads, and how it compares with the noise."""
    if best is not None:
        head, text = best, f"{_best_text(base, other)} ({best.change:+.0%})"
    else:
        head, one, two = measures[0], _tokens(base), _tokens(other)
        rate = f"{one:,.5g} → {two:,.5g} output tokens/s; " if one and two else ""
        text = f"{rate}{head.name} at {counted(head.loads, 'equal load')} {head.change:+.0%}"
    others = []
    if head.noise is None:
        text += "; one run each: not tested against noise"
    elif head.is_different:
        text += f", more than twice the difference between equal runs ({head.noise:.1%})"
    else:
        is_small = abs(math.log1p(head.change)) <= max(2 * head.noise, RESOLUTION)
        what = f"difference between two equal runs ({head.noise:.1%})" if is_small else "distance of the measured rates"
        text += f", not distinguishable from the {what}"
        others = [one.text for one in measures if one is not head and one.is_different]
    return f"{other.label} against {base.label}: " + "; ".join([text, *others])


def _best_text(base: BenchRecord, other: BenchRecord) -> str:
    is_per = _per_accelerator(base, other)
    rates = [
        record.best.low / (record.accelerators or 1 if is_per else 1)
        for record in (base, other)
        if record.best is not None and record.best.low is not None
    ]
    what = "best rate within limits" if base.limits else "highest rate without saturation"
    return f"{what} {rates[0]:.4g} → {rates[1]:.4g} queries/s{' per accelerator' if is_per else ''}"
