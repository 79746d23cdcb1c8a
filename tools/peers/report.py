"""Figures of a measurement with all their runs, as JSON and as a table."""

import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class FigureTarget:
    """The target of a figure."""

    limit: float
    at_least: bool  # False = at most

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:,g}"


@dataclass(frozen=True)
class Figure:
    """A number: the median of its runs. `unit` is empty for a ratio."""

    name: str
    unit: str
    runs: tuple[float, ...]
    target: FigureTarget | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.median >= self.target.limit if self.target.at_least else self.median <= self.target.limit

    def as_json(self) -> dict[str, Any]:
        target = self.target and str(self.target)
        return {**asdict(self), "median": self.median, "target": target, "met": self.met}


@dataclass(frozen=True)
class Grid:
    """A table of a measurement with more than one number per row."""

    headings: tuple[str, ...]
    rows: list[tuple[str | float, ...]]


@dataclass
class PeerPart:
    """A measurement and its figures."""

    name: str
    title: str
    figures: list[Figure] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # method and limits of the measurement
    seconds: float = 0.0
    load_average: tuple[float, float] = (0.0, 0.0)  # over one minute, before and after

    def add(self, name: str, unit: str, runs: Sequence[float], target: FigureTarget | None = None) -> Figure:
        figure = Figure(name, unit, tuple(float(run) for run in runs), target)
        self.figures.append(figure)
        return figure

    def add_ratio(
        self, name: str, own_figure: Figure, peer_figure: Figure, target: FigureTarget | None = None
    ) -> Figure:
        """Add the ratio of two figures run by run, because both runs of a pair had the same machine load."""
        return self.add(name, "", [a / b for a, b in zip(own_figure.runs, peer_figure.runs, strict=True)], target)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "figures": [figure.as_json() for figure in self.figures]}


at_least, at_most = partial(FigureTarget, at_least=True), partial(FigureTarget, at_least=False)


def load_average() -> float:
    """Return the mean number of runnable processes in the last minute."""
    return round(os.getloadavg()[0], 2)


def print_part(console: Console, part: PeerPart) -> None:
    """Print the part's figures: median, lowest and highest run, target."""
    table = Table(title=f"({part.name}) {part.title}", title_justify="left", caption_justify="left")
    for heading in ("figure", "unit", "median", "lowest", "highest", "runs", "target", ""):
        table.add_column(heading, justify="right" if heading in ("median", "lowest", "highest", "runs") else "left")
    for figure in part.figures:
        verdict = {True: "met", False: "MISSED", None: ""}[figure.met]
        numbers = (number(value) for value in (figure.median, min(figure.runs), max(figure.runs)))
        table.add_row(figure.name, figure.unit, *numbers, str(len(figure.runs)), str(figure.target or ""), verdict)
    console.print(table)
    for grid in part.grids:
        console.print(_grid_table(grid))
    for note in part.notes:
        console.print(f"  {note}", highlight=False, soft_wrap=True, markup=False)
    first, last = part.load_average
    console.print(f"  {part.seconds:.0f} s; load average {first:g} before, {last:g} after\n", highlight=False)


def _grid_table(grid: Grid) -> Table:
    table = Table()
    for place, heading in enumerate(grid.headings):
        is_text = all(isinstance(row[place], str) for row in grid.rows)
        table.add_column(heading, justify="left" if is_text else "right")
    for row in grid.rows:
        table.add_row(*(cell if isinstance(cell, str) else number(cell) for cell in row))
    return table


def number(value: float) -> str:
    """Return a number with four digits; whole numbers have separators."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
