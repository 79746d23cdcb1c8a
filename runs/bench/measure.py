"""The numbers of one run of a bench, from the files of its run directory alone."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runs.bench.bench_record import (
    MET,
    NEEDED,
    BenchRun,
    Latency,
    Limits,
    LoadKind,
    OpenQueries,
    RateVerdict,
    too_few_queries,
)
from runs.bench.circumstances import Circumstances
from runs.bench.saturation import growth_text, not_steady, signs_of_saturation, steady_offline_rate
from runs.errors import HarnessError, InputError
from runs.files.writing import sha256_of
from runs.loadgen.early_stopping import estimate_percentile, judge_latencies, late_queries_allowed
from runs.numbers.derive_result import derive_result
from runs.numbers.invalid import errors_found
from runs.numbers.load import ArrivalWindow, arrival_window
from runs.numbers.numbers import PERCENTILE_SHARES, shows
from runs.numbers.rederive import loadgen_statistics, time_per_output_token_ns
from runs.numbers.timeline import timeline
from runs.record.finished_run import FinishedRun, finished_run
from runs.record.layout import RunDir
from runs.record.requests_log import NO_TIME, RequestTable
from runs.wording import milliseconds

PERCENTILES = ("p99", "p95", "p90")  # percentiles of a bench, in order of preference

Times = NDArray[np.int64]


@dataclass(frozen=True)
class BenchQueries:
    """The queries of a run in order of arrival; times in ns."""

    arrived_ns: (
        Times  # since the first arrival; arrival = scheduled time (server) or sending of the query (concurrency)
    )
    late_issue_ns: Times | None  # from the scheduled time to the issue; None if LoadGen has no schedule
    latency_ns: Times  # from arrival to completion
    ttft_ns: Times | None
    prompt_tokens: Times
    output_tokens: Times
    is_streamed: bool = True  # False if tokens arrived together, so that the run has no TPOT

    def __len__(self) -> int:
        return len(self.latency_ns)

    @cached_property
    def tpot_ns(self) -> Times | None:
        """TPOT of the queries with multiple output tokens; None if the run has no times of first tokens."""
        has_later_tokens = self.output_tokens > 1
        if self.ttft_ns is None or not self.is_streamed or not has_later_tokens.any():
            return None
        return time_per_output_token_ns(
            self.latency_ns[has_later_tokens], self.ttft_ns[has_later_tokens], self.output_tokens[has_later_tokens]
        )

    @property
    def arrived_s(self) -> NDArray[np.float64]:
        return self.arrived_ns / 1e9

    @property
    def latency_s(self) -> NDArray[np.float64]:
        return self.latency_ns / 1e9


def supported_percentile(queries: int) -> str | None:
    """Return the highest percentile for which this many queries give a bound with 99% confidence."""
    return next(
        (percentile for percentile in PERCENTILES if late_queries_allowed(queries, PERCENTILE_SHARES[percentile]) >= 1),
        None,
    )


def measure_run(
    run_dir: Path,
    *,
    kind: LoadKind,
    limits: Limits | None,
    percentile: str | None,
    output_tokens: int | None,
    run: FinishedRun | None = None,
    **place: Any,
) -> BenchRun:
    """Return the numbers and the verdict of a run; without numbers, a failed run with the reason.

    Args:
        run_dir: directory of the run.
        kind: kind of the run.
        limits: latency limits; None for none.
        percentile: percentile of the bench that must be within the limits; None if the runs have too few queries.
        output_tokens: number of output tokens that each request asks for; None if responses may end before.
        run: the run, if its files were read before.
        place: `number`, `repetition`, `again`, `share`, `asked_qps` and `concurrency` of BenchRun, and `folder`, the
            directory of the bench.
    """
    try:
        measured = _measured(run or finished_run(RunDir(run_dir)), kind, limits, percentile, output_tokens)
    except HarnessError as error:
        return failed_run(run_dir, str(error), kind=kind, **place)
    return _run(run_dir, measured, kind=kind, **place)


def failed_run(run_dir: Path, reason: str, **place: Any) -> BenchRun:
    """Return a run without numbers. Arguments: see `measure_run`."""
    return _run(run_dir, {"verdict": "failed", "reasons": [reason]}, **place)


def _run(run_dir: Path, values: dict[str, Any], *, kind: LoadKind, folder: Path, **place: Any) -> BenchRun:
    scenario, name = "Server" if kind == "server" else "Offline", os.path.relpath(run_dir, folder)
    return BenchRun.model_validate({"scenario": scenario, "kind": kind, "run_dir": name, **place, **values})


def _measured(
    run: FinishedRun, kind: LoadKind, limits: Limits | None, percentile: str | None, requested_tokens: int | None
) -> dict[str, Any]:
    """Return the fields of a run, except the fields that place it in the bench.

    Raises:
        HarnessError: If a file is missing or damaged, or LoadGen has no numbers.
    """
    detail, manifest, result = run.detail, run.manifest, derive_result(run)
    if manifest is None or run.requests is None or result.reported is None:
        raise InputError(
            f"{run.dir.root}: the manifest, the request log or the numbers of LoadGen are missing", "repeat the run"
        )
    queries = bench_queries(run, run.requests)
    late_ms = None if queries.late_issue_ns is None else loadgen_statistics(queries.late_issue_ns).p99 / 1e6
    circumstances = Circumstances.of(manifest, queries.prompt_tokens, queries.output_tokens, requested_tokens, late_ms)
    queries = replace(queries, is_streamed=circumstances.without_tpot is None)
    window = None if kind == "offline" else arrival_window(queries.arrived_s, queries.latency_s)
    values_ns = {"ttft": queries.ttft_ns, "tpot": queries.tpot_ns, "latency": queries.latency_ns}
    latencies = {
        name: _latency(latencies_ns, percentile) for name, latencies_ns in values_ns.items() if latencies_ns is not None
    }
    if result.disagreements:  # The run has ended with exit code 4 for the same reason.
        reasons = [f"refused: {disagreement}" for disagreement in result.disagreements]
        return {"verdict": "failed", "reasons": reasons, "queries": len(queries), "errors": detail.error_count}
    verdict, reasons = _verdict(kind, queries, window, limits, percentile)
    if late := list(circumstances.late_client(latencies)):
        is_explained = verdict == "outside" and (
            _judge_limits(queries, limits, percentile, circumstances.delays_ms())[0] != "outside"
        )
        if verdict in MET or is_explained:
            verdict, reasons = "unclear", late + reasons
        else:
            reasons += late
    if (doubt := circumstances.doubtful_tokens) is not None:
        reasons.append(doubt)
        verdict = "unclear" if verdict in (*MET, "outside") else verdict
    if detail.error_count:
        reasons.append(f"LoadGen: {errors_found(detail)}")
    elif verdict in MET and detail.validity != "VALID":
        reasons += [f"LoadGen: {reason.partition(': set ')[0]}" for reason in result.reasons]  # without the advice
    reasons += filter(
        None, (circumstances.without_tpot if queries.ttft_ns is not None else None, *circumstances.distortions())
    )
    return {
        "scenario": run.scenario,
        "verdict": verdict,
        "reasons": reasons,
        "queries": len(queries),
        "errors": detail.error_count,
        **_rates(queries, window, is_offered=kind == "server"),
        "loadgen_qps": result.reported.samples_per_second,
        "loadgen_verdict": detail.validity,
        "prompt_tokens_mean": float(queries.prompt_tokens.mean()),
        "output_tokens_mean": float(queries.output_tokens.mean()),
        **latencies,
        **_token_gaps(run.requests),
        "within_limits": None if kind == "offline" else _share_within(queries, limits),
        **circumstances.fields(),
        "start_time_ns": manifest.start_time_ns,
        "seal_sha256": sha256_of(run.dir.seal) if run.dir.seal.is_file() else None,
    }


def bench_queries(run: FinishedRun, table: RequestTable) -> BenchQueries:
    """Return the queries of a run. In a closed loop, the times begin when the engine gets the query.

    Args:
        table: The request log of the run.
    """
    if table.submit_ns is not None:
        return _closed_loop(table, table.submit_ns)
    times = timeline(run.detail, table, run.trace)
    return BenchQueries(
        arrived_ns=times.scheduled_ns - times.scheduled_ns[0],
        late_issue_ns=times.issued_ns - times.scheduled_ns if run.detail.scenario == "Server" else None,
        latency_ns=times.latency_ns,
        ttft_ns=times.ttft_ns,
        prompt_tokens=table.prompt_tokens,
        output_tokens=table.output_tokens,
    )


def _token_gaps(table: RequestTable) -> dict[str, Any]:
    """Return the times between the parts of the responses, and the mean number of tokens in a part."""
    gaps = table.token_gaps
    if gaps is None or not len(gaps):
        return {}
    later_tokens = int(table.output_tokens.sum()) - len(table)
    return {"itl": _latency(gaps.values_us.astype(np.int64) * 1_000, None), "tokens_per_part": later_tokens / len(gaps)}


def _closed_loop(table: RequestTable, submit_ns: Times) -> BenchQueries:
    """Return the queries of a closed loop, timed by the harness from the sending of a query."""
    order = np.argsort(submit_ns, kind="stable")
    begin_ns, first_ns = submit_ns[order], table.first_token_ns[order]
    return BenchQueries(
        arrived_ns=begin_ns - begin_ns[0],
        late_issue_ns=None,
        latency_ns=table.complete_ns[order] - begin_ns,
        ttft_ns=first_ns - begin_ns if (first_ns != NO_TIME).all() else None,
        prompt_tokens=table.prompt_tokens[order],
        output_tokens=table.output_tokens[order],
    )


def _rates(queries: BenchQueries, window: ArrivalWindow | None, *, is_offered: bool) -> dict[str, Any]:
    """Return rates, durations and open queries."""
    completed_s = queries.arrived_s + queries.latency_s
    fields: dict[str, Any] = {"duration_s": float(completed_s.max())}
    if window is None:  # all queries arrived at the same time
        rate = steady_offline_rate(np.sort(completed_s))
        counted = np.ones(len(queries), dtype=bool)
    else:
        counted = (completed_s > window.begin_s) & (completed_s <= window.end_s)
        rate = float(counted.sum()) / (window.end_s - window.begin_s)
        fields |= {
            "offered_qps": (len(queries) - 1) / window.end_s if is_offered else None,
            "drain_s": max(0.0, fields["duration_s"] - window.end_s),
            "open": OpenQueries(mean=window.mean_open, max=window.most_open, growth=window.growth),
        }
    fields["done_qps"] = rate
    for name, tokens in (("prompt", queries.prompt_tokens), ("output", queries.output_tokens)):
        fields[f"{name}_tokens_per_s"] = rate * float(tokens[counted].mean()) if counted.any() else 0.0
    return fields


def _latency(values_ns: Times, percentile: str | None) -> Latency:
    numbers, count = loadgen_statistics(values_ns), len(values_ns)
    share = PERCENTILE_SHARES.get(percentile or "")
    percentiles = {name: getattr(numbers, name) if shows(name, count) else None for name in PERCENTILES}
    percentiles |= {"mean": float(values_ns.mean()), "p50": numbers.p50, "max": numbers.max}
    percentiles |= {"std": float(values_ns.std()), "rank_p99": numbers.p99}
    percentiles["bound"] = estimate_percentile(np.sort(values_ns), share) if share else None
    return Latency.model_validate({name: None if ns is None else ns / 1e6 for name, ns in percentiles.items()})


def _limited(queries: BenchQueries, limits: Limits | None) -> list[tuple[str, Times | None, int]]:
    """Return name, values and limit in ns of each latency with a limit; None for values that the run does not have."""
    if limits is None:
        return []
    parts = (
        ("TTFT", queries.ttft_ns, limits.ttft),
        ("TPOT", queries.tpot_ns, limits.tpot),
        ("latency", queries.latency_ns, limits.e2el),
    )
    return [(name, values_ns, round(ms * 1e6)) for name, values_ns, ms in parts if ms is not None]


def _share_within(queries: BenchQueries, limits: Limits | None) -> float | None:
    """Return the share of the queries that met all limits; None if it is unknown. A query with one output token has no
    TPOT.
    """
    limited = _limited(queries, limits)
    if not limited:
        return None
    met = np.ones(len(queries), dtype=bool)
    for _, values_ns, limit_ns in limited:
        if values_ns is None:
            return None
        met[queries.output_tokens > 1 if len(values_ns) < len(met) else slice(None)] &= values_ns <= limit_ns
    return float(met.mean())


def _judge_limits(
    queries: BenchQueries, limits: Limits | None, percentile: str | None, delays_ms: Mapping[str, float] | None = None
) -> tuple[RateVerdict, list[str]]:
    """Return the verdict on the limits, and the reasons. A limit that cannot be checked is not met.

    Args:
        delays_ms: delay by which each latency may exceed its limit.
    """
    exceeded, unchecked = [], []
    for name, values_ns, limit_ns in _limited(queries, limits):
        count = 0 if values_ns is None else len(values_ns)
        if values_ns is None:
            unchecked.append(f"limits not checked: the responses have no {name}")
        elif percentile is None and count >= min(NEEDED.values()):
            unchecked.append("limits not checked: another run has too few queries for a percentile")
        elif percentile is None or late_queries_allowed(count, PERCENTILE_SHARES[percentile]) < 0:
            unchecked.append(too_few_queries(count, percentile))
        else:
            later_ns = limit_ns + round(1e6 * (delays_ms or {}).get(name, 0.0))
            judged = judge_latencies(values_ns, later_ns, PERCENTILE_SHARES[percentile])
            if not judged.met:
                value = milliseconds(getattr(loadgen_statistics(values_ns), percentile) / 1e6)
                exceeded.append(f"{percentile} {name} {value} ms, limit {milliseconds(limit_ns / 1e6)} ms: {judged}")
    if limits is None:
        return "measured", []
    return "outside" if exceeded else "unchecked" if unchecked else "within", [*exceeded, *dict.fromkeys(unchecked)]


def _verdict(
    kind: LoadKind, queries: BenchQueries, window: ArrivalWindow | None, limits: Limits | None, percentile: str | None
) -> tuple[RateVerdict, list[str]]:
    """Return the verdict on saturation and limits, and the reasons."""
    if kind == "offline":
        return "maximum", []
    verdict, reasons = _judge_limits(queries, limits, percentile)
    if kind != "server" or window is None:
        return verdict, reasons
    if window.is_saturated:
        why = (
            growth_text(window)
            if window.grew
            else "after the last arrival, the run needed more than 3 median latencies to finish"
        )
        return "saturated", [f"{why}: the latency depends on the duration of the run", *reasons]
    if sign := signs_of_saturation(window):
        return (verdict, [*reasons, sign]) if verdict == "outside" else ("unclear", [sign, *reasons])
    if (reason := not_steady(window, queries.arrived_s, queries.latency_s)) is not None:
        reasons.append(reason)
    return verdict, reasons
