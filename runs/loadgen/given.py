"""What a configuration gives LoadGen, held against what LoadGen's log says that it was given."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from runs.benchmark import Benchmark
from runs.loadgen.counts import DEFAULT_MIN_QUERY_COUNT
from runs.loadgen.detail_log import SIX_DIGITS, DetailLog
from runs.loadgen.user_conf import Setting, in_force

_MS = 1_000_000.0  # ns
_PER_CENT = 0.01
# user.conf key → (record of the log, factor to its unit), by LoadGen scenario. [loadgen] TestSettings::FromConfig
_ANY: dict[str, tuple[str, float]] = {
    "min_duration": ("requested_min_duration_ms", 1),
    "max_duration": ("requested_max_duration_ms", 1),
    **{
        key: (f"requested_{key}", 1)
        for key in (
            "min_query_count", "max_query_count", "performance_sample_count_override", "sample_concatenate_permutation",
            "use_token_latencies", "performance_issue_unique", "performance_issue_same", "performance_issue_same_index",
            "qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed", "accuracy_log_rng_seed",
            "accuracy_log_sampling_target", "accuracy_sample_count_override", "print_timestamps",
        )
    },
}  # fmt: skip
_OF_SCENARIO: dict[str, dict[str, tuple[str, float]]] = {
    "Offline": {"target_qps": ("requested_offline_expected_qps", 1)},
    "Server": {
        "target_qps": ("requested_server_target_qps", 1),
        "ttft_latency": ("requested_server_ttft_latency", _MS),
        "tpot_latency": ("requested_server_tpot_latency", _MS),
        "coalesce_queries": ("requested_server_coalesce_queries", 1),
        "max_async_queries": ("requested_server_max_async_queries", 1),
        "target_latency": ("requested_server_target_latency_ns", _MS),
        "target_latency_percentile": ("requested_server_target_latency_percentile", _PER_CENT),
    },
    "SingleStream": {
        "target_latency": ("requested_single_stream_expected_latency_ns", _MS),
        "target_latency_percentile": ("requested_single_stream_target_latency_percentile", _PER_CENT),
    },
}
# The one setting that every run has to choose, and LoadGen's default of it.
_TARGETS: dict[str, tuple[str, float]] = {
    "Offline": ("target_qps", 1.0),
    "Server": ("target_qps", 1.0),
    "SingleStream": ("target_latency", 0.0),
}


@dataclass(frozen=True)
class Mismatch:
    """A setting that the log has otherwise. `line` is None where no line gives it; `logged` is in the key's unit."""

    key: str
    line: Setting | None
    record: str
    logged: float


def defaults(benchmark: Benchmark, scenario: str) -> dict[str, float]:
    """What LoadGen takes where no line gives a key. [conf]: `runs.loadgen.counts` names it"""
    offline = benchmark.offline_min_samples if scenario == "Offline" else None
    limits = benchmark.limits
    of_limits = {"ttft_latency": limits.ttft_ms * _MS, "tpot_latency": limits.tpot_ms * _MS} if limits else {}
    return dict.fromkeys(_OFF, 0.0) | {
        **of_limits,
        "min_duration": benchmark.min_duration_ms,
        "min_query_count": offline or DEFAULT_MIN_QUERY_COUNT,
        "sample_concatenate_permutation": 1,
        "use_token_latencies": 1,
    }


_OFF = (
    "max_duration", "max_query_count", "performance_issue_unique", "performance_issue_same",
    "performance_issue_same_index", "accuracy_log_sampling_target", "accuracy_sample_count_override",
    "coalesce_queries", "max_async_queries",
)  # fmt: skip


def mismatches(
    lines: Sequence[Setting],
    models: Sequence[str],
    detail: DetailLog,
    left_out: Collection[str] = (),
    otherwise: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[Mismatch]:
    """What differs.

    Args:
        lines: of user.conf, with numbers; `models` are names of the one model.
        left_out: keys that something else decided.
        otherwise: what a key is that no line gives; of others than these that is not known.
    """
    scenario = detail.scenario
    target, default = _TARGETS.get(scenario, ("", 0.0))
    otherwise = {target: default, **otherwise}
    for key, (record, factor) in {**_ANY, **_OF_SCENARIO.get(scenario, {})}.items():
        logged = detail.get(record)
        if key in left_out or not isinstance(logged, int | float):
            continue
        line = in_force(lines, models, scenario, key)
        if line is None:
            wrong = float(logged) != otherwise.get(key, float(logged))
        else:
            wrong = abs(float(line.value) * factor - float(logged)) > SIX_DIGITS * max(1.0, abs(float(logged)))
        if wrong:
            yield Mismatch(key, line, record, float(logged) / factor)
