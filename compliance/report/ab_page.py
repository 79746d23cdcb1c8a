"""The page of a comparison of systems, made from ab.json. It needs no scripts or other files.

The layout is ab_page.html.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from compliance.report.curves import COLORS
from compliance.report.page import render_page
from compliance.report.pictures import BAD, GOOD, MUTED, ONE, TWO, Picture, picture_of
from runs.ab.ab_record import AB_FILE, AbBlock, AbChange, AbRecord, read_ab_record
from runs.ab.ab_text import limits_line, load_line, verdict_text
from runs.files.writing import write_atomic
from runs.wording import milliseconds, moment, printable

AB_PAGE = "ab.html"
_DOTS = 400  # maximum number of pairs that are drawn in a row
_SHOWN = 0.9  # share of the pairs that the horizontal axis shows
_VERDICT_COLORS = {"faster": GOOD, "slower": BAD, "equal": ONE, "undecided": MUTED}


@dataclass(frozen=True)
class AbPage:
    """The content of the page."""

    record: AbRecord
    made: str
    forests: dict[tuple[int, int], Picture]  # load and system → changes with their intervals
    courses: dict[int, list[Picture]]  # load → levels of all systems over time

    @property
    def title(self) -> str:
        base, *others = self.record.systems
        return f"{', '.join(system.name for system in others)} against {base.name}: {base.target}"

    def changes(self, load: int, system: int) -> list[AbChange]:
        return [change for change in self.record.changes if (change.load, change.system) == (load, system)]

    def load_line(self, load: int) -> str:
        return load_line(self.record, load)

    def limits_line(self, load: int) -> str:
        return limits_line(self.record, load)

    def verdict_text(self, change: AbChange) -> str:
        return verdict_text(change, self.record.precision)

    def level(self, value: float | None, unit: str) -> str:
        return "–" if value is None else milliseconds(value) if unit == "ms" else f"{value:,.4g}"

    def facts(self) -> list[tuple[str, list[Any], bool]]:
        """Return name, value of each system, and whether the values differ."""
        names = list(dict.fromkeys(name for system in self.record.systems for name in system.facts))
        rows = [(name, [system.facts.get(name) for system in self.record.systems]) for name in names]
        compared = [(name, values, any(value != values[0] for value in values)) for name, values in rows]
        return sorted(compared, key=lambda row: not row[2])

    def odd_blocks(self) -> list[AbBlock]:
        """Return the blocks that failed, or have a system that did not keep up."""
        return [block for block in self.record.blocks if block.saturated or block.run.verdict == "failed"]


def write_page_of_ab(folder: Path) -> Path:
    """Write ab.html into the directory of a comparison; return its path.

    Raises:
        InputError: If ab.json is missing or damaged.
    """
    path = folder / AB_PAGE
    write_atomic(path, render_page(ab_page(read_ab_record(folder / AB_FILE)), "ab_page.html"))
    return path


def ab_page(record: AbRecord) -> AbPage:
    """Return the content of the page."""
    forests = {}
    for load in range(len(record.loads)):
        for system in range(1, len(record.systems)):
            changes = [change for change in record.changes if (change.load, change.system) == (load, system)]
            if changes:
                forests[load, system] = _draw_forest(record, changes)
    courses = {load: _draw_courses(record, load) for load in range(len(record.loads))}
    return AbPage(record, moment(time.time_ns()), forests, courses)


def _draw_forest(record: AbRecord, changes: Sequence[AbChange]) -> Picture:
    """Draw the pairs of each quantity as dots, with the mean and its interval."""
    figure = Figure(figsize=(5.75, 1.3 + 0.42 * len(changes)))
    axes: Any = figure.add_subplot()
    jitter = np.random.default_rng(0)
    limits: list[float] = []
    precision = 100 * record.precision
    axes.axvspan(-precision, precision, color=ONE, alpha=0.08, linewidth=0)
    axes.axvline(0, color=MUTED, linewidth=1)
    for row, change in enumerate(changes):
        values = 100 * np.array(change.values)
        limits += [float(value) for value in np.quantile(values, [(1 - _SHOWN) / 2, (1 + _SHOWN) / 2])]
        step = max(1, len(values) // _DOTS)
        dots = values[::step]
        heights = row + jitter.uniform(-0.22, 0.22, len(dots))
        axes.plot(dots, heights, "o", color=MUTED, alpha=0.35, markersize=3, linewidth=0)
        kept = [values[place] for place in change.trimmed if place < len(values)]
        axes.plot(kept, [row] * len(kept), "x", color=TWO, markersize=4, linewidth=0)
        color = _VERDICT_COLORS[change.verdict]
        if change.low is not None and change.high is not None:
            ends = 100 * change.low, 100 * change.high
            axes.plot(ends, [row, row], color=color, linewidth=4, solid_capstyle="butt", alpha=0.9)
            limits += ends
        axes.plot([100 * change.change], [row], "D", color=color, markersize=7, markeredgecolor="white")
    axes.set_yticks(range(len(changes)), [change.quantity for change in changes])
    axes.set_ylim(len(changes) - 0.4, -0.6)
    widest = 1.1 * max(*(abs(value) for value in limits), 2 * precision)
    axes.set_xlim(-widest, widest)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.3g}%" if value else "0"))
    axes.locator_params(axis="x", nbins=6)
    system = record.systems[changes[0].system].name
    base = record.systems[0].name
    axes.set_xlabel(f"change from {base} to {system}")
    words = "; ".join(map(_words, changes))
    return picture_of(figure, f"Changes from {base} to {system} with their intervals: {words}")


def _words(change: AbChange) -> str:
    interval = "" if change.low is None or change.high is None else f" ({change.low:+.1%} to {change.high:+.1%})"
    return f"{change.quantity} {change.change:+.1%}{interval}"


def _draw_courses(record: AbRecord, load: int) -> list[Picture]:
    """Draw the level of each mean in each block over time."""
    blocks = [block for block in record.blocks if block.load == load and block.levels]
    names = list(dict.fromkeys(name for block in blocks for name in block.levels))
    return [_draw_course(record, blocks, name) for name in names]


def _draw_course(record: AbRecord, blocks: Sequence[AbBlock], name: str) -> Picture:
    figure = Figure(figsize=(4.6, 2.6))
    axes: Any = figure.add_subplot()
    begin_ns = min(block.run.start_time_ns or 0 for block in blocks)
    for system, color in zip(range(len(record.systems)), COLORS, strict=False):
        points = [
            (((block.run.start_time_ns or 0) - begin_ns) / 60e9, level)
            for block in blocks
            if system in block.systems
            and (level := block.levels.get(name, [None] * 9)[block.systems.index(system)]) is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), "o-", color=color, markersize=5, linewidth=1.2,
                      label=printable(record.systems[system].name))  # fmt: skip
    axes.set(xlabel="minutes", ylabel="ms", title=f"{name} of each block")
    axes.set_ylim(bottom=0)
    axes.legend(loc="best", ncols=2)
    return picture_of(figure, f"{name} of each block over time")
