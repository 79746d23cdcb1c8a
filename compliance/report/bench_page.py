"""The page of a bench, made from bench.json and the run directories. It needs no other files.

The layout is bench_page.html.
"""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compliance.report.bench_charts import MEASURES, bench_charts, load_text
from compliance.report.bench_text import KeyNumber, conclusion, key_numbers, repeated_loads, unchecked
from compliance.report.chart import Chart
from compliance.report.page import render_page
from compliance.report.remarks import Remark, grouped_remarks
from compliance.report.run_charts import distributions, open_queries
from compliance.report.series import Ints, time_series
from compliance.report.settings import SettingRow, setting_rows
from runs.bench.bench_record import BenchRecord, BenchRun, read_bench_record
from runs.bench.measure import bench_queries
from runs.errors import HarnessError
from runs.files.writing import write_atomic
from runs.record.finished_run import FinishedRun
from runs.record.layout import BENCH_FILE, RunDir
from runs.record.requests_log import read_request_table
from runs.wording import moment

REQUESTED = "engine_options."  # beginning of the names of options that the user set
_EFFECTIVE = "resolved."


@dataclass
class BenchPage:
    """The content of the page."""

    record: BenchRecord
    made: str
    percentile: str  # percentile that the charts show: the percentile of the bench, or p50
    labels: list[str]  # names of the runs
    charts: list[Chart]
    open: list[Chart] = field(default_factory=list)
    distributions: list[Chart] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # one sentence for each run that has no charts
    notes: list[str] = field(default_factory=list)  # sentences below the title

    @property
    def title(self) -> str:
        label = "" if self.record.label in self.record.target else f"{self.record.label}: "
        return f"Bench {label}{self.record.target}"

    @property
    def conclusion(self) -> str:
        return conclusion(self.record)

    @property
    def key_numbers(self) -> list[KeyNumber]:
        return key_numbers(self.record)

    @property
    def remarks(self) -> list[Remark]:
        return grouped_remarks(
            (label, reason) for label, run in zip(self.labels, self.record.runs, strict=True) for reason in run.reasons
        )

    @property
    def repeated_loads(self) -> list[tuple[str, str]]:
        return list(repeated_loads(self.record, self.labels))

    @property
    def unchecked(self) -> list[str]:
        return [*unchecked(self.record), *self.unread]

    def requested(self) -> list[SettingRow]:
        """Return the engine and the options that the user set."""
        system = self.record.conditions.system
        rows = [(name.removeprefix(REQUESTED), value) for name, value in system.items() if name.startswith(REQUESTED)]
        return setting_rows([("engine", system.get("engine")), *rows])

    def effective(self) -> list[SettingRow]:
        """Return all other facts of the system."""
        requested = {"engine", *(name for name in self.record.conditions.system if name.startswith(REQUESTED))}
        rows = [
            (name.removeprefix(_EFFECTIVE), value)
            for name, value in self.record.conditions.system.items()
            if name not in requested
        ]
        return setting_rows(rows)

    def equal(self) -> list[SettingRow]:
        """Return the conditions that must be equal in a comparison."""
        return setting_rows(
            (name.replace("loadgen.", ""), value) for name, value in self.record.conditions.equal.items()
        )

    def late(self, run: BenchRun, name: str) -> str:
        """Return why a delay of the client could explain a latency of a run; empty without such a reason."""
        return "; ".join(reason for reason in run.reasons if reason.startswith("client: ") and name in reason)

    def limit(self, name: str) -> float | None:
        return getattr(self.record.limits, name, None)

    def exceeds(self, value: Any, limit: float | None) -> bool:
        return limit is not None and value is not None and value > limit


def write_bench_page(folder: Path) -> Path:
    """Write report.html into the directory of a bench; return its path.

    Raises:
        InputError: If bench.json is missing or damaged.
    """
    path = RunDir(folder).page
    write_atomic(path, render_page(bench_page(folder, read_bench_record(folder / BENCH_FILE)), "bench_page.html"))
    return path


def bench_page(folder: Path, record: BenchRecord) -> BenchPage:
    """Return the content of the page."""
    page = BenchPage(
        record=record,
        made=moment(time.time_ns()),
        percentile=record.percentile or "p50",
        labels=[run_label(run) for run in record.runs],
        charts=bench_charts([record]),
    )
    _add_runs(page, folder)
    return page


def run_label(run: BenchRun) -> str:
    """Return the name of a run in tables."""
    kind = {"offline": "Offline", "server": run.scenario, "concurrency": "closed loop"}[run.kind]
    repetition = f", repetition {run.repetition}" if run.repetition > 1 else ""
    return f"{kind} {load_text(run)}".rstrip() + repetition + (", again" if run.again else "")


# Runs ---------------------------------------------------------------------------------------------------------------


def _add_runs(page: BenchPage, folder: Path) -> None:
    """Add open queries over time and distributions of latencies from the files of the runs."""
    values_ns: dict[str, dict[str, Ints]] = {name: {} for _, name, _ in MEASURES}
    for run, label in zip(page.record.runs, page.labels, strict=True):
        if run.verdict == "failed":
            continue
        if run.duration_s is None:
            page.unread.append(f"{label}: not in the charts: {'; '.join(run.reasons)}")
            continue
        try:
            finished = FinishedRun(RunDir(folder / run.run_dir))
            table = read_request_table(finished.dir.requests)
            queries = bench_queries(finished, table)
        except HarnessError as error:
            page.unread.append(f"{label}: charts are missing: {error.message}")
            continue
        begins = table if table.submit_ns is None else replace(table, issue_ns=table.submit_ns)
        page.open.append(open_queries(f"{label}: {run.verdict}", time_series(begins), "small"))
        for measure, name, _ in MEASURES:
            if (values := getattr(queries, f"{measure}_ns")) is not None:
                values_ns[name][label] = values
    page.distributions = [
        distributions(name, values_ns[name], page.limit(limit)) for _, name, limit in MEASURES if values_ns[name]
    ]
