"""The page of a comparison, with the layout in compare_page.html. It needs no other files."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from compliance.report.bench_charts import bench_charts
from compliance.report.bench_text import conclusion
from compliance.report.chart import Chart
from compliance.report.page import render_page
from compliance.report.settings import SettingRow, setting_row
from runs.bench.bench_comparison import (
    ComparedBench,
    ComparedQuantity,
    Comparison,
    condition_name,
    condition_text,
    stated_conditions,
)
from runs.bench.bench_record import BenchRecord, BenchRun
from runs.wording import four_digits, milliseconds, moment


class PairValues(NamedTuple):
    """Values of one quantity at an equal load, as text."""

    base: str
    candidate: str
    change: str


@dataclass(frozen=True)
class ComparePage:
    """The content of the page."""

    comparison: Comparison
    records: Sequence[BenchRecord]
    made: str
    charts: list[Chart]  # empty if the compared benches differ in a condition
    notes: Sequence[str]  # benches that are not verified, and contradictions

    @property
    def title(self) -> str:
        base, *candidates = self.comparison.labels
        return f"{', '.join(candidates)} against {base}"

    def conclusion(self, compared: ComparedBench) -> str:
        """Return the verdicts on one bench in one sentence."""
        measures = self.measures(compared)
        groups = ((verdict, [part for part in measures if part.verdict == verdict]) for verdict in _VERDICTS)
        texts = [f"{verdict}: {', '.join(map(_short, parts))}" for verdict, parts in groups if parts]
        return f"{compared.label} against {compared.base}: {'; '.join(texts) or 'no quantity can be compared'}."

    def measures(self, compared: ComparedBench) -> list[ComparedQuantity]:
        return [measure for measure in (compared.best, *compared.measures) if measure is not None]

    def remarks(self, compared: ComparedBench) -> list[str]:
        """Return the lines of a comparison that are not about one quantity of the table."""
        texts = {measure.text for measure in self.measures(compared)}
        return [line for line in compared.lines if line not in texts]

    def benches(self) -> list[tuple[str, str, str]]:
        """Return label, result and status of each bench."""
        return [(record.label, conclusion(record), record.status) for record in self.records]

    def pairs(self, compared: ComparedBench, place: int) -> list[tuple[str, list[PairValues]]]:
        """Return each equal load with its values in both benches.

        Args:
            place: Place of the compared bench in the records.
        """
        runs = [{run.number: run for run in self.records[number].runs} for number in (0, place)]
        return [
            (_load(pair["load"], *sides), list(_values(*sides)))
            for pair in compared.pairs
            for sides in [(runs[0][pair["base"]], runs[1][pair["other"]])]
        ]

    def changed(self, compared: ComparedBench) -> list[SettingRow]:
        """Return the facts of the system that changed."""
        rows = [(setting_row(name, old), setting_row(name, new)) for name, old, new in compared.changed]
        return [SettingRow(old.name, f"{_stated(old)} → {_stated(new)}") for old, new in rows]

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


_VERDICTS = ("faster", "slower", "not distinguishable")


def compare_page(comparison: Comparison, records: Sequence[BenchRecord], notes: Sequence[str]) -> str:
    """Return the page as HTML."""
    charts = bench_charts(records) if comparison.is_comparable else []
    return render_page(ComparePage(comparison, records, moment(time.time_ns()), charts, notes), "compare_page.html")


def _short(measure: ComparedQuantity) -> str:
    change = "" if measure.change is None else f" ({measure.change:+.1%})"
    return f"{measure.name.partition(' at ')[0]}{change}"


def _stated(row: SettingRow) -> str:
    return "not set" if row.value == "None" else row.value


def _load(load: str, base: BenchRun, candidate: BenchRun) -> str:
    is_saturated = "saturated" in (base.verdict, candidate.verdict)
    return f"{load}{', again' if base.again else ''}{' (saturated)' if is_saturated else ''}"


def _values(base: BenchRun, candidate: BenchRun) -> Iterator[PairValues]:
    """Yield tokens/s, mean TTFT and mean TPOT. Latencies of saturated runs are left out."""
    yield _pair(base.output_tokens_per_s, candidate.output_tokens_per_s, four_digits)
    is_steady = "saturated" not in (base.verdict, candidate.verdict)
    for name in ("ttft", "tpot"):
        sides: list[Any] = [getattr(run, name) if is_steady else None for run in (base, candidate)]
        before, after = (None if latency is None else latency.mean for latency in sides)
        yield _pair(before, after, milliseconds)


def _pair(base: float | None, candidate: float | None, text: Callable[[float], str]) -> PairValues:
    if base is None or candidate is None:
        return PairValues("–", "–", "–")
    return PairValues(text(base), text(candidate), f"{candidate / base - 1:+.1%}" if base else "–")
