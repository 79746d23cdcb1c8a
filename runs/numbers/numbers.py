"""The numbers of a performance run under the same names in every scenario."""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict

from runs.loadgen.detail_log import DetailLog
from runs.loadgen.early_stopping import is_supported

PERCENTILE_SHARES: dict[str, float] = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p97": 0.97, "p99": 0.99, "p99_9": 0.999}
# Percentile → spelling in LoadGen's keys.
PERCENTILE_NAMES: dict[str, str] = {name: f"{100 * share:.2f}" for name, share in PERCENTILE_SHARES.items()}


def shows(statistic: str, samples: int | None) -> bool:
    """Return whether a run of this many samples supports a statistic; `mean`, `min` and `max` need one sample."""
    share = PERCENTILE_SHARES.get(statistic)
    return bool(samples) and (share is None or is_supported(samples or 0, share))


def supported(samples: int | None, *statistics: str) -> tuple[str, ...]:
    """Return the statistics that a run of this many samples supports."""
    return tuple(name for name in statistics if shows(name, samples))


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class LatencyNumbers(_Frozen):
    """Statistics over all samples, in ns. A percentile p is the value at index int(N × p) of the sorted list."""

    min: int
    mean: int
    max: int
    p50: int
    p90: int
    p95: int
    p97: int
    p99: int
    p99_9: int


class Numbers(_Frozen):
    """The numbers of a performance run; None for numbers that the scenario does not have.

    `samples_per_second` and `tokens_per_second` are over the whole run in Offline, completed rates in Server, and rates
    with LoadGen's overhead in SingleStream.
    """

    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    scheduled_samples_per_second: float | None = None  # Server: rate of the Poisson schedule
    samples_per_second_without_overhead: float | None = None  # SingleStream: 1 / mean latency
    tokens_per_second_with_overhead: float | None = None  # Server, SingleStream: over the time of issuing
    tokens_per_second_without_overhead: float | None = None  # Server, SingleStream: mean tokens / mean latency
    latency_ns: LatencyNumbers | None = None
    ttft_ns: LatencyNumbers | None = None
    tpot_ns: LatencyNumbers | None = None

    def flat(self, *statistics: str) -> dict[str, float]:
        """Return the measured row with these statistics of the latencies."""
        parts = {name.removesuffix("_ns"): getattr(self, name) for name in LATENCIES}
        times_ns = {
            name: {statistic: getattr(part, statistic) for statistic in statistics}
            for name, part in parts.items()
            if part
        }
        return measured_row(self.samples_per_second, self.tokens_per_second, times_ns)


_UNITS = {"samples_per_second": "samples/s", "tokens_per_second": "tokens/s"}
_LABELS = {"latency": "latency", "ttft": "TTFT", "tpot": "TPOT"}


def measured_row(
    samples_per_second: float | None,
    tokens_per_second: float | None,
    times_ns: Mapping[str, Mapping[str, float | None]],
) -> dict[str, float]:
    """Return the rates and the statistics of latencies in ms (`ttft_p99_ms`) that the run has."""
    rates = dict(zip(_UNITS, (samples_per_second, tokens_per_second), strict=True))
    times = {f"{name}_{key}_ms": ns and ns / 1e6 for name, part in times_ns.items() for key, ns in part.items()}
    return {name: value for name, value in (rates | times).items() if value is not None}


def rates_by_unit(row: Mapping[str, float]) -> dict[str, float]:
    """Return the rates of a measured row by unit."""
    return {unit: row[name] for name, unit in _UNITS.items() if name in row}


def time_texts(row: Mapping[str, float]) -> dict[str, str]:
    """Return the latencies of a measured row by label: `mean 1.234 ms, p99.9 5.678 ms`."""
    texts = {
        label: [f"{key[len(name) + 1 : -3].replace('_', '.')} {row[key]:.3f} ms" for key in row if key.startswith(name)]
        for name, label in _LABELS.items()
    }
    return {label: ", ".join(texts) for label, texts in texts.items() if texts}


RATES = tuple(name for name in Numbers.model_fields if not name.endswith("_ns"))
LATENCIES = tuple(name for name in Numbers.model_fields if name.endswith("_ns"))

TOKENS_PER_NS = "result_token_throughput"  # key that LoadGen logs in tokens per nanosecond
# LoadGen's keys of the rates, by scenario.
RATE_KEYS: dict[str, dict[str, str]] = {
    "Offline": {"samples_per_second": "result_samples_per_second", "tokens_per_second": "result_tokens_per_second"},
    "Server": {
        "samples_per_second": "result_completed_samples_per_sec",
        "tokens_per_second": "result_completed_tokens_per_second",
        "scheduled_samples_per_second": "result_scheduled_samples_per_sec",
        "tokens_per_second_with_overhead": "result_token_throughput_with_loadgen_overhead",
        "tokens_per_second_without_overhead": TOKENS_PER_NS,
    },
    "SingleStream": {
        "samples_per_second": "result_qps_with_loadgen_overhead",
        "tokens_per_second": "result_completed_tokens_per_second",
        "samples_per_second_without_overhead": "result_qps_without_loadgen_overhead",
        "tokens_per_second_with_overhead": "result_token_throughput_with_loadgen_overhead",
        "tokens_per_second_without_overhead": TOKENS_PER_NS,
    },
}
# LoadGen's keys of minimum, mean, maximum and percentiles, by measure.
_LATENCY_KEYS = {
    "latency_ns": ("result_{}_latency_ns", "result_{}_percentile_latency_ns"),
    "ttft_ns": ("result_first_token_{}_latency_ns", "result_first_token_{}_percentile_latency_ns"),
    "tpot_ns": ("result_time_to_output_token_{}", "result_time_per_output_token_{}_percentile_ns"),
}
# Conditions of LoadGen's VALID → LoadGen's keys.
CONDITIONS = {
    "min_duration_met": "result_min_duration_met",
    "min_queries_met": "result_min_queries_met",
    "perf_constraints_met": "result_perf_constraints_met",
    "early_stopping_met": "early_stopping_met",
}


_PER_QUERY = ("result_{}_query_latency_ns", "result_{}_percentile_per_query_latency_ns")


def latency_keys(name: str, scenario: str = "") -> Iterator[tuple[str, str]]:
    """Yield each statistic of `latency_ns`, `ttft_ns` or `tpot_ns` with LoadGen's key; MultiStream has those of whole
    queries.
    """
    per_query = name == "latency_ns" and scenario == "MultiStream"
    statistic_key, percentile_key = _PER_QUERY if per_query else _LATENCY_KEYS[name]
    yield from ((statistic, statistic_key.format(statistic)) for statistic in ("min", "mean", "max"))
    yield from ((statistic, percentile_key.format(spelling)) for statistic, spelling in PERCENTILE_NAMES.items())


def reported_numbers(detail: DetailLog) -> Numbers:
    """Return LoadGen's numbers; raise InputError if a key that LoadGen always writes is missing or damaged."""
    rates: dict[str, float] = {}
    for name, key in RATE_KEYS.get(detail.scenario, {}).items():
        if key not in detail.values and name != "samples_per_second":
            continue  # a run without token latencies has no token keys
        rates[name] = detail.number(key) * (1e9 if key == TOKENS_PER_NS else 1)
    latencies = {
        name: LatencyNumbers(
            **{statistic: detail.integer(key) for statistic, key in latency_keys(name, detail.scenario)}
        )
        for name in LATENCIES
        if name == "latency_ns" or "result_first_token_min_latency_ns" in detail.values
    }
    return Numbers.model_validate({**rates, **latencies})
