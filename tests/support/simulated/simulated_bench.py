"""Benches of a simulated engine with slots and noise: the ladder of `bench` without processes."""

import heapq
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from runs.bench.bench_record import BenchRecord, BenchRun, Latency, Limits
from runs.bench.best_rate import best_rate
from runs.loadgen.early_stopping import estimate_percentile
from scenarios.bench.ladder import LadderPlan, LoadStep, PlannedBenchRun, next_run
from tests.support.runs.bench_records import bench_record

SLOTS, TOKENS, SERVICE_S, PREFILL_S = 8, 128, 0.2, 0.01
LIMITS = Limits(ttft=300, tpot=100)


def simulate_bench(
    label: str, *, speed: float, noise: float, rng: random.Random, of_run: float = 0.0, repeats: int = 1,
    like: Sequence[float | None] = (),
) -> BenchRecord:  # fmt: skip
    """Return a bench of an engine.

    Args:
        speed: Speed of the engine; 1 = SLOTS / SERVICE_S queries/s.
        noise: Standard deviation of the time of a query, as a share.
        of_run: Standard deviation of the speed of a run, as a share.
        like: Rates of another bench, with None for Offline.
    """
    shares = (0.25, 0.5, 0.75, 0.9)
    if like:
        steps = tuple(LoadStep("offline") if rate is None else LoadStep("server", qps=rate) for rate in like)
    else:
        steps = (LoadStep("offline"), *(LoadStep("server", share=share) for share in shares))
    plan = LadderPlan(steps, not like, 60.0, 180.0, 8, percentile="p99", repeats=repeats)
    runs: list[BenchRun] = []
    while (spec := next_run(plan, runs)) is not None:
        by = speed * rng.gauss(1, of_run) if of_run else speed
        runs.append(_measured(spec, by, noise, np.random.default_rng(rng.randrange(2**32))))
    return bench_record(label, runs=runs, best=best_rate(runs), limits=LIMITS)


def _measured(spec: PlannedBenchRun, speed: float, noise: float, rng: np.random.Generator) -> BenchRun:
    count = max(spec.queries, 800)
    factor = np.maximum(0.1, rng.normal(1, noise, count)) / speed
    arrived = np.zeros(count)
    if spec.asked_qps is not None:  # arrivals of LoadGen: one pattern, scaled
        arrived = np.cumsum(np.random.default_rng(7).exponential(1 / spec.asked_qps, count))
    free, first, done = [0.0] * SLOTS, np.empty(count), np.empty(count)
    for place in range(count):
        start = max(arrived[place], heapq.heappop(free))
        first[place] = start + PREFILL_S * factor[place]
        done[place] = start + SERVICE_S * factor[place]
        heapq.heappush(free, done[place])
    fields: dict[str, Any] = {
        "number": spec.number, "repetition": spec.repetition, "again": spec.again, "share": spec.share,
        "asked_qps": spec.asked_qps, "queries": count, "done_qps": count / done.max(),
    }  # fmt: skip
    fields["output_tokens_per_s"] = fields["done_qps"] * TOKENS
    if spec.kind == "offline":
        return BenchRun(kind="offline", scenario="Offline", verdict="maximum", **fields)
    ttft, tpot = (first - arrived) * 1e3, (done - first) * 1e3 / (TOKENS - 1)
    waiting = (first - arrived)[-count // 10 :].mean() * 1e3
    times = {"ttft": _latency(ttft), "tpot": _latency(tpot), "latency": _latency((done - arrived) * 1e3)}
    bound = times["ttft"].bound
    verdict = "saturated" if waiting > 1000 else "within" if bound is not None and bound <= 300 else "outside"
    return BenchRun(kind="server", scenario="Server", verdict=verdict, **times, **fields)


def _latency(values_ms: np.ndarray[Any, np.dtype[np.float64]]) -> Latency:
    ordered_ns = np.sort((values_ms * 1e6).astype(np.int64))
    bound_ns = estimate_percentile(ordered_ns, 0.99)
    at = {f"p{share}": float(np.percentile(values_ms, share)) for share in (50, 90, 95, 99)}
    return Latency(
        mean=float(values_ms.mean()), max=float(values_ms.max()), **at,
        bound=None if bound_ns is None else bound_ns / 1e6,
    )  # fmt: skip
