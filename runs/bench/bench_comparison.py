"""The comparison of benches: conditions that must be equal, what changed, and one line for each quantity.

Runs of two benches are paired if they have the same absolute load; latencies of saturated runs depend on the duration
of the run and are not compared. The noise comes from equal runs of one bench: the second run at the best rate, or
--repeats. A change counts if it exceeds the 95% interval of the difference between equal benches, and RESOLUTION.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, NamedTuple

from runs.bench.bench_circumstances import deciding_command, different_circumstances
from runs.bench.bench_record import BenchRecord, BenchRun, Best, LoadKind
from runs.numbers.intervals import error_of_each, pooled_variance, student_quantile, weighted_sum
from runs.record.fingerprint import differences, value_text
from runs.wording import counted, four_digits, milliseconds, shortened_list

RESOLUTION = 0.01  # changes up to this share are never called different
QUEUE = 1.5  # factor on the noise of TTFT, whose differences are not normally distributed near saturation
_MAX_CHANGES = 6  # changes of the system in a line
UNDECLARED = "the server's options are not recorded; declare them with --metadata KEY=VALUE or --api-declaration FILE"

LoadLevel = tuple[LoadKind, float]
ComparisonVerdict = Literal["faster", "slower", "not distinguishable"]


@dataclass(frozen=True)
class ComparedQuantity:
    """One quantity of two benches."""

    name: str
    unit: str
    loads: int  # number of equal loads; 0 for the best rate
    base: float | None  # None: no rate within the limits. Over loads, the geometric mean
    other: float | None
    change: float | None  # share of the base's value
    noise: float | None  # smallest change that counts, as a share; None if neither bench has equal runs
    reason: str  # source of the noise, or why the verdict does not follow from it
    is_different: bool | None  # None: not tested against noise
    verdict: ComparisonVerdict
    median_change: float | None = None  # change of the medians of a latency; None for other quantities

    @property
    def change_text(self) -> str:
        """Both values and the change."""
        base_text, text = (
            "none" if value is None else milliseconds(value) if self.unit == "ms" else four_digits(value)
            for value in (self.base, self.other)
        )
        median = "" if self.median_change is None else f"; median {_signed(self.median_change)}"
        change = "" if self.change is None else f" ({_signed(self.change)}{median})"
        return f"{self.name}: {base_text} → {text} {self.unit}{change}"

    @property
    def text(self) -> str:
        """The change with its verdict and its noise."""
        text = f"{self.change_text}: {self.verdict}; {self.reason}"
        if self.noise is None:
            return text
        return f"{text}; a change counts from {_signed(math.copysign(self.noise, self.change or 0))}"


def _signed(share: float) -> str:
    return f"{share:+.1%}" if share <= 1 else f"{1 + share:.3g} times"


@dataclass(frozen=True)
class ComparedBench:
    """The comparison of one bench with the first bench."""

    base: str
    label: str
    changed: list[tuple[str, Any, Any]]  # facts of the system: name, value of the base, value of this bench
    change_text: str  # changed facts
    sentence: str  # all lines in one sentence, after the labels of both benches
    lines: list[str]  # one statement for each quantity
    best: ComparedQuantity | None
    measures: list[ComparedQuantity]
    pairs: list[dict[str, Any]]  # equal loads with the values of both benches

    def slower_than(self, share: float) -> list[ComparedQuantity]:
        """Return the slowdowns above a share of the base's value, and a lost best rate, unless within the noise."""
        slower = [
            measure for measure in (self.best, *self.measures) if measure is not None and measure.verdict == "slower"
        ]
        return [measure for measure in slower if measure.change is None or abs(measure.change) > share]


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`."""

    labels: list[str]
    unequal: dict[str, list[Any]]  # conditions that differ, with the value of each bench
    against: list[ComparedBench]  # empty if a condition differs

    @property
    def is_comparable(self) -> bool:
        return not self.unequal

    def unequal_texts(self) -> dict[str, list[str]]:
        """Return the conditions that differ in the words and units of the options."""
        return {
            condition_name(name): [condition_text(name, condition) for condition in all_]
            for name, all_ in self.unequal.items()
        }


def compare_benches(records: Sequence[BenchRecord]) -> Comparison:
    """Compare benches with the first bench."""
    base, *candidates = records
    unequal: dict[str, list[Any]] = {}
    conditions = [stated_conditions(record) for record in records]
    for candidate, candidate_conditions in zip(candidates, conditions[1:], strict=True):
        for name in differences(conditions[0], candidate_conditions):
            unequal[name] = [condition.get(name) for condition in conditions]
        if not unequal and _tested(base, candidate) == (None, []):
            unequal["loads"] = [
                ", ".join(sorted({_load_text(_load(run)) for run in _done(record)})) for record in records
            ]
    labels = [record.label for record in records]
    return Comparison(
        labels,
        unequal,
        [] if unequal else [_compare_with_base(base, candidate_record) for candidate_record in candidates],
    )


def _compare_with_base(base: BenchRecord, candidate: BenchRecord) -> ComparedBench:
    best, measures = _tested(base, candidate)
    changed, lines = list(_changed(base, candidate)), list(_lines(base, candidate, best, measures))
    sentence = f"{candidate.label} against {base.label}: {'; '.join(lines)}"
    change_text, pairs = _change_text(base, candidate, changed), list(_pairs(base, candidate))
    return ComparedBench(base.label, candidate.label, changed, change_text, sentence, lines, best, measures, pairs)


# Conditions ---------------------------------------------------------------------------------------------------------

# Names of conditions, where they differ from the last part of the key.
_CONDITIONS = {
    "engine_options.enable_prefix_caching": "prefix caching", "duration_s": "duration of a run",
    "input_tokens": "prompt tokens", "exact_output": "all output tokens (--ignore-eos)",
    "dataset_sha256": "dataset (SHA-256)", "loadgen.min_duration_ms": "minimum duration",
    "loadgen.max_duration_ms": "maximum duration", "loadgen.target_latency_percentile": "percentile of the limits",
}  # fmt: skip
_DERIVED = "loadgen.requested_"  # LoadGen's form of the limits


def stated_conditions(record: BenchRecord) -> dict[str, Any]:
    """Return the conditions of a bench, with limits and percentile as the user sets them instead of LoadGen's form."""
    conditions = {name: value for name, value in record.conditions.equal.items() if not name.startswith(_DERIVED)}
    percentile = {"loadgen.target_latency_percentile": record.percentile} if "duration_s" in conditions else {}
    return conditions | percentile | {"limits": str(record.limits or "none")}


def condition_name(name: str) -> str:
    return _CONDITIONS.get(name, name.rpartition(".")[2].replace("_", " "))


def condition_text(name: str, value: Any) -> str:
    if isinstance(value, int | float) and name.endswith(("duration_s", "_ms")):
        return f"{value / 1000 if name.endswith('_ms') else value:g} s"
    if name == "loadgen.target_latency_percentile":
        return "none" if value is None else f"p{100 * value:g}" if isinstance(value, float) else str(value)
    return value_text(value, 40)


# What changed -------------------------------------------------------------------------------------------------------


def _changed(base: BenchRecord, candidate: BenchRecord) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of the systems. An effective option is left out if the requested option differs."""
    changes = differences(base.conditions.system, candidate.conditions.system)
    for key, (before, after) in changes.items():
        name = key.removeprefix("resolved.")
        if name == key or f"engine_options.{name}" not in changes:
            yield name.removeprefix("engine_options."), before, after
    yield from (
        (name, before, after) for name, (before, after) in differences(base.metadata, candidate.metadata).items()
    )


def _change_text(base: BenchRecord, candidate: BenchRecord, changed: Sequence[tuple[str, Any, Any]]) -> str:
    texts = [f"{name} {value_text(before, 40)} → {value_text(after, 40)}" for name, before, after in changed]
    changes = shortened_list(texts, _MAX_CHANGES) or "nothing in the recorded system"
    return f"{changes}; {UNDECLARED}" if any(map(_hides_options, (base, candidate))) else changes


def _hides_options(record: BenchRecord) -> bool:
    """Return whether a bench measured a running server whose options neither metadata nor a declaration names."""
    system = record.conditions.system
    is_declared = record.metadata or any(key.startswith("resolved.declared") and system[key] for key in system)
    return system.get("engine") == "endpoint" and not system.get("engine_options.serve") and not is_declared


# Measures -----------------------------------------------------------------------------------------------------------


def _done(record: BenchRecord) -> list[BenchRun]:
    return [run for run in record.runs if run.verdict != "failed"]


def _load(run: BenchRun) -> LoadLevel:
    return run.kind, float(run.asked_qps or run.concurrency or math.inf)


def _load_text(load: LoadLevel) -> str:
    kind, value = load
    return {"offline": "Offline", "server": f"{value:g} queries/s", "concurrency": f"{value:g} open queries"}[kind]


class _Quantity(NamedTuple):
    name: str
    unit: str
    kinds: tuple[LoadKind, ...]
    value_of: Callable[[BenchRun], float | None]
    scale: float = 1.0  # factor on the noise
    median_of: Callable[[BenchRun], float | None] = lambda _: None  # median of a latency


def _median(name: Literal["ttft", "tpot", "latency"]) -> Callable[[BenchRun], float | None]:
    return lambda run: None if (times := getattr(run, name)) is None else times.p50


def _mean(name: Literal["ttft", "tpot", "latency"]) -> Callable[[BenchRun], float | None]:
    return lambda run: None if (times := getattr(run, name)) is None else times.mean


_TPOT = _Quantity("mean TPOT", "ms", ("server", "concurrency"), _mean("tpot"), median_of=_median("tpot"))
_LATENCY = _Quantity("mean latency", "ms", _TPOT.kinds, _mean("latency"), median_of=_median("latency"))
_QUANTITIES = (
    _Quantity("Offline", "tokens/s", ("offline",), lambda run: run.output_tokens_per_s),
    _Quantity("output", "tokens/s", ("concurrency",), lambda run: run.output_tokens_per_s),
    _Quantity("mean TTFT", "ms", _TPOT.kinds, _mean("ttft"), QUEUE, _median("ttft")),
    _TPOT,
)


def _values(record: BenchRecord, quantity: _Quantity) -> dict[LoadLevel, list[float]]:
    """Return the logarithms of a quantity by load, without saturated runs."""
    values: dict[LoadLevel, list[float]] = {}
    for run in _done(record):
        if run.kind in quantity.kinds and run.verdict != "saturated" and (value := quantity.value_of(run)):
            values.setdefault(_load(run), []).append(math.log(value))
    return values


def _tested(base: BenchRecord, candidate: BenchRecord) -> tuple[ComparedQuantity | None, list[ComparedQuantity]]:
    """Return the best rate and the other quantities. The error of 5% applies to all of them together (Holm's method).

    Each quantity that differs leaves a larger error to the others.
    """
    best, measures = _best(base, candidate, 1), _measures(base, candidate, 1)
    total = undecided = len(measures) + (best is not None)
    while undecided:
        best, measures = _best(base, candidate, undecided), _measures(base, candidate, undecided)
        different = sum(bool(quantity.is_different) for quantity in (best, *measures) if quantity is not None)
        if total - different >= undecided:
            break
        undecided = total - different
    return best, measures


def _measures(base: BenchRecord, candidate: BenchRecord, statements: int) -> list[ComparedQuantity]:
    """Return the changes over equal loads. With different numbers of accelerators, no load is equal."""
    if _per_accelerator(base, candidate):
        return []
    changes = (_measure(base, candidate, quantity, statements) for quantity in _QUANTITIES)
    measures = [change for change in changes if change is not None]
    if any(measure.unit == "ms" for measure in measures):
        return measures
    latency = _measure(base, candidate, _LATENCY, statements)  # a server that does not stream has no first tokens
    return measures if latency is None else [*measures, latency]


def _measure(
    base: BenchRecord, candidate: BenchRecord, quantity: _Quantity, statements: int
) -> ComparedQuantity | None:
    base_values, candidate_values = _values(base, quantity), _values(candidate, quantity)
    loads = [load for load in base_values if load in candidate_values]
    if not loads:
        return None
    base_mean, mean = (fmean(fmean(values[load]) for load in loads) for values in (base_values, candidate_values))
    load_text = _load_text(loads[0]) if len(loads) == 1 else counted(len(loads), "equal load")
    name = quantity.name if quantity.kinds == ("offline",) else f"{quantity.name} at {load_text}"
    counts = {load: (len(base_values[load]), len(candidate_values[load])) for load in loads}
    weights: dict[LoadLevel | None, float] = {
        load: quantity.scale**2 * (1 / before + 1 / after) / len(loads) ** 2 for load, (before, after) in counts.items()
    }
    noise, reason = _noise((base, candidate), quantity, weights, statements)
    is_different = _differs(abs(mean - base_mean), noise)
    is_faster = (mean < base_mean) == (quantity.unit == "ms")
    medians = quantity._replace(value_of=quantity.median_of)
    sides = [_values(record, medians) for record in (base, candidate)]
    has_medians = all(load in side for side in sides for load in loads)
    change_of_medians = [fmean(fmean(side[load]) for load in loads) for side in sides] if has_medians else None
    return ComparedQuantity(
        name, quantity.unit, len(loads), math.exp(base_mean), math.exp(mean), math.expm1(mean - base_mean),
        _share(noise, mean - base_mean), reason, is_different, _verdict(is_different, is_faster=is_faster),
        None if change_of_medians is None else math.expm1(change_of_medians[1] - change_of_medians[0]),
    )  # fmt: skip


def _differs(change: float, noise: float | None) -> bool | None:
    return False if change <= RESOLUTION else None if noise is None else change > noise


def _verdict(is_different: bool | None, *, is_faster: bool) -> ComparisonVerdict:
    return "not distinguishable" if is_different is False else "faster" if is_faster else "slower"


def _share(noise: float | None, change: float) -> float | None:
    """Return the noise of a logarithm as a share in the direction of its change."""
    return None if noise is None else abs(math.expm1(math.copysign(noise, change)))


def _noise(
    records: Sequence[BenchRecord], quantity: _Quantity, weights: Mapping[LoadLevel | None, float], statements: int
) -> tuple[float | None, str]:
    """Return the smallest change that counts, as a logarithm, and the source of the noise.

    The source is the equal runs of the quantity, without them those of TPOT. Noise depends on the load, so equal runs
    at the compared loads decide. Without them, those at other loads do.

    Args:
        weights: variance of the change from each compared load, as a multiple of the variance of one run.
        statements: number of statements that share the error.
    """
    for source in dict.fromkeys((quantity, _TPOT)):
        groups = [_EqualRuns(record.label, load, values) for record in records
                  for load, values in _values(record, source).items() if len(values) > 1]  # fmt: skip
        groups = [group for group in groups if group.load in weights] or groups
        if groups:
            loads = list(dict.fromkeys(group.load for group in groups))
            pooled = pooled_variance([group.values for group in groups])
            parts = [pooled_variance([group.values for group in groups if group.load == load]) for load in loads]
            # A load without equal runs has the variance of all equal runs together.
            elsewhere = sum(weight for load, weight in weights.items() if load not in loads) / pooled.freedom
            variance = weighted_sum(
                [weights.get(load, 0.0) + elsewhere * part.freedom for load, part in zip(loads, parts, strict=True)],
                parts,
            )
            quantile = student_quantile(error_of_each(statements), variance.freedom)
            load_text = _load_text(*loads) if len(loads) == 1 else f"{len(loads)} loads"
            labels = " and ".join(dict.fromkeys(group.label for group in groups))
            runs = f"{sum(len(group.values) for group in groups)} equal runs at {load_text} ({labels})"
            difference = math.expm1(math.sqrt(2 * pooled.value))
            noise = max(RESOLUTION, quantile * math.sqrt(variance.value))
            return noise, f"{source.name} of {runs} differs by {difference:.1%}"
    return None, "not tested against noise, because neither bench repeats a run"


class _EqualRuns(NamedTuple):
    label: str
    load: LoadLevel
    values: list[float]


def _best(base: BenchRecord, candidate: BenchRecord, statements: int) -> ComparedQuantity | None:
    """Return the change of the best rate; None if both best rates only show where the measurement ended."""
    base_best, best = base.best, candidate.best
    if base_best is None or best is None or min(len(base.runs), len(candidate.runs)) == 1:
        return None  # the rate of a single run is a setting
    if (base_best.high, best.high) == (None, None) or (base_best.low, best.low) == (None, None):
        return None
    per_accelerator = _per_accelerator(base, candidate)
    counts = (base.accelerators, candidate.accelerators) if per_accelerator else (1, 1)
    base_rate, rate = (low and low / (count or 1) for low, count in zip((base_best.low, best.low), counts, strict=True))
    change = None if base_rate is None or rate is None else rate / base_rate - 1
    lost, gained = _gap(best, base_best, counts[::-1]), _gap(base_best, best, counts)
    noise, reason = _noise((base, candidate), _TPOT, {None: 2.0}, statements)  # two runs, at no common load
    distance = abs(math.log1p(change or 0))
    is_different = _differs(distance if noise is None else max(lost, gained), noise)
    is_faster = base_rate is None or (rate is not None and rate > base_rate)
    if is_different is False and distance > max(noise or 0, RESOLUTION):
        reason, noise = "it is within the distance of the measured rates", None
    if change is None:
        without_rate, with_rate = (base, best) if base_rate is None else (candidate, base_best)
        if saturated_at := _saturated_at(without_rate, with_rate.low or 0):
            is_different, noise = True, None
            reason = f"{without_rate.label} is saturated at {saturated_at:g} queries/s"
    unit = "queries/s per accelerator" if per_accelerator else "queries/s"
    return ComparedQuantity(
        _best_name(base), unit, 0, base_rate, rate, change, _share(noise, change or 0), reason, is_different,
        _verdict(is_different, is_faster=is_faster),
    )  # fmt: skip


def _saturated_at(record: BenchRecord, most_qps: float) -> float | None:
    """Return the lowest rate that violated a limit, if all runs at this rate are saturated and it is low enough."""
    rate = record.best and record.best.high
    runs = [run.verdict == "saturated" for run in _done(record) if run.asked_qps == rate]
    return rate if rate and runs and all(runs) and rate <= most_qps else None


def _best_name(record: BenchRecord) -> str:
    return "best rate within limits" if record.limits else "highest rate without saturation"


def _gap(low: Best, high: Best, per: Sequence[int | None]) -> float:
    """Return the logarithm of the best rate of one bench over the lowest rate that violated a limit in the other."""
    if low.high is None or high.low is None:
        return 0.0
    return math.log(high.low / (per[1] or 1) / (low.high / (per[0] or 1)))


def _per_accelerator(base: BenchRecord, candidate: BenchRecord) -> bool:
    return bool(base.accelerators and candidate.accelerators and base.accelerators != candidate.accelerators)


def _pairs(base: BenchRecord, candidate: BenchRecord) -> Iterator[dict[str, Any]]:
    for run in _done(base):
        equal_run = next((peer for peer in _done(candidate) if _load(peer) == _load(run) and peer.again == run.again
                     and peer.repetition == run.repetition), None)  # fmt: skip
        if equal_run is not None:
            yield {"load": _load_text(_load(run)), "base": run.number, "other": equal_run.number}


# The lines ----------------------------------------------------------------------------------------------------------


def _lines(
    base: BenchRecord, candidate: BenchRecord, best: ComparedQuantity | None, measures: Sequence[ComparedQuantity]
) -> Iterator[str]:
    """Yield a statement for each quantity, and for a quantity without a comparison the reason."""
    if best is not None:
        yield best.text
    elif base.best is not None and candidate.best is not None and len(base.runs) > 1 < len(candidate.runs):
        before, after = base.best.low, candidate.best.low
        text = "none in both"
        if before is not None and after is not None:
            rates = f"at least {four_digits(before)} → at least {four_digits(after)} queries/s"
            text = f"{rates}: not compared; no measured rate is too high"
        yield f"{_best_name(base)}: {text}"
    yield from (measure.text for measure in measures)
    for record in (base, candidate):
        lost = sorted({run.asked_qps for run in record.runs if run.verdict == "saturated" and run.asked_qps})
        if lost_rates := ", ".join(f"{rate:g}" for rate in lost):
            yield f"latencies at {lost_rates} queries/s are not compared, because {record.label} is saturated there"
    yield from different_circumstances(base, candidate)
    if any(not measure.is_different for measure in (best, *measures) if measure is not None):
        yield deciding_command(base, candidate)
