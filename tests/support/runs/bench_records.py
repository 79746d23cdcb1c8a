"""Generated benches: a queue of a given speed, measured at the rates of a ladder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from runs.bench.bench_record import (
    BenchRecord,
    BenchRun,
    Best,
    ClientLateness,
    Conditions,
    Latency,
    Limits,
    OpenQueries,
    OutputTokens,
    write_bench,
)

LIMITS = Limits(ttft=2000, tpot=100)
TOKENS = 128


def latency(mean: float) -> Latency:
    return Latency(mean=mean, p50=mean, p90=1.6 * mean, p95=2 * mean, p99=3 * mean, max=4 * mean, bound=3.3 * mean)


def bench_run(
    number: int, qps: float | None, speed: float = 40.0, *, share: float | None = None, again: bool = False
) -> BenchRun:
    """Return a run of a system that completes at most `speed` queries/s; without a rate, the Offline run."""
    load = 1.0 if qps is None else qps / speed
    done = speed if qps is None else min(qps, speed)
    common: dict[str, Any] = {
        "number": number, "queries": 700, "duration_s": 60.0, "done_qps": done, "loadgen_qps": done,
        "output_tokens_per_s": done * TOKENS, "prompt_tokens_per_s": done * 1024, "cached_share": 0.0,
        "tokens": OutputTokens(server=700 * TOKENS, counted=700 * TOKENS), "contention": 0.01,
        "client": ClientLateness(issue_to_engine=0.3, read_to_loadgen=None, loop_lag=0.2), "seal_sha256": "0" * 64,
        "start_time_ns": 10**18 + number * 10**11,
    }  # fmt: skip
    if qps is None:
        return BenchRun(kind="offline", scenario="Offline", verdict="maximum", **common)
    ttft, tpot = 1000 * (0.05 + 0.02 * load / max(0.01, 1 - load)) * 40 / speed, 400 / speed * (1 + load**4)
    saturated = load > 0.98
    within = not saturated and 3 * ttft <= 2000 and 3 * tpot <= 100
    return BenchRun(
        kind="server", scenario="Server", asked_qps=qps, offered_qps=qps, share=share, again=again,
        verdict="saturated" if saturated else "within" if within else "outside",
        ttft=latency(ttft), tpot=latency(tpot), latency=latency(ttft + tpot * (TOKENS - 1)),
        open=OpenQueries(mean=qps * (ttft + tpot * TOKENS) / 1e3, max=100, growth=40.0 if saturated else 0.5),
        within_limits=0.999 if within else 0.31, drain_s=3.0, **common,
    )  # fmt: skip


def bench_record(
    label: str = "base", speed: float = 40.0, *, shares: tuple[float, ...] = (0.25, 0.5, 0.75, 0.9, 0.97), **fields: Any
) -> BenchRecord:
    """Return a complete bench with Offline, Server at shares of the speed, and the best rate repeated."""
    runs = [bench_run(1, None, speed)]
    runs += [bench_run(place, share * speed, speed, share=share) for place, share in enumerate(shares, start=2)]
    within = [run for run in runs if run.verdict == "within"]
    low = within[-1]
    above = [run.asked_qps for run in runs if run.verdict in ("outside", "saturated")]
    runs.append(bench_run(len(runs) + 1, low.asked_qps, speed, share=low.share, again=True))
    best = Best(low=low.asked_qps, high=above[0] if above else None, tokens_per_s=low.output_tokens_per_s,
                run=low.number, again=len(runs))  # fmt: skip
    defaults: dict[str, Any] = {
        "status": "complete", "label": label, "command": ["bench", "/models/llama", "--label", label],
        "target": "/models/llama", "limits": LIMITS, "percentile": "p99", "accelerators": 1, "runs": runs,
        "percentile_reason": "each run has at least 662 queries", "best": best,
        "conditions": Conditions(
            equal={"data": "synthetic", "input tokens": 1024, "output tokens": TOKENS, "scenario": "Server"},
            system={"engine": "vllm", "engine_options.dtype": "bfloat16", "engine_options.max_num_seqs": 256},
        ),
    }  # fmt: skip
    return BenchRecord(**defaults | fields)


def with_noise(record: BenchRecord, factor: Callable[[], float]) -> BenchRecord:
    """Return the record with the times of each run multiplied by a factor of its own."""

    def changed(run: BenchRun) -> BenchRun:
        by = factor()
        slower = {name: None if (measured := getattr(run, name)) is None else Latency(**{
            key: None if value is None else value * by for key, value in measured.model_dump().items()
        }) for name in ("ttft", "tpot", "latency")}  # fmt: skip
        if run.kind == "offline":
            slower |= {name: getattr(run, name) / by for name in ("done_qps", "output_tokens_per_s")}
        return run.model_copy(update=slower)

    return record.model_copy(update={"runs": [changed(run) for run in record.runs]})


def write_folder(folder: Path, record: BenchRecord, runs: Path | None = None) -> Path:
    """Write the directory of a bench. Its run directories are links to `runs`, if given."""
    folder.mkdir(parents=True, exist_ok=True)
    if runs is not None:
        placed = []
        for run in record.runs:
            name = f"runs/{run.number:02}-{run.kind}"
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).symlink_to(runs)
            placed.append(run.model_copy(update={"run_dir": name}))
        record = record.model_copy(update={"runs": placed})
    write_bench(folder, record)
    return folder
