"""The page of a bench, made from bench.json and the run directories. It needs no scripts or other files.

The layout is bench_page.html.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compliance.report.curves import Mark, Panel, SystemCurve, draw_curves
from compliance.report.page import render_page
from compliance.report.pictures import Picture, distributions, open_queries, time_series
from runs.bench.bench_record import BenchRecord, BenchRun, read_bench_record
from runs.errors import HarnessError
from runs.files.writing import write_atomic
from runs.numbers.timeline import timeline
from runs.record.finished_run import FinishedRun
from runs.record.layout import BENCH_FILE, RunDir
from runs.record.requests_log import RequestTable, read_request_table
from runs.wording import moment

# Field of BenchRun, name, and field of Limits.
MEASURES = (("ttft", "TTFT", "ttft"), ("tpot", "TPOT", "tpot"), ("latency", "latency", "e2el"))


@dataclass
class BenchPage:
    """The content of the page."""

    record: BenchRecord
    made: str
    percentile: str  # percentile that the curves show: the percentile of the bench, or p50
    labels: list[str]  # names of the runs
    pictures: list[Picture]
    open: list[Picture] = field(default_factory=list)
    distributions: list[Picture] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # one sentence for each run that has no pictures
    notes: list[str] = field(default_factory=list)  # sentences below the title

    @property
    def title(self) -> str:
        return f"Bench {self.record.label}: {self.record.target}"

    def equal_loads(self) -> list[tuple[str, list[BenchRun]]]:
        """Return the runs by load."""
        by_load: dict[str, list[BenchRun]] = {}
        for run in self.record.runs:
            by_load.setdefault(f"{run.kind} {load_text(run)}", []).append(run)
        return list(by_load.items())


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
        pictures=[draw_records([record]), draw_users([record])],
    )
    _draw_runs(page, folder)
    return page


def load_text(run: BenchRun) -> str:
    """Return the load of a run: a share of the Offline rate, a rate, or a number of open queries."""
    if run.kind == "concurrency":
        return f"{run.concurrency} open"
    if run.share is not None:
        return f"{run.share:.0%}"
    return f"{run.asked_qps:.4g}/s" if run.asked_qps is not None else ""


def run_label(run: BenchRun) -> str:
    """Return the name of a run in tables."""
    kind = {"offline": "Offline", "server": run.scenario, "concurrency": "closed loop"}[run.kind]
    repetition = f", repetition {run.repetition}" if run.repetition > 1 else ""
    return f"{kind} {load_text(run)}".rstrip() + repetition + (", again" if run.again else "")


# Curves -------------------------------------------------------------------------------------------------------------


def draw_records(records: Sequence[BenchRecord]) -> Picture:
    """Draw TTFT and TPOT of benches against output tokens/s, and the latency if it has a limit.

    The benches must have equal percentiles and limits.

    Dotted line: Offline rate. Whisker: up to the early-stopping bound. Hollow: saturated. Diamond: repeated rate.
    """
    first = records[0]
    percentile = first.percentile or "p50"
    panels = []
    for measure, name, limit_name in MEASURES:
        limit = getattr(first.limits, limit_name, None)
        if measure == "latency" and limit is None:
            continue
        if first.percentile is None:  # limits apply only to the percentile of the bench
            limit = None
        is_only = len(records) == 1
        series = []
        for record in records:
            offline = next((run.output_tokens_per_s for run in record.runs if run.kind == "offline"), None)
            series.append(SystemCurve(list(_marks(record, measure, is_only)), _name(record, records), offline))
        panels.append(Panel(f"{percentile} {name}", "ms", series, [limit] if limit is not None else []))
    closed = any(run.kind == "concurrency" for bench in records for run in bench.runs)
    title = "Closed loop, measured by the harness" if closed else "Latency against throughput"
    return draw_curves(title, "output tokens/s", panels)


def draw_users(records: Sequence[BenchRecord]) -> Picture:
    """Draw output tokens/s per user against output tokens/s per accelerator (per system if unknown)."""
    has_accelerators = all(bench.accelerators for bench in records)
    series = []
    for record in records:
        marks = [
            Mark(
                run.output_tokens_per_s / ((record.accelerators if has_accelerators else None) or 1),
                1000 / run.tpot.p50,
                load_text(run) if len(records) == 1 and _is_first(run) else "",
                is_hollow=run.verdict == "saturated",
                is_joined=_is_first(run),
                shape="o" if _is_first(run) else "D",
            )
            for run in _by_load(record)
            if run.output_tokens_per_s and run.tpot is not None and run.tpot.p50 > 0
        ]
        series.append(SystemCurve(marks, _name(record, records)))
    load = f"output tokens/s per {'accelerator' if has_accelerators else 'system'}"
    panel = Panel("Tokens/s per user: 1,000 / median TPOT in ms", "tokens/s", series)
    return draw_curves("Speed of a user against throughput", load, [panel])


def _name(record: BenchRecord, records: Sequence[BenchRecord]) -> str:
    return record.label if len(records) > 1 else ""


def _by_load(record: BenchRecord) -> list[BenchRun]:
    return sorted(record.runs, key=lambda run: run.asked_qps or run.concurrency or 0)


def _is_first(run: BenchRun) -> bool:
    return run.repetition == 1 and not run.again


def _marks(record: BenchRecord, measure: str, has_labels: bool) -> Iterator[Mark]:
    for run in _by_load(record):
        latency = getattr(run, measure)
        value = None if latency is None else latency.at(record.percentile or "p50")
        if value is None or not run.output_tokens_per_s or run.kind == "offline":
            continue
        yield Mark(
            run.output_tokens_per_s,
            value,
            load_text(run) if has_labels and _is_first(run) else "",
            latency.bound if record.percentile else None,
            is_hollow=run.verdict == "saturated",
            is_joined=_is_first(run),
            shape="o" if _is_first(run) else "D",
        )


# Runs ---------------------------------------------------------------------------------------------------------------


def _draw_runs(page: BenchPage, folder: Path) -> None:
    """Draw open queries over time and distributions of TTFT from the files of the runs."""
    values_ns: dict[str, NDArray[np.int64]] = {}
    for run, label in zip(page.record.runs, page.labels, strict=True):
        if run.verdict == "failed":
            continue
        if run.duration_s is None:
            page.unread.append(f"{label}: not in the pictures: {'; '.join(run.reasons)}")
            continue
        try:
            requests, ttft_ns = _requests(FinishedRun(RunDir(folder / run.run_dir)))
        except HarnessError as error:
            page.unread.append(f"{label}: pictures are missing: {error.message}")
            continue
        page.open.append(open_queries(f"{label}: {run.verdict}", time_series(requests)))
        if ttft_ns is not None:
            values_ns[label] = ttft_ns
    if values_ns:
        limit = page.record.limits.ttft if page.record.limits else None
        page.distributions = [distributions("TTFT", values_ns, limit)]


def _requests(run: FinishedRun) -> tuple[RequestTable, NDArray[np.int64] | None]:
    """Return the requests of a run and their TTFT. In a closed loop, times begin when the engine gets the request."""
    requests = read_request_table(run.dir.requests)
    if (submit_ns := getattr(requests, "submit_ns", None)) is not None:
        return replace(requests, issue_ns=submit_ns), requests.first_token_ns - submit_ns
    return requests, timeline(run.detail, requests, run.trace).ttft_ns
