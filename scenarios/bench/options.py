"""The options of a bench, and the plan that follows from them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from runs.bench.bench_record import BenchRecord, Fact, Limits
from runs.benchmark import Benchmark, Scenario
from runs.benchmarks import BENCHMARKS, default_benchmark, submitted_benchmark
from runs.files.fields import option_field
from scenarios.bench.ladder import MAX_RUNS, LoadStep

if TYPE_CHECKING:  # `--help` must not import numpy
    from scenarios.bench.prompts import FileKind, PromptLengths, Prompts

# Options of `run` that a bench sets itself, or has in another form.
NOT_FOR_BENCHES = frozenset(
    {
        *("accuracy", "audit_conf", "batch_size", "concurrency", "dataset_path", "label", "max_new_tokens"),
        *("num_workers", "output_log_dir", "scenario", "target_qps", "total_sample_count", "user_conf"),
    }
)
DATA_NAMES: "dict[str, FileKind | None]" = {"random": None, "custom": "custom", "sharegpt": "sharegpt"}
# Options of other programs → what to type here.
REFUSED = {
    "burstiness": "remove --burstiness",
    "data": "give --dataset-path FILE, or --input-len 1024 --output-len 128",
    "extra_inputs": "give --extra-body JSON; --ignore-eos and --sampling-arg KEY=VALUE set the sampling",
    "output": "give --output-dir DIR, or -o DIR",
    "max_time_per_run": "give --duration 10m",
    "profile": "give --rates 25%,50% for rates, or --concurrency 1,8,32 for open queries",
    "rate_type": "give --rates 5,10, --rates inf, or --concurrency 1,8,32",
    "traffic_scenario": "give --input-len 100 --output-len 100, or a range such as --input-len 80-120",
}
# Options of other programs that a bench cannot have → the reason.
REASONS = {"burstiness": "LoadGen draws Poisson arrivals, and its schedule is official"}
# Options of other programs that have no effect → the reason.
IGNORED = {
    "batch_size": "the engine batches continuously",
    "metric_percentiles": "bench.json has p50, p90, p95 and p99",
    "num_warmups": "each bench warms up until two windows agree within 5%",
    "num_workers": "one event loop serves all queries",
    "percentile_metrics": "bench.json has TTFT, TPOT, ITL and latency",
    "streaming": "responses are streamed at each rate",
    "task": "a bench generates text",
    "warmup_request_count": "each bench warms up until two windows agree within 5%",
}
_LENGTHS_OF = re.compile(r"prompt_tokens\W+(\d+)\b.*output_tokens\W+(\d+)|\((\d+),\s*(\d+)\)")


def fix_of(name: str, value: str) -> str:
    """Return what to type for an option in REFUSED, with the values that were given."""
    if name in ("data", "traffic_scenario") and (match := _LENGTHS_OF.search(value)):
        prompt, output = (one for one in match.groups() if one)
        return f"give --input-len {prompt} --output-len {output}"
    return f"give --duration {value}" if name == "max_time_per_run" else REFUSED[name]


FLAGS = frozenset({"streaming"})  # options above without a value


def _field(text: str, metavar: str | None = None, group: str = "bench") -> Any:
    return option_field(None, text, group, metavar)


class BenchOptions(BaseModel):
    """The options of a bench as typed, so that all mistakes are found together."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    label: str | None = _field(
        "Name of the bench, for its directory and for `compare`. Default: the name of the model.", "NAME"
    )
    scenario: str | None = _field("LoadGen scenario: Server, Interactive or Offline. Default: Server.", "NAME")
    rates: str | None = _field(
        "Rates in queries/s (5,10), which are the only load then; or shares of the Offline rate (25%,50%), which is "
        "measured first. With inf: only the Offline run. Default: 25%,50%,75%,90% (Interactive: 25%,50%,70%,85%), and "
        "rates near the latency limits.",
        "LIST",
    )
    concurrency: str | None = _field(
        "Measure at numbers of open queries (1,8,32) instead of rates; one run per number.", "LIST"
    )
    max_concurrency: str | None = _field(
        "Maximum number of open queries at each rate. The latency includes the time that a query waits. Without "
        "--rates, same as --concurrency.",
        "LIST",
    )
    limits: str | None = _field(
        "Latency limits in ms, such as ttft=2000,tpot=100, or none. e2el limits the whole latency. Default: the limits "
        "of the benchmark for its own model; none for other models.",
        "LIST",
    )
    duration: str | None = _field(
        "Duration of a run: 60, 60s or 10m. Default: 60 s, or up to 180 s if a percentile requires more queries.",
        "TIME",
    )
    queries: str | None = _field("Minimum number of queries in a run.", "N")
    input_len: str | None = _field("Number of tokens in a prompt, or a range such as 512-1536. Default: 1024.", "N|N-N")
    output_len: str | None = _field("Number of output tokens, or a range such as 64-256. Default: 128.", "N|N-N")
    random_range_ratio: str | None = _field(
        "Draw lengths from N × (1 - R) to N × (1 + R), if --input-len or --output-len is a number N. Default: 0.", "R"
    )
    ignore_eos: bool | None = _field(
        "With prompts from a file: continue each output to its full length, as with synthetic prompts."
    )
    dataset_path: Path | None = _field(
        "File with prompts, or the dataset of the benchmark. A file with prompts contains JSON lines with `prompt` "
        "and, optionally, `output_tokens`. Default: synthetic prompts.",
        "FILE",
    )
    dataset_name: str | None = _field(
        f"Kind of the prompts: {', '.join(DATA_NAMES)}. Default: detected from the file.", "NAME"
    )
    tokenizer: str | None = _field("Tokenizer of the model on a server: folder or Hugging Face Hub ID.", "MODEL")
    repeats: str | None = _field("Number of times to measure all rates. Default: 1.", "N")
    max_runs: str | None = _field(f"Maximum number of runs in each repetition. Default: {MAX_RUNS}.", "N")
    like: str | None = _field("Repeat the rates, prompts, lengths and limits of a bench.", "BENCH")
    reset_cache: bool | None = _field("Require an empty prefix cache before each run. Not supported with a server.")
    seed: str | None = _field(
        "Random seed of synthetic prompts. Default: 0; with a server, the time of the start.", "N"
    )
    save_result: bool | None = _field("Write a JSON file for each run, with the keys of `vllm bench serve`.")
    save_detailed: bool | None = _field("Same as --save-result, with the lengths and times of each request.")
    result_filename: str | None = _field("Name of the file of --save-result. Default: <label>-<rate>qps.json.", "FILE")
    metadata: list[str] = option_field([], "Fact to write into bench.json. Repeatable.", "bench", "KEY=VALUE")
    output_log_dir: Path | None = _field("Directory of the bench. Default: output/bench-<label>.", "DIR")
    # Options of other programs
    goodput: str | None = _field("Same as --limits, in the form ttft:500 tpot:50 e2el:5000.", "LIST", "compat")
    ttft_sla_ms: str | None = _field("Same as --limits ttft=MS.", "MS", "compat")
    tpot_sla_ms: str | None = _field("Same as --limits tpot=MS.", "MS", "compat")
    model: str | None = _field(
        "Model folder or Hugging Face Hub ID; with a server, also the name of the model on the server.",
        "MODEL",
        "compat",
    )
    backend: str | None = _field("Same as --api-dialect.", "NAME", "compat")
    endpoint: str | None = _field("Path or URL of the server's API.", "PATH", "compat")
    host: str | None = _field("Host of the server. Default: localhost.", "HOST", "compat")
    port: str | None = _field("Port of the server. Default: 8000.", "N", "compat")
    resume: bool | None = _field("Ignored: the same command continues a bench.", None, "compat")


@dataclass(frozen=True)
class Bench:
    """The checked plan of a bench."""

    label: str
    target: str  # model or URL
    command: list[str]  # words of the command line
    folder: Path
    values: dict[str, Any]  # fields of RunConfig that all runs share
    scenario: Scenario  # scenario of the runs at rates; Offline: the Offline run alone
    steps: tuple[LoadStep, ...]
    is_adaptive: bool  # True if the user gave no loads, so that the bench refines the best rate
    limits: Limits | None
    prompts: "Prompts"
    duration_s: float
    is_duration_given: bool  # if False, a run may last longer to support a higher percentile
    queries: int | None  # minimum number of queries in a run
    output_len: "PromptLengths"
    exact_output: bool  # each response has the requested number of tokens
    repeats: int
    max_runs: int
    seed: int
    dataset_path: Path | None
    like: BenchRecord | None
    metadata: dict[str, str]
    save_result: bool
    save_detailed: bool
    result_filename: str | None
    notes: list[str]  # defaults, and options without effect

    def equal_conditions(self) -> dict[str, Fact]:
        """Return the options that must be equal in a comparison."""
        conditions = {"scenario": self.scenario, "duration_s": self.duration_s, "exact_output": self.exact_output}
        return {**conditions, **self.prompts.facts(), "limits": limits_text(self.limits)}

    def other_conditions(self) -> dict[str, Fact]:
        """Return the other options that --like and a continued bench reuse."""
        return {"seed": self.seed, "dataset_path": str(self.dataset_path) if self.dataset_path else None}


def limits_text(limits: Limits | None) -> str:
    limits_ms = limits.model_dump(exclude_none=True) if limits else {}
    return ",".join(f"{name}={value!r}" for name, value in limits_ms.items()) or "none"


def benchmark_of(values: Mapping[str, Any], scenario: Scenario) -> Benchmark:
    """Return the benchmark of a run in a scenario. The key of the run may be for another scenario."""
    key = values.get("lg_model_name")
    if key not in BENCHMARKS or scenario in BENCHMARKS[key].scenarios:
        return BENCHMARKS.get(key or "") or default_benchmark(scenario)
    return submitted_benchmark(BENCHMARKS[key].submission_name, scenario)
