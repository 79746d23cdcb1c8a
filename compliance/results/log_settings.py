"""Settings that a detail log states twice."""

from collections.abc import Iterator

from runs.loadgen.detail_log import DetailLog
from runs.loadgen.summary_log import Contradiction

# Settings that LoadGen logs twice: as requested_X and as effective_X.
_SAME_NAME = (
    "min_duration_ms", "max_duration_ms", "max_query_count", "qsl_rng_seed", "sample_index_rng_seed",
    "schedule_rng_seed", "accuracy_log_rng_seed", "accuracy_log_probability", "accuracy_log_sampling_target",
    "print_timestamps", "performance_issue_unique", "performance_issue_same", "performance_issue_same_index",
    "sample_concatenate_permutation",
)  # fmt: skip
# Settings that LoadGen logs under two names, by scenario.
_BY_COUNT = (
    ("effective_target_duration_ms", "effective_min_duration_ms"),
    ("effective_min_sample_count", "effective_min_query_count"),
    ("effective_samples_per_query", "generated_samples_per_query"),
)
_SAME_VALUE = {
    "Offline": (
        ("requested_offline_expected_qps", "effective_target_qps"),
        ("effective_min_sample_count", "effective_samples_per_query"),
    ),
    "Server": (
        ("requested_server_target_qps", "effective_target_qps"),
        ("requested_server_target_latency_ns", "effective_target_latency_ns"),
        ("requested_server_target_latency_percentile", "effective_target_latency_percentile"),
        ("requested_server_max_async_queries", "effective_max_async_queries"),
        ("requested_min_query_count", "effective_min_query_count"),
        *_BY_COUNT,
    ),
    "SingleStream": (
        ("requested_single_stream_target_latency_percentile", "effective_target_latency_percentile"),
        *_BY_COUNT,
    ),
    "MultiStream": (
        ("requested_multi_stream_target_latency_percentile", "effective_target_latency_percentile"),
        ("requested_multi_stream_samples_per_query", "effective_samples_per_query"),
        ("effective_target_duration_ms", "effective_min_duration_ms"),
        ("effective_samples_per_query", "generated_samples_per_query"),
        ("result_max_latency_ns", "result_max_query_latency_ns"),
    ),
}


def compare_settings(detail: DetailLog) -> Iterator[Contradiction]:
    """Compare the two values of each setting."""
    pairs = [(f"requested_{name}", f"effective_{name}") for name in _SAME_NAME]
    pairs += _SAME_VALUE.get(detail.scenario, ())
    override = "requested_performance_sample_count_override"
    of_set = override if detail.get(override) else "qsl_reported_performance_count"
    pairs.append((of_set, "effective_performance_sample_count"))
    for first, second in pairs:
        requested, effective = detail.get(first), detail.get(second)
        if requested is not None and effective is not None and requested != effective:
            yield Contradiction(f"{first} is {requested}, {second} is {effective}", (first, second))
