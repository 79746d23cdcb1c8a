"""What a configuration gives LoadGen, held against what LoadGen's log says that it was given."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from runs.loadgen.detail_log import DetailLog
from runs.loadgen.user_conf import Setting, in_force

_MS = 1_000_000.0  # ns
# user.conf key → (record of the log, factor to its unit), by LoadGen scenario. [loadgen] TestSettings::FromConfig
_ANY: dict[str, tuple[str, float]] = {
    "min_duration": ("requested_min_duration_ms", 1),
    "max_duration": ("requested_max_duration_ms", 1),
    **{
        key: (f"requested_{key}", 1)
        for key in (
            "min_query_count", "max_query_count", "performance_sample_count_override", "sample_concatenate_permutation",
            "use_token_latencies", "performance_issue_unique", "performance_issue_same", "performance_issue_same_index",
            "qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed",
        )
    },
}  # fmt: skip
_OF_SCENARIO: dict[str, dict[str, tuple[str, float]]] = {
    "Offline": {"target_qps": ("requested_offline_expected_qps", 1)},
    "Server": {
        "target_qps": ("requested_server_target_qps", 1),
        "ttft_latency": ("requested_server_ttft_latency", _MS),
        "tpot_latency": ("requested_server_tpot_latency", _MS),
    },
    "SingleStream": {"target_latency": ("requested_single_stream_expected_latency_ns", _MS)},
}
# The one setting that every run has to choose, and LoadGen's default of it.
_TARGETS: dict[str, tuple[str, float]] = {
    "Offline": ("target_qps", 1.0),
    "Server": ("target_qps", 1.0),
    "SingleStream": ("target_latency", 0.0),
}
_SIX_DIGITS = 1e-5  # of numbers in the log


@dataclass(frozen=True)
class Mismatch:
    """A setting that the log has otherwise. `line` is None where no line gives it; `logged` is in the key's unit."""

    key: str
    line: Setting | None
    record: str
    logged: float


def mismatches(
    lines: Sequence[Setting], models: Sequence[str], detail: DetailLog, left_out: Collection[str] = ()
) -> Iterator[Mismatch]:
    """What differs.

    Args:
        lines: of user.conf, with numbers; `models` are names of the one model.
        left_out: keys that something else decided.
    """
    scenario = detail.scenario
    target, default = _TARGETS.get(scenario, ("", 0.0))
    for key, (record, factor) in {**_ANY, **_OF_SCENARIO.get(scenario, {})}.items():
        logged = detail.get(record)
        if key in left_out or not isinstance(logged, int | float):
            continue
        line = in_force(lines, models, scenario, key)
        if line is None:
            wrong = key == target and float(logged) != default
        else:
            wrong = abs(float(line.value) * factor - float(logged)) > _SIX_DIGITS * max(1.0, abs(float(logged)))
        if wrong:
            yield Mismatch(key, line, record, float(logged) / factor)
