"""The page of a comparison of systems, made from ab.json. It needs no other files.

The layout is ab_page.html.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compliance.report.ab_charts import courses, forest
from compliance.report.chart import Chart
from compliance.report.page import render_page
from compliance.report.settings import SettingRow, setting_row, setting_rows
from runs.ab.ab_record import AB_FILE, AbBlock, AbChange, AbRecord, read_ab_record
from runs.ab.ab_text import interval_text, limits_line, load_line, verdict_text
from runs.files.writing import write_atomic
from runs.wording import four_digits, milliseconds, moment

AB_PAGE = "ab.html"


@dataclass(frozen=True)
class AbPage:
    """The content of the page."""

    record: AbRecord
    made: str
    charts: dict[int, list[Chart]]  # load → changes of each system with their intervals, and levels over time

    @property
    def title(self) -> str:
        base, *others = self.record.systems
        return f"{', '.join(system.name for system in others)} against {base.name}"

    def load_line(self, load: int) -> str:
        return load_line(self.record, load)

    def limits_line(self, load: int) -> str:
        return limits_line(self.record, load)

    def verdict_text(self, change: AbChange) -> str:
        return verdict_text(change, self.record.precision)

    def interval_text(self, change: AbChange) -> str:
        return interval_text(change)

    def level(self, value: float | None, unit: str) -> str:
        return "–" if value is None else milliseconds(value) if unit == "ms" else four_digits(value)

    def different_facts(self) -> list[tuple[str, list[str]]]:
        """Return name and values of each fact that differs between the systems."""
        rows = []
        for name, values in self._facts():
            if any(value != values[0] for value in values):
                settings = [None if value is None else setting_row(name, value) for value in values]
                title = next(setting.name for setting in settings if setting is not None)
                rows.append((title, ["–" if setting is None else setting.value for setting in settings]))
        return rows

    def equal_facts(self) -> list[SettingRow]:
        """Return the facts that all systems share."""
        equal = ((name, values) for name, values in self._facts() if all(value == values[0] for value in values))
        return setting_rows((name, values[0]) for name, values in equal)

    def _facts(self) -> list[tuple[str, list[Any]]]:
        names = dict.fromkeys(name for system in self.record.systems for name in system.facts)
        return [(name, [system.facts.get(name) for system in self.record.systems]) for name in names]

    def conditions(self) -> list[SettingRow]:
        return setting_rows(self.record.conditions.items())

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
    charts = {}
    for load in range(len(record.loads)):
        by_system = [record.changes_of(load, system) for system in range(1, len(record.systems))]
        charts[load] = [forest(record, changes) for changes in by_system if changes] + courses(record, load)
    return AbPage(record, moment(time.time_ns()), charts)
