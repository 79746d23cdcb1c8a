"""What LoadGen writes into the detail log of every run: a record that was taken out would switch off what reads it."""

import hashlib
from collections.abc import Iterator

import orjson

from runs.loadgen.detail_log import DetailLog
from runs.numbers.numbers import LATENCIES, RATE_KEYS, latency_keys

# Settings, as requested and as in force. [LoadGen 6.0.17, test_settings_internal.cc]
_BOTH = (
    "accuracy_log_probability", "accuracy_log_rng_seed", "accuracy_log_sampling_target", "max_duration_ms",
    "max_query_count", "min_duration_ms", "min_query_count", "performance_issue_same", "performance_issue_same_index",
    "performance_issue_unique", "print_timestamps", "qsl_rng_seed", "sample_concatenate_permutation",
    "sample_index_rng_seed", "scenario", "schedule_rng_seed", "test_mode",
)  # fmt: skip
_REQUESTED = (
    "accuracy_sample_count_override", "performance_sample_count_override", "use_token_latencies",
)  # fmt: skip
_EFFECTIVE = (
    "accuracy_sample_count", "max_async_queries", "min_sample_count", "performance_sample_count", "samples_per_query",
    "target_duration_ms", "target_latency_ns", "target_latency_percentile", "target_qps",
)  # fmt: skip
_OF_SCENARIO: dict[str, tuple[str, ...]] = {
    "Offline": ("requested_offline_expected_qps",),
    "Server": (
        "requested_server_coalesce_queries", "requested_server_max_async_queries", "requested_server_target_qps",
        "requested_server_target_latency_ns", "requested_server_target_latency_percentile",
        "requested_server_ttft_latency", "requested_server_tpot_latency",
        "requested_server_find_peak_qps_boundary_step_size",
        "requested_server_find_peak_qps_decimals_of_precision", "requested_server_num_issue_query_threads",
    ),
    "SingleStream": (
        "requested_single_stream_expected_latency_ns", "requested_single_stream_target_latency_percentile",
        "requested_server_ttft_latency", "requested_server_tpot_latency",
    ),
}  # fmt: skip
_RUN = (
    "generic_message", "get_sut_name_duration_ns", "loadgen_build_date_local", "loadgen_build_date_utc",
    "loadgen_git_commit_date", "loadgen_git_log_message", "logger_start_reading_entries_retry_count",
    "logger_swap_request_slots_retry_count", "logger_swap_request_slots_retry_reencounter_count",
    "logger_swap_request_slots_retry_retry_count", "logger_tls_total_log_cas_fail_count",
    "logger_tls_total_swap_buffers_slot_retry_count",
    "generated_query_count", "generated_query_duration", "generated_samples_per_query", "loaded_qsl_set",
    "loadgen_file_sha1", "loadgen_git_status_message", "loadgen_version", "power_begin", "power_end", "qsl_name",
    "qsl_reported_performance_count", "qsl_reported_total_count", "sut_name", "test_datetime",
)  # fmt: skip
_RESULTS = (
    "early_stopping_met", "early_stopping_tpot_result", "early_stopping_ttft_result", "num_errors",
    "result_min_duration_met", "result_min_queries_met", "result_query_count",
)  # fmt: skip
_RESULTS_OF: dict[str, tuple[str, ...]] = {
    "Server": ("result_perf_constraints_met", "result_overlatency_query_count"),
    "SingleStream": ("early_stopping_latency_ss", "early_stopping_latency_ms"),
}
# How what LoadGen says of itself and of a run begins; errors and warnings have other names.
_SAID = (
    "early_stopping_", "effective_", "generated_", "loaded_", "loadgen_", "qsl_", "requested_", "result_", "sut_",
)  # fmt: skip
_OF_SOME = {"result_validity", "result_invalid_reason"}

# SHA-256 of `loadgen_file_sha1`, as JSON with sorted keys, by `loadgen_version`. [mlcommons/inference_results: the
# revision of LoadGen that its log names]
_SOURCES = {"6.0.17 @ d6147c7eb7": "d612c849ce5c8bb075beb8bd663d00df596c4864a3ffd96ab5c90ee7d72196c7"}


def unchanged_sources(detail: DetailLog) -> bool | None:
    """Whether the log has the hashes of the sources of the LoadGen that it names; None of one that is not known."""
    known = _SOURCES.get(str(detail.get("loadgen_version")))
    found = orjson.dumps(detail.get("loadgen_file_sha1"), option=orjson.OPT_SORT_KEYS)
    return None if known is None else hashlib.sha256(found).hexdigest() == known


def unlike_loadgen(detail: DetailLog) -> Iterator[str]:
    """Records that the log of such a run has and this one has not, results being asked of a valid run; and, where its
    sources are known, those that LoadGen never writes, and a line that it writes otherwise or elsewhere."""
    wanted = [*_RUN, *(f"requested_{name}" for name in (*_BOTH, *_REQUESTED))]
    wanted += [f"effective_{name}" for name in (*_BOTH, *_EFFECTIVE)]
    wanted += _OF_SCENARIO.get(detail.scenario, ())
    results = [*_RESULTS, *RATE_KEYS.get(detail.scenario, {}).values(), *_RESULTS_OF.get(detail.scenario, ())]
    measured = LATENCIES[:1] if detail.scenario == "Offline" else LATENCIES
    results += [key for measure in measured for _, key in latency_keys(measure)]
    wanted += results if detail.validity == "VALID" else ()
    yield from (f"no {key}" for key in wanted if detail.get(key) is None)
    if unchanged_sources(detail):
        if detail.unlike_line is not None:
            yield f"line {detail.unlike_line}"
        strange = detail.values.keys() - {*wanted, *results, *_OF_SOME}
        yield from (f"{key[:60]}, of its own" for key in sorted(strange) if key.startswith(_SAID))
