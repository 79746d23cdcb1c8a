"""Charts of a comparison of systems: changes with their intervals, and the level of each block over time."""

from collections.abc import Iterator, Sequence

import numpy as np

from compliance.report.chart import Axis, Chart, Line, Point, Series
from compliance.report.palette import SHAPES
from runs.ab.ab_record import AbBlock, AbChange, AbRecord
from runs.ab.ab_text import interval_text
from runs.wording import milliseconds

MAX_DOTS = 400  # maximum number of pairs that are drawn in a row
_SHOWN = 0.9  # share of the pairs that the horizontal axis shows
_JITTER = 0.22  # maximum distance of a pair from the middle of its row
_COLORS = {"faster": "good", "slower": "bad", "equal": "c1", "undecided": "muted"}


def forest(record: AbRecord, changes: Sequence[AbChange]) -> Chart:
    """Return the changes of one system: pairs as dots, and means with their intervals."""
    base, system = record.systems[0].name, record.systems[changes[0].system].name
    precision = 100 * record.precision
    series = [*_pairs(changes), *_means(changes)]
    reach = 1.1 * max(*_reach(changes), 2 * precision)
    band = Line(-precision, f"precision ±{precision:.3g}%", "x", end=precision)
    x = Axis(f"change from {base} to {system}", "%", low=-reach, high=reach, scale="linear")
    y = Axis("quantity", rows=[change.quantity for change in changes])
    return Chart(f"{system} against {base}: changes with 95% intervals", x, y, series, [band, Line(0, "", "x")])


def _reach(changes: Sequence[AbChange]) -> Iterator[float]:
    """Yield the distances from 0 that the horizontal axis shows."""
    for change in changes:
        shares = ((1 - _SHOWN) / 2, (1 + _SHOWN) / 2)
        ends = [float(np.quantile(change.values, share)) for share in shares] if change.values else []
        yield from (100 * abs(end) for end in (*ends, change.low, change.high, change.change) if end is not None)


def _pairs(changes: Sequence[AbChange]) -> Iterator[Series]:
    """Yield the pairs of all quantities as dots, and the trimmed pairs as crosses."""
    jitter = np.random.default_rng(0)
    dots, trimmed = [], []
    for row, change in enumerate(changes):
        step = max(1, len(change.values) // MAX_DOTS)
        for number, value in enumerate(change.values):
            text = f"{change.quantity}, pair {number + 1}: {value:+.1%}"
            if number in change.trimmed:
                trimmed.append(Point(100 * value, row, f"{text}, trimmed"))
            elif number % step == 0:
                dots.append(Point(100 * value, row + float(jitter.uniform(-_JITTER, _JITTER)), text))
    yield Series("pair", dots, color="muted", is_faint=True)
    yield Series("trimmed pair", trimmed, color="c2", shape="x")


def _means(changes: Sequence[AbChange]) -> Iterator[Series]:
    """Yield the changes by verdict."""
    for verdict, color in _COLORS.items():
        points = [
            Point(100 * change.change, row, _text(change), low=_percent(change.low), high=_percent(change.high))
            for row, change in enumerate(changes)
            if change.verdict == verdict
        ]
        yield Series(verdict, points, color=color, shape="D")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _text(change: AbChange) -> str:
    return f"{change.quantity} {change.change:+.1%} ({interval_text(change)})"


def courses(record: AbRecord, load: int) -> list[Chart]:
    """Return the level of each compared mean in each block over time, with all systems."""
    blocks = [block for block in record.blocks if block.load == load and block.levels]
    names = dict.fromkeys(name for block in blocks for name in block.levels)
    compared = {change.quantity for change in record.changes if change.load == load}
    return [_course(record, blocks, name) for name in names if name in compared or not compared]


def _course(record: AbRecord, blocks: Sequence[AbBlock], name: str) -> Chart:
    begin_ns = min(block.run.start_time_ns or 0 for block in blocks)
    series = []
    for number, system in enumerate(record.systems):
        points = []
        for block in blocks:
            level = block.levels[name][block.systems.index(number)] if _measures(block, name, number) else None
            if level is not None:
                minutes = ((block.run.start_time_ns or 0) - begin_ns) / 60e9
                text = f"block {block.number}, {minutes:.1f} min: {milliseconds(level)} ms"
                points.append(Point(minutes, level, text))
        series.append(Series(system.name, points, "joined", shape=SHAPES[number % len(SHAPES)]))
    return Chart(f"{name} of each block", Axis("time", "min"), Axis(name, "ms", low=0), series)


def _measures(block: AbBlock, name: str, system: int) -> bool:
    return name in block.levels and system in block.systems
