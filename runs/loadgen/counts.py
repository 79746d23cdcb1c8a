"""The number of samples that LoadGen will issue by its rounding rules, and the time for them.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20, round v6.1):
  [settings]  loadgen/test_settings_internal.cc, TestSettingsInternal
  [generate]  loadgen/loadgen.cc, GenerateQueries
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from runs.benchmark import LOADGEN_SCENARIO, Benchmark, Mode, Scenario
from runs.loadgen.defaults import (
    DEFAULT_TARGET_LATENCY_MS,
    DEFAULT_TARGET_QPS,
    OFFLINE_SLACK,
    SINGLE_STREAM_SLACK,
    defaults,
)
from runs.loadgen.schedule import poisson_offsets_ns
from runs.rounds import Round


@dataclass(frozen=True)
class CountSettings:
    """The settings that decide the size of a run, from LoadGen's mlperf.conf and user.conf."""

    scenario: Scenario
    set_size: int  # samples that LoadGen loads at a time
    sample_count: int  # samples of the query sample library
    target_qps: float  # samples/s; Offline and Server
    target_latency_ms: float  # SingleStream
    min_duration_ms: int
    min_query_count: int
    equal_issue: bool  # every sample is issued equally often (sample_concatenate_permutation)
    schedule_rng_seed: int


@dataclass(frozen=True)
class RunCount:
    """The size of a run. `expected_s` is the time from the first query to the last response."""

    samples: int
    expected_s: float
    why: str


def settings_of(
    scenario: Scenario, benchmark: Benchmark, in_round: Round, sample_count: int, value: Callable[[str], float | None]
) -> CountSettings:
    """Return the settings of a run.

    Args:
        sample_count: samples of the query sample library.
        value: function that returns a key's value in user.conf or an overriding audit.config.
    """

    values = defaults(benchmark, LOADGEN_SCENARIO[scenario]) | {
        "target_qps": DEFAULT_TARGET_QPS,
        "target_latency": DEFAULT_TARGET_LATENCY_MS,
        "performance_sample_count_override": benchmark.performance_samples,
    }

    def number(key: str) -> float:
        setting = value(key)
        return values[key] if setting is None else setting

    return CountSettings(
        scenario=scenario,
        set_size=min(int(number("performance_sample_count_override")) or sample_count, sample_count),
        sample_count=sample_count,
        target_qps=number("target_qps"),
        target_latency_ms=number("target_latency"),
        min_duration_ms=int(number("min_duration")),
        min_query_count=int(number("min_query_count")),
        equal_issue=number("sample_concatenate_permutation") != 0,
        schedule_rng_seed=in_round.seeds.schedule_rng_seed,
    )


def count_run(settings: CountSettings, mode: Mode) -> RunCount:
    """Return the size of a performance or accuracy run."""
    if mode == "accuracy":
        return _accuracy(settings)
    return {"Offline": _offline, "Server": _server, "SingleStream": _single_stream}[
        LOADGEN_SCENARIO[settings.scenario]
    ](settings)


def _accuracy(settings: CountSettings) -> RunCount:
    samples = settings.sample_count
    if settings.scenario == "SingleStream":
        latency_ms = settings.target_latency_ms
        return RunCount(samples, samples * latency_ms / 1e3, f"every sample once, {latency_ms:g} ms each")
    paced = "" if settings.scenario == "Offline" else "; LoadGen issues them at target_qps"
    rate = f"{settings.target_qps:g} {'samples' if settings.scenario == 'Offline' else 'queries'}/s"
    return RunCount(samples, samples / settings.target_qps, f"every sample once, at {rate}{paced}")


def _offline(settings: CountSettings) -> RunCount:
    """Return the size of an Offline run: samples per query [settings], in whole sets [generate]."""
    if not settings.min_duration_ms:
        return _without_duration(settings, settings.target_qps)
    duration_s = settings.min_duration_ms / 1e3
    wanted = int(OFFLINE_SLACK * duration_s * settings.target_qps)
    why = f"{OFFLINE_SLACK:g} × {duration_s:g} s × {settings.target_qps:g} samples/s = {wanted:,}"
    samples, why = _whole_sets(wanted, settings, why)
    return RunCount(samples, samples / settings.target_qps, why)


def _server(settings: CountSettings) -> RunCount:
    """Return the size of a Server run: the schedule reaches the duration, then a multiple of the set [generate]."""
    rate = settings.target_qps
    if not settings.min_duration_ms:
        return _without_duration(settings, rate)
    duration_s = settings.min_duration_ms / 1e3
    guess = max(16, int(1.2 * rate * duration_s) + 100)
    while (offsets_ns := poisson_offsets_ns(settings.schedule_rng_seed, rate, guess))[-1] < duration_s * 1e9:
        guess *= 2
    scheduled = 1 + int(offsets_ns.searchsorted(duration_s * 1e9, side="left"))
    why = f"this round's Poisson schedule has {scheduled:,} queries in {duration_s:g} s at {rate:g} queries/s"
    samples, why = _whole_sets(scheduled, settings, why)
    last_ns = poisson_offsets_ns(settings.schedule_rng_seed, rate, samples)[-1]
    return RunCount(samples, float(last_ns) / 1e9, why)


def _single_stream(settings: CountSettings) -> RunCount:
    """Return the size of a SingleStream run: twice the expected number, rounded up [settings]."""
    if not settings.min_duration_ms and not settings.equal_issue:
        return _without_duration(settings, 1e3 / settings.target_latency_ms)
    duration_s, latency_s = settings.min_duration_ms / 1e3, settings.target_latency_ms / 1e3
    if not settings.equal_issue:
        samples = max(settings.min_query_count, math.ceil(duration_s / latency_s))
        why = f"queries of {settings.target_latency_ms:g} ms for {duration_s:g} s"
        return RunCount(samples, samples * latency_s, why)
    expected = int(SINGLE_STREAM_SLACK * duration_s / latency_s)
    why = f"{SINGLE_STREAM_SLACK:g} × {duration_s:g} s / {settings.target_latency_ms:g} ms = {expected:,}"
    expected, why = _at_least(expected, settings, why)
    sets = expected // settings.set_size + 1
    bumped = " (LoadGen adds one to a whole number of datasets)" if expected % settings.set_size == 0 else ""
    why += f"; raised to {_sets(sets, settings.set_size)}{bumped}"
    samples = sets * settings.set_size
    return RunCount(samples, max(samples * latency_s, duration_s), why)


def _without_duration(settings: CountSettings, rate: float) -> RunCount:
    samples, why = _whole_sets(settings.min_query_count, settings, f"no minimum duration, {settings.min_query_count:,}")
    return RunCount(samples, samples / rate, why)


def _whole_sets(wanted: int, settings: CountSettings, why: str) -> tuple[int, str]:
    wanted, why = _at_least(wanted, settings, why)
    if not settings.equal_issue:
        return wanted, why
    sets = math.ceil(wanted / settings.set_size)
    return sets * settings.set_size, f"{why}; rounded up to {_sets(sets, settings.set_size)}"


def _at_least(wanted: int, settings: CountSettings, why: str) -> tuple[int, str]:
    least = settings.min_query_count
    return (wanted, why) if wanted >= least else (least, f"{why}, below the minimum of {least:,}")


def _sets(sets: int, size: int) -> str:
    return f"{sets:,} whole dataset{'' if sets == 1 else 's'} of {size:,}"
