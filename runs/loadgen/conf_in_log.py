"""Comparing the lines of user.conf with the settings in LoadGen's log."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from runs.loadgen.conf_lines import KEYS, Setting, effective_line, number_of, value_kind
from runs.loadgen.detail_log import SIX_DIGITS, DetailLog
from runs.rounds import SEED_NAMES

_NS, _SHARE = 1e6, 0.01  # factors from milliseconds to ns and from percent to a share
# Key of user.conf → name in the log, and factor to the log's unit. [loadgen] TestSettings::FromConfig
_ANY = {
    key: (f"requested_{key}", 1.0)
    for key in (*sorted(KEYS.keys() - {"target_qps", "target_latency_percentile"}), *SEED_NAMES)
} | {key: (f"requested_{key}_ms", 1.0) for key in ("min_duration", "max_duration")}
_OF_SCENARIO: dict[str, dict[str, tuple[str, float]]] = {
    "Offline": {"target_qps": ("requested_offline_expected_qps", 1)},
    "Server": {
        **{key: (f"requested_server_{key}", 1) for key in ("target_qps", "coalesce_queries", "max_async_queries")},
        **{key: (f"requested_server_{key}", _NS) for key in ("ttft_latency", "tpot_latency")},
        "target_latency": ("requested_server_target_latency_ns", _NS),
        "target_latency_percentile": ("requested_server_target_latency_percentile", _SHARE),
    },
    "SingleStream": {
        "target_latency": ("requested_single_stream_expected_latency_ns", _NS),
        "target_latency_percentile": ("requested_single_stream_target_latency_percentile", _SHARE),
    },
}
# Required setting of each scenario, and LoadGen's default.
_TARGETS = {"Offline": ("target_qps", 1.0), "Server": ("target_qps", 1.0), "SingleStream": ("target_latency", 0.0)}


@dataclass(frozen=True)
class Mismatch:
    """A setting that differs in the log. `line` is None if no line sets it."""

    key: str
    line: Setting | None
    configured: float  # in the unit of the setting
    record: str  # key of the log record
    logged: float  # in the unit of the setting


def mismatches(
    lines: Sequence[Setting],
    models: Sequence[str],
    detail: DetailLog,
    left_out: Collection[str] = (),
    otherwise: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[Mismatch]:
    """Find the settings of a configuration that differ in LoadGen's log.

    Args:
        lines: Lines of user.conf.
        models: Names of one model.
        left_out: Keys that other settings override.
        otherwise: Values of keys without a line (`counts.defaults`).
    """
    scenario = detail.scenario
    target, default = _TARGETS.get(scenario, ("", 0.0))
    otherwise = {target: default, **otherwise}
    for key, (record, factor) in {**_ANY, **_OF_SCENARIO.get(scenario, {})}.items():
        logged = detail.get(record)
        if key in left_out or not isinstance(logged, int | float):
            continue
        line = effective_line(lines, models, scenario, key)
        effective = otherwise.get(key, float(logged))
        if line is None:
            is_different = float(logged) != effective
        else:
            # LoadGen ignores lines for its seeds, so the harness reads them like other whole numbers.
            effective = float(number_of(line.value, value_kind(key, scenario) if key in KEYS else KEYS["min_duration"]))
            is_different = abs(effective * factor - float(logged)) > SIX_DIGITS * max(1.0, abs(float(logged)))
        if is_different:
            yield Mismatch(key, line, effective, record, float(logged) / factor)
