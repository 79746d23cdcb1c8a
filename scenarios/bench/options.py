"""The options of a bench: the schema of its command line."""

from pathlib import Path
from typing import Literal, get_args

from pydantic import ConfigDict, field_validator

from runs.files.fields import options_in
from scenarios.bench.ladder import MAX_RUNS
from scenarios.bench.option_types import (
    MAX_COUNT,
    ConcurrencySteps,
    DurationS,
    LatencyLimits,
    LengthRange,
    OutputRange,
    RateSteps,
)
from scenarios.checked_options import CheckedOptions

# Options of `run` that a bench sets itself, or has in another form.
NOT_FOR_BENCHES = frozenset(
    {
        *("accuracy", "audit_conf", "batch_size", "concurrency", "dataset_path", "label", "max_new_tokens"),
        *("num_workers", "output_log_dir", "scenario", "target_qps", "total_sample_count", "user_conf"),
    }
)
BenchScenario = Literal["Server", "Interactive", "Offline"]
PromptsName = Literal["random", "custom", "sharegpt"]
_bench, _compat = map(options_in, ("bench", "compat"))
_COUNT = {"ge": 1, "le": MAX_COUNT}


class BenchOptions(CheckedOptions):
    """The options of a bench."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    label: str | None = _bench(
        "Name of the bench, for its directory and for `compare`. Default: the name of the model.", "NAME"
    )
    scenario: BenchScenario = _bench(
        "LoadGen scenario: Server, Interactive or Offline. Default: Server.", "NAME", "Server"
    )
    rates: RateSteps | None = _bench(
        "Rates in queries/s (5,10), which are the only load then; or shares of the Offline rate (25%,50%), which is "
        "measured first. With inf: only the Offline run. Default: 25%,50%,75%,90% (Interactive: 25%,50%,70%,85%), and "
        "rates near the latency limits.",
        "LIST",
        example="5,10,20 or 25%,50%",
    )
    concurrency: ConcurrencySteps | None = _bench(
        "Measure at numbers of open queries (1,8,32) instead of rates; one run per number.", "LIST", example="1,8,32"
    )
    max_concurrency: ConcurrencySteps | None = _bench(
        "Maximum number of open queries at each rate. The latency includes the time that a query waits. Without "
        "--rates, same as --concurrency.",
        "LIST",
        example="32",
    )
    limits: LatencyLimits | None = _bench(
        "Latency limits in ms, such as ttft=2000,tpot=100, or none. e2el limits the whole latency. Default: the limits "
        "of the benchmark for its own model; none for other models.",
        "LIST",
        example="ttft=2000,tpot=100",
    )
    duration: DurationS = _bench(
        "Duration of a run: 60, 60s or 10m. Default: 60 s, or up to 180 s if a percentile requires more queries.",
        "TIME",
        60.0,
        example="60s",
    )
    queries: int | None = _bench("Minimum number of queries in a run.", "N", **_COUNT)
    input_len: LengthRange | None = _bench(
        "Number of tokens in a prompt, or a range such as 512-1536. Default: 1024.", "N|N-N", example="1024"
    )
    output_len: OutputRange | None = _bench(
        "Number of output tokens, or a range such as 64-256. Default: 128.", "N|N-N", example="128"
    )
    random_range_ratio: float = _bench(
        "Draw lengths from N × (1 - R) to N × (1 + R), if --input-len or --output-len is a number N. Default: 0.",
        "R",
        0.0,
        example="0.5",
        ge=0,
        lt=1,
    )
    ignore_eos: bool = _bench(
        "With prompts from a file: continue each output to its full length, as with synthetic prompts.", default=False
    )
    dataset_path: Path | None = _bench(
        "File with prompts, or the dataset of the benchmark. A file with prompts contains JSON lines with `prompt` "
        "and, optionally, `output_tokens`. Default: synthetic prompts.",
        "FILE",
    )
    dataset_name: PromptsName | None = _bench(
        f"Kind of the prompts: {', '.join(get_args(PromptsName))}. Default: detected from the file.", "NAME"
    )
    tokenizer: str | None = _bench("Tokenizer of the model on a server: folder or Hugging Face Hub ID.", "MODEL")
    repeats: int = _bench("Number of times to measure all rates. Default: 1.", "N", 1, **_COUNT)
    max_runs: int = _bench(f"Maximum number of runs in each repetition. Default: {MAX_RUNS}.", "N", MAX_RUNS, **_COUNT)
    like: str | None = _bench("Repeat the rates, prompts, lengths and limits of a bench.", "BENCH")
    reset_cache: bool = _bench(
        "Require an empty prefix cache before each run. Not supported with a server.", default=False
    )
    seed: int | None = _bench(
        "Random seed of synthetic prompts. Default: 0; with a server, the time of the start.", "N", ge=0, lt=10**18
    )
    save_result: bool = _bench("Write a JSON file for each run, with the keys of `vllm bench serve`.", default=False)
    save_detailed: bool = _bench("Same as --save-result, with the lengths and times of each request.", default=False)
    result_filename: str | None = _bench("Name of the file of --save-result. Default: <label>-<rate>qps.json.", "FILE")
    metadata: list[str] = _bench("Fact to write into bench.json. Repeatable.", "KEY=VALUE", [])
    output_log_dir: Path | None = _bench("Directory of the bench. Default: output/bench-<label>.", "DIR")
    # Options of other programs
    goodput: LatencyLimits | None = _compat(
        "Same as --limits, in the form ttft:500 tpot:50 e2el:5000.", "LIST", example="ttft:500"
    )
    ttft_sla_ms: float | None = _compat("Same as --limits ttft=MS.", "MS", example="500", gt=0, allow_inf_nan=False)
    tpot_sla_ms: float | None = _compat("Same as --limits tpot=MS.", "MS", example="50", gt=0, allow_inf_nan=False)
    model: str | None = _compat(
        "Model folder or Hugging Face Hub ID; with a server, also the name of the model on the server.", "MODEL"
    )
    backend: str | None = _compat("Same as --api-dialect.", "NAME")
    endpoint: str | None = _compat("Path or URL of the server's API.", "PATH")
    host: str | None = _compat("Host of the server. Default: localhost.", "HOST")
    port: int = _compat("Port of the server. Default: 8000.", "N", 8000, ge=1, le=65_535)
    resume: bool = _compat("Ignored: the same command continues a bench.", default=False)

    @field_validator("scenario", mode="before")
    @classmethod
    def _scenario_in_any_case(cls, value: str) -> str:
        if "(" in value:  # genai-bench's traffic
            raise ValueError(
                "must be Server, Interactive or Offline; for lengths give --input-len 100 --output-len 100"
            )
        return next((name for name in get_args(BenchScenario) if name.lower() == value.lower()), value)

    @field_validator("result_filename")
    @classmethod
    def _file_name(cls, value: str) -> str:
        if Path(value).name != value:
            raise ValueError("must be a file name without a directory; give the directory with -o DIR")
        return value
