"""The page of a comparison, with the layout in compare_page.html. It needs no scripts or other files."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from compliance.report.bench_page import draw_records, draw_users
from compliance.report.page import render_page
from compliance.report.pictures import Picture
from runs.bench.bench_comparison import Comparison, condition_name, condition_text, stated_conditions
from runs.bench.bench_record import BenchRecord
from runs.wording import moment


@dataclass(frozen=True)
class ComparePage:
    """The content of the page."""

    comparison: Comparison
    records: Sequence[BenchRecord]
    made: str
    pictures: list[Picture]  # empty if the compared benches differ in a condition
    notes: Sequence[str]  # benches that are not verified, and contradictions

    @property
    def title(self) -> str:
        base, *candidates = self.comparison.labels
        return f"{', '.join(candidates)} against {base}"

    def conditions(self) -> list[tuple[str, list[str], bool]]:
        """Return name, values and whether they differ, for each condition."""
        stated = [stated_conditions(record) for record in self.records]
        values = {
            name: [conditions.get(name) for conditions in stated] for conditions in stated for name in conditions
        } | self.comparison.unequal
        return [
            (condition_name(name), [condition_text(name, value) for value in values], name in self.comparison.unequal)
            for name, values in values.items()
        ]


def compare_page(comparison: Comparison, records: Sequence[BenchRecord], notes: Sequence[str]) -> str:
    """Return the page as HTML."""
    pictures = [draw_records(records), draw_users(records)] if comparison.is_comparable else []
    return render_page(ComparePage(comparison, records, moment(time.time_ns()), pictures, notes), "compare_page.html")
