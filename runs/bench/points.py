"""The points of a bench for other tools: points.csv, and JSON in the form of `vllm bench serve --save-result`."""

import csv
import io
import re
from datetime import datetime
from typing import Any

from runs.bench.bench_record import BenchRecord, BenchRun, Latency
from runs.record.requests_log import NO_TIME, RequestTable
from runs.wording import moment

POINTS = "points.csv"
_LATENCIES = ("ttft", "tpot", "itl", "latency")
_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max", "bound")
# vLLM's name of a latency, and of its statistics.
_VLLM_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "latency": "e2el"}
_VLLM_STATISTICS = {"mean": "mean", "std": "std", "p50": "median", "p90": "p90", "p95": "p95", "rank_p99": "p99"}
# Fields of BenchRun that have no column in `results --csv`.
_MORE = (
    *("number", "kind", "repetition", "again", "share", "concurrency", "loadgen_qps", "loadgen_verdict"),
    *("prompt_tokens_per_s", "prompt_tokens_mean", "output_tokens_mean", "short_responses", "within_limits"),
    *("cached_share", "contention", "errors"),
)


def points_csv(record: BenchRecord) -> str:
    """Return CSV (RFC 4180) with a header and a line per run. Columns of `results --csv` have its names; the rates are
    those of the bench, without fill and drain.
    """
    rows = [_row(record, run) for run in record.runs]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(_row(record, _EMPTY)))
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _row(record: BenchRecord, run: BenchRun) -> dict[str, Any]:
    parts: dict[str, Latency | None] = {name: getattr(run, name) for name in _LATENCIES}
    limits = record.limits
    return {
        "directory": run.run_dir,
        "started": moment(run.start_time_ns) if run.start_time_ns else None,
        "scenario": run.scenario,
        "outcome": run.verdict,
        "model": record.model or record.target,
        "accelerators": record.accelerators,
        "target_qps": run.asked_qps,
        "samples": run.queries,
        "samples_per_second": run.done_qps,
        "tokens_per_second": run.output_tokens_per_s,
        **{
            f"{name}_{statistic}_ms": part and getattr(part, statistic)
            for name, part in parts.items()
            for statistic in _STATISTICS
        },
        "ttft_limit_ms": limits and limits.ttft,
        "tpot_limit_ms": limits and limits.tpot,
        "latency_limit_ms": limits and limits.e2el,
        "offered_per_second": run.offered_qps,
        "mean_open": run.open and run.open.mean,
        "drain_s": run.drain_s,
        **{name: getattr(run, name) for name in _MORE},
        "reasons": "; ".join(run.reasons),
    }


_EMPTY = BenchRun(number=1, kind="server", scenario="Server", verdict="failed")  # a run with every column


def vllm_file_name(record: BenchRecord, run: BenchRun) -> str:
    """Return the name that vLLM gives the file of a run, with the run's number instead of the time."""
    bound = f"-concurrency{run.concurrency}" if run.concurrency else ""
    name = f"{record.label}-{_request_rate(run)}qps{bound}-{record.target.split('/')[-1]}-{run.number:02}.json"
    return re.sub(r"[^\w.+-]", "_", name)


def vllm_result(record: BenchRecord, run: BenchRun, requests: RequestTable | None = None) -> dict[str, Any]:
    """Return a run in the form of `vllm bench serve --save-result`, without the keys for which the record has no value.

    As in vLLM, rates are over the time to the last completion. Latencies of a Server run begin at the scheduled time.

    Args:
        requests: request log of the run, for the values of each request; None to omit them.
    """
    if run.duration_s is None or run.prompt_tokens_mean is None or run.output_tokens_mean is None:
        raise ValueError(f"run {run.number} has no numbers")
    started = datetime.fromtimestamp((run.start_time_ns or 0) / 1e9)
    prompt, output = (round(mean * run.queries) for mean in (run.prompt_tokens_mean, run.output_tokens_mean))
    per_second = run.queries / run.duration_s
    result: dict[str, Any] = {
        "date": started.strftime("%Y%m%d-%H%M%S"),
        "label": record.label,
        "model_id": record.model or record.target,
        "tokenizer_id": record.tokenizer or record.model or record.target,
        "num_prompts": run.queries + run.errors,
        **record.metadata,
        "request_rate": _request_rate(run),
        "burstiness": 1.0,
        "max_concurrency": run.concurrency,
        "duration": run.duration_s,
        "completed": run.queries,
        "failed": run.errors,
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "request_throughput": per_second,
        "request_goodput": None if run.within_limits is None else run.within_limits * per_second,
        "output_throughput": output / run.duration_s,
        "total_token_throughput": (prompt + output) / run.duration_s,
    }
    if run.open is not None:
        result["max_concurrent_requests"] = run.open.max
    for name, prefix in _VLLM_LATENCIES.items():
        if (latency := getattr(run, name)) is not None:
            statistics = {statistic: latency.at(percentile) for percentile, statistic in _VLLM_STATISTICS.items()}
            result |= {f"{their}_{prefix}_ms": value for their, value in statistics.items() if value is not None}
    return result if requests is None else result | _of_each_request(requests)


def _of_each_request(requests: RequestTable) -> dict[str, Any]:
    """Return the lists of `--save-detailed`, in s. Times begin when the query was issued, or sent in a closed loop."""
    begin_ns = requests.issue_ns if requests.submit_ns is None else requests.submit_ns
    lists: dict[str, Any] = {
        "input_lens": requests.prompt_tokens.tolist(),
        "output_lens": requests.output_tokens.tolist(),
        "start_times": (begin_ns / 1e9).tolist(),
        "latencies": ((requests.complete_ns - begin_ns) / 1e9).tolist(),
        "errors": [""] * len(requests),
    }
    if (requests.first_token_ns != NO_TIME).all():
        lists["ttfts"] = ((requests.first_token_ns - begin_ns) / 1e9).tolist()
    if requests.token_gaps is not None:
        lists["itls"] = [(gaps / 1e6).tolist() for gaps in requests.token_gaps.each()]
    return lists


def _request_rate(run: BenchRun) -> float | str:
    return "inf" if run.asked_qps is None else run.asked_qps
