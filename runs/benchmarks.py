"""Every official constant of the benchmark, with its source.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20, round v6.1):
  [conf]     loadgen/mlperf.conf, compiled into the LoadGen wheel
  [checker]  tools/submission/submission_checker/constants.py
  [ref]      language/llama3.1-8b (reference implementation and README)
  [rules]    mlcommons/inference_policies, inference_rules.adoc
"""

from dataclasses import dataclass
from typing import Literal

Scenario = Literal["Offline", "Server", "SingleStream", "Interactive"]
SCENARIOS: tuple[Scenario, ...] = ("Offline", "Server", "SingleStream", "Interactive")

# LoadGen knows no Interactive scenario: it is Server under another model key. [conf]
LOADGEN_SCENARIO: dict[Scenario, str] = {
    "Offline": "Offline",
    "Server": "Server",
    "SingleStream": "SingleStream",
    "Interactive": "Server",
}


@dataclass(frozen=True)
class AccuracyTarget:
    """Reference scores and the share of them that must be reached.

    ROUGE values are means × 100; `gen_len` counts characters of the sentence-joined predictions. [ref]
    """

    rouge1: float
    rouge2: float
    rougeL: float
    rougeLsum: float
    gen_len: int
    gen_num: int
    rouge_share: float = 0.99  # [checker] MODEL_CONFIG accuracy-target
    gen_len_low: float = 0.9  # [checker] accuracy-target, lower bound of GEN_LEN
    gen_len_high: float = 1.1  # [checker] accuracy-upper-limit


@dataclass(frozen=True)
class Benchmark:
    """One LoadGen model key."""

    loadgen_key: str
    submission_name: str  # directory name in a submission tree [checker]
    sample_count: int  # rows of the official data set [ref]; also performance_sample_count_override [conf]
    scenarios: tuple[Scenario, ...]  # what may be submitted [checker]
    accuracy: AccuracyTarget
    ttft_limit_ms: int | None  # p99 limit of LoadGen's Server scenario [conf]
    tpot_limit_ms: int | None


DATACENTER_TARGET = AccuracyTarget(38.7792, 15.9075, 24.4957, 35.793, 8_167_644, 13_368)  # [ref] [checker]
EDGE_TARGET = AccuracyTarget(39.06, 16.1147, 24.6375, 36.124, 3_051_113, 5_000)  # [ref] [checker]

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.loadgen_key: benchmark
    for benchmark in (
        Benchmark("llama3_1-8b", "llama3.1-8b", 13_368, ("Offline", "Server"), DATACENTER_TARGET, 2000, 100),
        Benchmark("llama3_1-8b-interactive", "llama3.1-8b", 13_368, ("Interactive",), DATACENTER_TARGET, 500, 30),
        Benchmark(
            "llama3_1-8b-edge",
            "llama3.1-8b-edge",
            5_000,
            ("SingleStream", "Offline"),
            EDGE_TARGET,
            None,
            None,
        ),
    )
}

# The key that `--scenario` selects when `--lg-model-name` is not given.
DEFAULT_KEY: dict[Scenario, str] = {
    "Offline": "llama3_1-8b",
    "Server": "llama3_1-8b",
    "SingleStream": "llama3_1-8b-edge",
    "Interactive": "llama3_1-8b-interactive",
}

MIN_DURATION_MS = 600_000  # [checker] TEST_DURATION_MS, all scenarios of this benchmark

# Generation, fixed by the benchmark. [ref] SUT gen_kwargs, [rules] table of generation settings
MAX_NEW_TOKENS = 128
MIN_NEW_TOKENS = 1
TEMPERATURE = 0.0
TOP_P = 1.0
TOP_K = 1
SAMPLING_SEED = 42

# LoadGen records an error for a response of fewer tokens. [loadgen] LogSampleCompletion of results with tokens
MIN_TOKENS_LOADGEN_ACCEPTS = 2


@dataclass(frozen=True)
class RoundSeeds:
    """The three LoadGen seeds of a submission round. [conf] [checker]"""

    qsl_rng_seed: int
    sample_index_rng_seed: int
    schedule_rng_seed: int


ROUND_SEEDS: dict[str, RoundSeeds] = {
    "v5.1": RoundSeeds(1780908523862526354, 14771362308971278857, 18209322760996052031),
    "v6.0": RoundSeeds(2465351861681999779, 14276810075590677512, 3936089224930324775),
    "v6.1": RoundSeeds(2085463073848966840, 2747215439041700203, 16159082839903944936),
}
CURRENT_ROUND = "v6.1"

PERCENTILES: tuple[float, ...] = (50.0, 90.0, 95.0, 97.0, 99.0, 99.9)  # what LoadGen prints

OFFICIAL_MODEL = "meta-llama/Llama-3.1-8B-Instruct"  # [ref] README
