"""The changes between systems: values of pairs, their intervals and verdicts.

Interleaved, a value is the mean difference of the logarithms of twins, over a batch of consecutive twins. In turns, it
is the difference of the logarithms of two blocks. The number of twins in a batch follows from the first block, so that
later data do not change earlier batches.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runs.ab.ab_record import AbChange, AbVerdict
from runs.ab.block_queries import SystemQueries
from runs.ab.percentiles import percentile, percentile_interval
from runs.bench.bench_record import LoadKind
from runs.numbers.intervals import (
    MIN_VALUES,
    Interval,
    error_of_each,
    interval_of_series,
    needed_factor,
)

BlockValues = NDArray[np.float64]

MIN_TWINS = 8  # minimum number of twins in a batch
_BATCH_LATENCIES = 2.0  # minimum duration of a batch, in median latencies
_BATCH_S = 1.0
_PERCENTILES = (50, 90, 99)
_MIN_PERCENTILE_BATCHES = 24  # batches of twins for a percentile: fewer cannot show that neighbors are correlated
TAIL = 99  # the percentile whose change a comparison waits for
TAIL_PRECISION = 0.2  # half-width of the interval of the tail
MIN_TAIL_QUERIES = 1_000  # queries of one system for an interval of the tail, which about 20 slow queries decide
ENOUGH_OF_CHANGE = 1 / 3  # a half-width below this share of the change is precise enough
MIN_BLOCKS = 2  # blocks that show whether a change is constant


@dataclass(frozen=True)
class AbQuantity:
    """A quantity that is compared."""

    name: str
    unit: str
    latency: str = ""  # ttft, tpot or latency; empty for tokens/s
    percentile: int | None = None  # None = mean of the logarithms

    def precision(self, precision: float) -> float:
        """Return the half-width with which two systems are called equal."""
        return max(precision, TAIL_PRECISION) if self.percentile == TAIL else precision

    def level(self, values: BlockValues) -> float:
        """Return the logarithm of the quantity of many queries."""
        if self.percentile is None:
            return float(np.log(values).mean())
        return math.log(percentile(values, self.percentile))


TOKENS = AbQuantity("tokens/s", "")
_MEANS = {name: AbQuantity(f"{name} mean", "ms", name.lower()) for name in ("TTFT", "TPOT", "latency")}


def quantities_of(kind: LoadKind, *, has_first_tokens: bool) -> list[AbQuantity]:
    """Return the quantities of a comparison. Their number is fixed, because it decides the error of each."""
    if kind == "offline":
        return [TOKENS]
    names = ("TTFT", "TPOT") if has_first_tokens else ("latency",)
    percentiles = [
        AbQuantity(f"{name} p{share}", "ms", name.lower(), share) for name in names for share in _PERCENTILES
    ]
    return [*(_MEANS[name] for name in names), TOKENS, *percentiles]


@dataclass(frozen=True)
class PairValues:
    """The changes of one quantity: a logarithm and a time for each pair or batch, and the logarithms of both levels.

    A percentile has no values, but the times of both systems in each batch or pair.
    """

    values: BlockValues
    times_s: BlockValues
    base: float | None
    level: float | None
    sides: tuple[Sequence[BlockValues], Sequence[BlockValues]] = ((), ())

    @property
    def count(self) -> int:
        """The number of batches or pairs."""
        return len(self.values) or len(self.sides[0])


Block = Sequence[SystemQueries]  # queries of each system, from one interleaved run
TurnBlocks = list[tuple[SystemQueries, float | None]]  # blocks of one system with their tokens/s
Turns = dict[int, dict[int, TurnBlocks]]  # pair → system → blocks
NO_VALUES = np.zeros(0)


def batch_size(block: Block) -> int:
    """Return the number of twins in a batch, from the first block of a load."""
    base = block[0]
    span_s = float(base.arrived_s[-1] - base.arrived_s[0]) if len(base) > 1 else 1.0
    rate = len(base) / max(span_s, 1e-3)
    batch_s = max(_BATCH_S, _BATCH_LATENCIES * float(np.median(base.latency_s)))
    return max(MIN_TWINS, math.ceil(rate * batch_s))


def twin_values(blocks: Sequence[Block], system: int, quantity: AbQuantity) -> PairValues:
    """Return the changes of a quantity between the base and a system, in batches of consecutive twins."""
    if not blocks:
        return PairValues(NO_VALUES, NO_VALUES, None, None)
    size = batch_size(blocks[0])
    if not quantity.latency:
        return _token_values(blocks, system, size)
    base, changed = (_stream(blocks, place, quantity.latency) for place in (0, system))
    if base is None or changed is None:
        return PairValues(NO_VALUES, NO_VALUES, None, None)
    times_s = np.concatenate([block[0].arrived_s + block[0].start_s for block in blocks])
    count = min(len(base), len(changed), len(times_s)) // size
    cut = count * size
    rows = [side[:cut].reshape(count, size) for side in (base, changed)]
    levels = quantity.level(base), quantity.level(changed)
    if quantity.percentile is not None:
        sides = ([*rows[0]], [*rows[1]]) if count >= _MIN_PERCENTILE_BATCHES else ((), ())
        return PairValues(NO_VALUES, NO_VALUES, levels[0], levels[1], sides)
    values = (np.log(rows[1]) - np.log(rows[0])).mean(axis=1)
    return PairValues(values, times_s[:cut].reshape(count, size).mean(axis=1), levels[0], levels[1])


def _stream(blocks: Sequence[Block], system: int, latency: str) -> BlockValues | None:
    parts = [block[system].times_s(latency) for block in blocks]
    return None if any(part is None for part in parts) else np.concatenate([part for part in parts if part is not None])


def _token_values(blocks: Sequence[Block], system: int, size: int) -> PairValues:
    """Return the changes of tokens/s. The time of a batch is from the mean completion of the batch before to its own
    mean completion, so that the times of all batches add up.
    """
    values, moments_s, totals = [], [], np.zeros((2, 2))
    for block in blocks:
        sides = [block[0], block[system]]
        count = min(map(len, sides)) // size
        rates = []
        for side, total in zip(sides, totals, strict=True):
            centers_s = np.sort(side.done_s)[: count * size].reshape(count, size).mean(axis=1)
            tokens = side.output_tokens[: count * size].reshape(count, size).sum(axis=1)
            rates.append(tokens[1:] / np.maximum(np.diff(centers_s), 1e-6))
            total += (float(tokens[1:].sum()), float(centers_s[-1] - centers_s[0]) if count else 0.0)
        if count > 1:
            values.append(np.log(rates[1]) - np.log(rates[0]))
            moments_s.append(
                block[0].start_s + block[0].arrived_s[: count * size].reshape(count, size).mean(axis=1)[1:]
            )
    if not values:
        return PairValues(NO_VALUES, NO_VALUES, None, None)
    levels = [math.log(tokens / seconds) for tokens, seconds in totals]
    return PairValues(np.concatenate(values), np.concatenate(moments_s), levels[0], levels[1])


def levels_of(parts: Sequence[SystemQueries]) -> dict[str, list[float | None]]:
    """Return the mean of each latency for each system of a block, in ms."""
    levels: dict[str, list[float | None]] = {}
    for name, quantity in _MEANS.items():
        times_s = [part.times_s(quantity.latency) for part in parts]
        if any(times is not None for times in times_s):
            levels[f"{name} mean"] = [
                None if times is None else 1e3 * math.exp(quantity.level(times)) for times in times_s
            ]
    return levels


def turn_values(turns: Turns, system: int, quantity: AbQuantity) -> PairValues:
    """Return the changes of a quantity between the blocks of the base and of a system, by pair."""
    pairs, measured = [], []
    for _, pair in sorted(turns.items()):
        sides = pair.get(0, []), pair.get(system, [])
        before, after = (_level(side, quantity) for side in sides)
        if before is not None and after is not None:
            pairs.append(sides)
            measured.append((before, after))
    if not pairs:
        return PairValues(NO_VALUES, NO_VALUES, None, None)
    levels = np.array(measured)
    base, level = levels.mean(axis=0).tolist()
    if quantity.percentile is not None:
        times_s = [[_times_s(sides[place], quantity) for sides in pairs] for place in (0, 1)]
        return PairValues(NO_VALUES, NO_VALUES, base, level, (times_s[0], times_s[1]))
    starts_s = [np.mean([queries.start_s for side in sides for queries, _ in side]) for sides in pairs]
    return PairValues(levels[:, 1] - levels[:, 0], np.array(starts_s), base, level)


def _level(blocks: TurnBlocks, quantity: AbQuantity) -> float | None:
    """Return the logarithm of a quantity of blocks; None if it was not measured."""
    if not quantity.latency:
        rates = [rate for _, rate in blocks if rate]
        return float(np.log(rates).mean()) if rates and len(rates) == len(blocks) else None
    times_s = _times_s(blocks, quantity)
    return quantity.level(times_s) if len(times_s) else None


def _times_s(blocks: TurnBlocks, quantity: AbQuantity) -> BlockValues:
    """Return the times of a latency in blocks; empty if a block lacks them."""
    times_s = [times for queries, _ in blocks if (times := queries.times_s(quantity.latency)) is not None]
    return np.concatenate(times_s) if times_s and len(times_s) == len(blocks) else NO_VALUES


def judge_change(
    pairs: PairValues, quantity: AbQuantity, *, load: int, system: int, statements: int, precision: float,
    elapsed_s: float, is_main: bool,
) -> AbChange:  # fmt: skip
    """Return a change with its interval and verdict.

    Args:
        statements: Number of statements of the whole comparison; their errors add up.
        elapsed_s: Time that the measurement has taken so far.
        is_main: True if the measurement continues until the interval reaches the precision.
    """
    error, precision = error_of_each(statements), quantity.precision(precision)
    interval = (
        interval_of_series(pairs.values, error)
        if quantity.percentile is None
        else percentile_interval(*pairs.sides, quantity.percentile, error)
    )
    verdict = _verdict(interval, precision, higher_is_better=quantity is TOKENS)
    is_known = math.isfinite(interval.half_width)
    factor = needed_factor(interval, precision) if is_known else math.nan
    return AbChange(
        load=load,
        system=system,
        quantity=quantity.name,
        unit=quantity.unit,
        is_main=is_main,
        base=_shown(pairs.base, quantity),
        value=_shown(pairs.level, quantity),
        change=math.expm1(interval.mean),
        low=math.expm1(interval.low) if math.isfinite(interval.low) else None,
        high=math.expm1(interval.high) if math.isfinite(interval.high) else None,
        values=[math.expm1(value) for value in pairs.values],
        times_s=[float(moment) for moment in pairs.times_s],
        trimmed=list(interval.trimmed),
        precision=precision,
        verdict=verdict,
        needed_s=elapsed_s * factor if verdict == "undecided" and factor > 1 else None,
        drift=_drift(pairs.values, error, precision),
    )


def _shown(level: float | None, quantity: AbQuantity) -> float | None:
    return None if level is None else math.exp(level) * (1e3 if quantity.latency else 1.0)


def _verdict(interval: Interval, precision: float, *, higher_is_better: bool) -> AbVerdict:
    if interval.excludes_zero:
        return "faster" if (interval.low > 0) == higher_is_better else "slower"
    inside = math.expm1(interval.high) <= precision and math.expm1(interval.low) >= -precision
    return "equal" if inside else "undecided"


def _drift(values: BlockValues, error: float, precision: float) -> list[float] | None:
    """Return the mean change of both halves if they differ by more than the precision and their noise."""
    half = len(values) // 2
    if half < MIN_VALUES:
        return None
    before, after = values[:half], values[-half:]
    interval = interval_of_series(after - before, error)
    if not interval.excludes_zero or abs(interval.mean) <= math.log1p(precision):
        return None
    return [math.expm1(float(part.mean())) for part in (before, after)]


def is_precise(change: AbChange, precision: float) -> bool:
    """Return whether a change needs no more pairs: it has a verdict, and its half-width is at most the precision, or a
    third of the change.
    """
    if change.low is None or change.high is None or change.verdict == "undecided":
        return False
    half = (change.high - change.low) / 2
    return half <= max(precision, ENOUGH_OF_CHANGE * abs(change.change) if change.verdict != "equal" else 0.0)


def is_settled(
    changes: Sequence[AbChange], blocks: int, precision: float, *, first_tail_s: float, max_time_s: float
) -> bool:
    """Return whether a load needs no more blocks: each mean is precise and constant, and the tails are known.

    The tails count only if no mean changed by more than the precision, and if the time suffices for them.

    Args:
        changes: Changes of the load.
        blocks: Number of its blocks, or of its pairs of blocks.
        first_tail_s: Time of the comparison after which a tail has an interval.
        max_time_s: Time limit of the comparison.
    """
    main = [change for change in changes if change.is_main]
    is_constant = all(change.drift is None for change in main)
    if blocks < MIN_BLOCKS or not main or not is_constant or not all(is_precise(change, precision) for change in main):
        return False
    systems = [
        [change for change in changes if change.system == system] for system in {change.system for change in changes}
    ]
    return all(_knows_tails(own, precision, first_tail_s, max_time_s) for own in systems)


def _knows_tails(changes: Sequence[AbChange], precision: float, first_tail_s: float, max_time_s: float) -> bool:
    """Return whether more queries would not show more of the tails of one system: see `is_settled`."""
    if any(change.is_main and abs(change.change) > precision for change in changes):
        return True
    tails = tails_of(changes).values()
    if any(tail is not None and tail.verdict in ("faster", "slower") for tail in tails):
        return True
    needed_s = [
        first_tail_s if tail is None or tail.needed_s is None else tail.needed_s
        for tail in tails
        if tail is None or tail.verdict == "undecided"
    ]
    return all(time_s > max_time_s for time_s in needed_s)


def tails_of(changes: Sequence[AbChange]) -> dict[str, AbChange | None]:
    """Return the tail of each latency of one system, by its name; None if it has too few values."""
    by_name = {change.quantity: change for change in changes}
    names = [f"{latency} p{TAIL}" for latency in _MEANS if f"{latency} mean" in by_name]
    return {name: by_name.get(name) for name in names}


def changes_of(
    blocks: Sequence[Block] | Turns, kind: LoadKind, *, load: int, systems: int, loads: int, precision: float,
    elapsed_s: float,
) -> list[AbChange]:  # fmt: skip
    """Return the changes of all quantities at one load.

    Args:
        blocks: Blocks of the load: interleaved runs, or the blocks of turns.
        systems: Number of systems, with the base.
        loads: Number of loads of the whole comparison.
    """
    queries = [query for block in blocks for query in block] if not isinstance(blocks, dict) else _queries(blocks)
    if not queries:
        return []
    quantities = quantities_of(kind, has_first_tokens=all(query.ttft_s is not None for query in queries))
    statements = len(quantities) * (systems - 1) * loads
    changes = []
    for system in range(1, systems):
        for quantity in quantities:
            is_main = quantity.percentile is None and (kind != "server" or quantity is not TOKENS)
            pairs = (
                turn_values(blocks, system, quantity)
                if isinstance(blocks, dict)
                else twin_values(blocks, system, quantity)
            )
            if pairs.count >= (1 if quantity.percentile is None else MIN_VALUES):
                changes.append(
                    judge_change(
                        pairs, quantity, load=load, system=system, statements=statements, precision=precision,
                        elapsed_s=elapsed_s, is_main=is_main,
                    )
                )  # fmt: skip
    return changes


def _queries(turns: Turns) -> list[SystemQueries]:
    return [queries for pair in turns.values() for side in pair.values() for queries, _ in side]
