"""The page of a comparison: one HTML file without scripts and external files. The layout is compare_page.html."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from compliance.report.bench_page import draw_records, draw_users, headline, run_label
from compliance.report.page import render
from compliance.report.pictures import Picture
from runs.bench.bench_record import BenchRecord, BenchRun
from runs.bench.compare import Comparison
from runs.wording import moment


@dataclass(frozen=True)
class ComparePage:
    """The content of the page."""

    comparison: Comparison
    records: list[BenchRecord]
    made: str
    sentences: list[str]  # result of each bench
    pictures: list[Picture]  # empty if a condition differs
    notes: list[str]

    @property
    def title(self) -> str:
        return " against ".join(reversed(self.comparison.labels))

    def label(self, run: BenchRun) -> str:
        """Return the name of a run in the table."""
        return run_label(run)

    def run(self, record: BenchRecord, number: int) -> BenchRun:
        """Return a run by its number."""
        return next(run for run in record.runs if run.number == number)


def compare_page(comparison: Comparison, records: Sequence[BenchRecord], notes: Sequence[str]) -> str:
    """Return the page as HTML.

    Args:
        notes: Sentences about the attestations.
    """
    pictures = [draw_records(records), draw_users(records)] if comparison.is_comparable else []
    sentences = [f"{record.label}: {headline(record)}" for record in records]
    page = ComparePage(comparison, list(records), moment(time.time_ns()), sentences, pictures, list(notes))
    return render(page, "compare_page.html")
