"""Values that LoadGen uses for keys that user.conf does not set, and the factors that it applies to a run's size.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20, round v6.1):
  [conf]      loadgen/mlperf.conf, compiled into the LoadGen wheel
  [settings]  loadgen/test_settings_internal.cc, TestSettingsInternal
"""

from runs.benchmark import Benchmark

OFFLINE_SLACK = 1.1  # [settings] makes the run last longer than the minimum
SINGLE_STREAM_SLACK = 2.0  # [settings] provides enough queries for a system twice as fast as expected

PERFORMANCE_MODE = 2  # [settings] value of the key `mode` for PerformanceOnly
DEFAULT_TARGET_QPS = 1.0  # [conf]
DEFAULT_TARGET_LATENCY_MS = 10.0  # [conf] for SingleStream
DEFAULT_MIN_QUERY_COUNT = 100  # [conf], and LoadGen's own default
_OFF = (  # keys whose value is 0
    "max_duration", "max_query_count", "performance_issue_unique", "performance_issue_same",
    "performance_issue_same_index", "accuracy_log_sampling_target", "accuracy_sample_count_override",
    "coalesce_queries", "max_async_queries",
)  # fmt: skip


def defaults(benchmark: Benchmark, loadgen_scenario: str) -> dict[str, float]:
    """Return LoadGen's values of keys without a line in user.conf, except the required keys. [conf]"""
    offline = benchmark.offline_min_samples if loadgen_scenario == "Offline" else None
    limits = benchmark.limits
    return dict.fromkeys(_OFF, 0.0) | {
        **({"ttft_latency": limits.ttft_ms * 1e6, "tpot_latency": limits.tpot_ms * 1e6} if limits else {}),
        "min_duration": benchmark.min_duration_ms,
        "min_query_count": offline or DEFAULT_MIN_QUERY_COUNT,
        "sample_concatenate_permutation": 1,
        "use_token_latencies": 1,
    }
