"""The queries of each system in one block, from the files of its run directory."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runs.bench.bench_record import Limits
from runs.errors import InputError
from runs.numbers.load import arrival_window
from runs.numbers.timeline import timeline
from runs.record.finished_run import FinishedRun, finished_run
from runs.record.layout import RunDir
from runs.record.requests_log import NO_TIME, RequestTable

QueryValues = NDArray[np.float64]
_SHORTEST_S = 1e-6  # latencies of 0 have no logarithm


@dataclass(frozen=True)
class SystemQueries:
    """The queries of one system in one block, in the order of issue. Times are in s from the first arrival."""

    arrived_s: QueryValues
    latency_s: QueryValues
    ttft_s: QueryValues | None  # None without first tokens
    tpot_s: QueryValues | None  # 0 for a response of one token
    output_tokens: QueryValues
    late_s: float = 0.0  # mean delay of the client before a query is issued
    start_s: float = 0.0  # time of the first arrival of the block, from the epoch

    def __len__(self) -> int:
        return len(self.latency_s)

    @property
    def done_s(self) -> QueryValues:
        return self.arrived_s + self.latency_s

    @property
    def is_saturated(self) -> bool:
        """True if the system did not keep up with the arrivals."""
        arrived_s = self.arrived_s - self.arrived_s[0]
        window = arrival_window(arrived_s, self.latency_s)
        return window is not None and window.is_saturated

    def within(self, limits: Limits) -> int | None:
        """Return the number of queries whose latencies are all within their limits; None if one was not measured."""
        is_within = np.ones(len(self), dtype=np.bool_)
        for latency, limit_ms in (("ttft", limits.ttft), ("tpot", limits.tpot), ("latency", limits.e2el)):
            if limit_ms is not None:
                times_s = self.times_s(latency)
                if times_s is None:
                    return None
                is_within &= times_s <= limit_ms / 1e3
        return int(is_within.sum())

    def times_s(self, latency: str) -> QueryValues | None:
        """Return the times of a latency: ttft, tpot or latency."""
        values: QueryValues | None = getattr(self, f"{latency}_s")
        return None if values is None else np.maximum(values, _SHORTEST_S)


def read_block(run_dir: Path, systems: int) -> list[SystemQueries]:
    """Return the queries of each system that a run measured.

    Args:
        systems: Number of systems that the run measured.

    Raises:
        HarnessError: If a file is missing or damaged.
    """
    run = finished_run(RunDir(run_dir))
    if run.requests is None or not len(run.requests):
        raise InputError(f"{run_dir}: the request log is missing", "repeat the run")
    table = run.requests
    queries = _closed(table, table.submit_ns) if table.submit_ns is not None else _timed(run, table)
    if systems == 1:
        return [queries]
    if table.replica is None:
        raise InputError(f"{run_dir}: the request log does not name the system of each query", "repeat the run")
    return [_chosen(queries, table.replica == system) for system in range(systems)]


def _timed(run: FinishedRun, table: RequestTable) -> SystemQueries:
    times = timeline(run.detail, table, run.trace)
    late_ns = times.issued_ns - times.scheduled_ns if run.detail.scenario == "Server" else np.zeros(1)
    ttft_s = None if times.ttft_ns is None else times.ttft_ns / 1e9
    return _queries_of(
        times.scheduled_ns / 1e9, times.latency_ns / 1e9, ttft_s, table, float(late_ns.mean()) / 1e9,
        int(table.issue_ns.min()) / 1e9,
    )  # fmt: skip


def _closed(table: RequestTable, submit_ns: NDArray[np.int64]) -> SystemQueries:
    """Return the queries of a closed loop, timed from the sending of a query."""
    has_first = bool((table.first_token_ns != NO_TIME).all())
    ttft_s = (table.first_token_ns - submit_ns) / 1e9 if has_first else None
    start_ns = int(submit_ns.min())
    latency_s = (table.complete_ns - submit_ns) / 1e9
    return _queries_of((submit_ns - start_ns) / 1e9, latency_s, ttft_s, table, 0.0, start_ns / 1e9)


def _queries_of(
    arrived_s: QueryValues,
    latency_s: QueryValues,
    ttft_s: QueryValues | None,
    table: RequestTable,
    late_s: float,
    start_s: float,
) -> SystemQueries:
    later_tokens = np.maximum(table.output_tokens - 1, 1)
    tpot_s = None if ttft_s is None else np.where(table.output_tokens > 1, latency_s - ttft_s, 0.0) / later_tokens
    if tpot_s is not None and float(np.median(tpot_s)) <= _SHORTEST_S:
        tpot_s = None  # the tokens arrived together
    tokens = table.output_tokens.astype(np.float64)
    return SystemQueries(arrived_s, latency_s, ttft_s, tpot_s, tokens, late_s, start_s)


def _chosen(queries: SystemQueries, chosen: NDArray[np.bool_]) -> SystemQueries:
    return SystemQueries(
        queries.arrived_s[chosen],
        queries.latency_s[chosen],
        None if queries.ttft_s is None else queries.ttft_s[chosen],
        None if queries.tpot_s is None else queries.tpot_s[chosen],
        queries.output_tokens[chosen],
        queries.late_s,
        queries.start_s,
    )
