"""The page of a bench: one HTML file without scripts and external files, from bench.json and the run directories.

The layout is bench_page.html.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from compliance.report.curves import Mark, Panel, Series, draw_curves
from compliance.report.page import render
from compliance.report.pictures import Picture, distributions, open_queries, time_series
from runs.bench.bench_record import BENCH_FILE, BenchRecord, BenchRun, read_bench
from runs.errors import HarnessError
from runs.files.writing import write_atomic
from runs.numbers.timeline import timeline
from runs.record.finished_run import FinishedRun
from runs.record.layout import RunDir
from runs.record.requests_log import RequestTable, read_requests
from runs.wording import counted, milliseconds, moment

MEASURES = (("ttft", "TTFT"), ("tpot", "TPOT"))


@dataclass
class BenchPage:
    """The content of the page."""

    record: BenchRecord
    made: str
    percentile: str  # percentile of the curves: that of the bench, or p50
    labels: list[str]  # names of the runs
    sentence: str
    repetitions: list[tuple[str, str]]  # name and values of each load that was measured several times
    pictures: list[Picture]
    open: list[Picture] = field(default_factory=list)
    distributions: list[Picture] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # what could not be checked

    @property
    def title(self) -> str:
        return f"Bench {self.record.label}: {self.record.target}"

    @staticmethod
    def client_reasons(run: BenchRun, name: str) -> list[str]:
        """Return the reasons by which a delay of the client could explain a run's TTFT or TPOT."""
        return [reason for reason in run.reasons if reason.startswith("client: ") and name in reason]


def write_bench_page(folder: Path) -> Path:
    """Write report.html into the directory of a bench; return its path.

    Raises:
        InputError: If bench.json is missing or damaged.
    """
    path = RunDir(folder).page
    write_atomic(path, render(bench_page(folder, read_bench(folder / BENCH_FILE)), "bench_page.html"))
    return path


def bench_page(folder: Path, record: BenchRecord) -> BenchPage:
    """Return the content of the page."""
    page = BenchPage(
        record=record,
        made=moment(time.time_ns()),
        percentile=record.percentile or "p50",
        labels=[run_label(run) for run in record.runs],
        sentence=headline(record),
        repetitions=list(_repetitions(record.runs)),
        pictures=[draw_records([record]), draw_users([record])],
        unknown=list(_unknown(record)),
    )
    _draw_runs(page, folder)
    return page


def load_of(run: BenchRun) -> str:
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
    return f"{kind} {load_of(run)}".rstrip() + repetition + (", again" if run.again else "")


def headline(record: BenchRecord) -> str:
    """Return the result of a bench in one or two sentences."""
    best, limits = record.best, f" ({record.limits})" if record.limits else ""
    what = f"rate within the limits{limits}" if record.limits else "rate without saturation"
    if best is not None and best.low is not None:
        tokens = f", {best.tokens_per_s:,.0f} output tokens/s" if best.tokens_per_s else ""
        above = f"{best.high:.4g} queries/s is too high" if best.high is not None else "no higher rate was measured"
        return f"Highest {what}: {best.low:.4g} queries/s{tokens}; {above}."
    rates = [run.asked_qps for run in record.runs if run.asked_qps is not None and run.verdict != "failed"]
    if rates:
        return f"No {what} was found; lowest measured rate: {min(rates):.4g} queries/s."
    tokens_of = {run_label(run): run.output_tokens_per_s for run in record.runs if run.output_tokens_per_s}
    if not tokens_of:
        return "No run has numbers."
    name = max(tokens_of, key=lambda one: tokens_of[one] or 0)
    return f"Highest throughput: {tokens_of[name]:,.0f} output tokens/s ({name})."


# Curves -------------------------------------------------------------------------------------------------------------


def draw_records(records: Sequence[BenchRecord]) -> Picture:
    """Draw TTFT and TPOT of benches with equal percentiles and limits against output tokens/s.

    Dotted line: Offline rate. Whisker: up to the early-stopping bound. Hollow: saturated. Diamond: repeated rate.
    """
    first = records[0]
    percentile = first.percentile or "p50"
    panels = []
    for measure, name in MEASURES:
        limit = getattr(first.limits, measure, None)
        series = [Series(list(_marks(one, measure, len(records) == 1)), _name(one, records), _offline(one))
                  for one in records]  # fmt: skip
        panels.append(Panel(f"{percentile} {name}", "ms", series, [limit] if limit is not None else []))
    closed = any(run.kind == "concurrency" for one in records for run in one.runs)
    title = "Closed loop, measured by the harness" if closed else "Latency against throughput"
    return draw_curves(title, "output tokens/s", panels)


def draw_users(records: Sequence[BenchRecord]) -> Picture:
    """Draw output tokens/s per user against output tokens/s per accelerator, or of the system if the number of
    accelerators is unknown."""
    known = all(one.accelerators for one in records)
    series = []
    for one in records:
        marks = [
            Mark(
                run.output_tokens_per_s / ((one.accelerators if known else None) or 1),
                1000 / run.tpot.p50,
                load_of(run) if len(records) == 1 and _is_first(run) else "",
                is_hollow=run.verdict == "saturated",
                is_joined=_is_first(run),
            )
            for run in _by_load(one)
            if run.output_tokens_per_s and run.tpot is not None and run.tpot.p50 > 0
        ]
        series.append(Series(marks, _name(one, records)))
    load = f"output tokens/s per {'accelerator' if known else 'system'}"
    panel = Panel("Tokens/s per user: 1,000 / median TPOT in ms", "tokens/s", series)
    return draw_curves("Speed of a user against throughput", load, [panel])


def _name(record: BenchRecord, records: Sequence[BenchRecord]) -> str:
    return record.label if len(records) > 1 else ""


def _offline(record: BenchRecord) -> float | None:
    return next((run.output_tokens_per_s for run in record.runs if run.kind == "offline"), None)


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
            load_of(run) if has_labels and _is_first(run) else "",
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
        try:
            requests, ttft_ns = _requests(FinishedRun(RunDir(folder / run.run_dir)))
        except HarnessError as error:
            page.unknown.append(f"{label}: pictures are missing: {error.message}")
            continue
        page.open.append(open_queries(f"{label}: {run.verdict}", time_series(requests)))
        if ttft_ns is not None:
            values_ns[label] = ttft_ns
    if values_ns:
        limit = page.record.limits.ttft if page.record.limits else None
        page.distributions = [distributions("TTFT", values_ns, limit)]


def _requests(run: FinishedRun) -> tuple[RequestTable, NDArray[np.int64] | None]:
    """Return the requests of a run and their TTFT. In a closed loop, times count from the handover to the engine."""
    requests = read_requests(run.dir.requests)
    if (submit_ns := getattr(requests, "submit_ns", None)) is not None:
        return replace(requests, issue_ns=submit_ns), requests.first_token_ns - submit_ns
    return requests, timeline(run.detail, requests, run.trace).ttft_ns


def _repetitions(runs: Sequence[BenchRun]) -> Iterator[tuple[str, str]]:
    """Yield loads that were measured several times, with the median and the range of tokens/s, TTFT and TPOT."""
    equal: dict[tuple[str, str], list[BenchRun]] = {}
    for run in runs:
        equal.setdefault((run.kind, load_of(run)), []).append(run)
    for several in equal.values():
        if len(several) < 2:
            continue
        parts = [
            ("output tokens/s", [run.output_tokens_per_s for run in several]),
            *((f"mean {name}, ms", [one.mean if (one := getattr(run, measure)) else None for run in several])
              for measure, name in MEASURES),
        ]  # fmt: skip
        texts = (
            f"{what} {milliseconds(median(there))} ({milliseconds(min(there))} to {milliseconds(max(there))})"
            for what, values in parts
            if len(there := [value for value in values if value is not None]) == len(several)
        )
        yield f"{run_label(several[0])}, {len(several)} runs", "; ".join(texts)


# What is unknown of a run → condition.
_MISSING: tuple[tuple[str, Callable[[BenchRun], object]], ...] = (
    ("share of prompt tokens from a cache: unknown", lambda run: run.cached_share is None),
    ("output tokens: estimated without a tokenizer", lambda run: run.tokens and run.tokens.estimated),
    (
        "delays of the client: not measured",
        lambda run: run.kind == "server" and (run.client is None or run.client.issue_to_engine is None),
    ),
    ("processor time of other processes: not measured", lambda run: run.contention is None),
    ("attestations: missing", lambda run: run.seal_sha256 is None),
)


def _unknown(record: BenchRecord) -> Iterator[str]:
    """Yield sentences about what could not be checked."""
    done = [run for run in record.runs if run.verdict != "failed"]
    if record.percentile is None:
        yield f"percentiles: {record.percentile_reason}"
    if record.limits is None:
        yield "limits: the scenario has none for this model; give --limits ttft=MS,tpot=MS"
    for what, is_missing in _MISSING:
        if count := sum(bool(is_missing(run)) for run in done):
            yield f"{what} ({counted(count, 'run')})"
    if "://" in record.target and any(run.tokens and run.tokens.server is None for run in done):
        yield "output tokens: the server does not count them, so they were counted by the client only"
    if not any(run.again or run.repetition > 1 for run in record.runs):
        yield "noise: no load was measured twice; give --repeats 3"
    if record.accelerators is None:
        yield "tokens/s per accelerator: the number of accelerators is unknown"
