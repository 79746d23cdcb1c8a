"""The next command after a trial, with a load that this machine can sustain, and its duration."""

import math

from runs.benchmark import Benchmark
from runs.loadgen.conf_lines import lookup, read_stored
from runs.loadgen.counts import count_run, settings_of
from runs.numbers.result import RunNumbers
from runs.numbers.unloaded import unloaded
from runs.record.manifest import Manifest
from runs.rounds import CURRENT_ROUND
from runs.wording import duration, milliseconds
from scenarios.launch.run_config import EMBEDDED_CONF, OWN_DATA_CONF
from scenarios.launch.trial import LOAD_SHARE

_LOWER = 0.5  # factor on a rate at which some queries exceeded an official limit
_THEN = "docs/tutorial.md: your model and data"
_MEASURES = (("TTFT", "ttft_ns", "ttft_ms"), ("TPOT", "tpot_ns", "tpot_ms"))  # label, in Numbers, in TokenLimits


def next_steps(manifest: Manifest, benchmark: Benchmark, result: RunNumbers) -> list[str]:
    """Return the lines for the end of a VALID trial; the last line names the next command."""
    trial, plan, limits = manifest.trial, manifest.plan, benchmark.limits
    assert trial is not None
    start_s = sum((manifest.observed.start_stages or {}).values())
    reported, load = result.reported, result.load
    if plan.loadgen_scenario != "Server" or reported is None or load is None or limits is None:
        return [_accuracy(plan.sample_count / trial.queries_per_second + start_s, plan.sample_count, "")]
    never, exceeded = [], []
    for label, name, limit_name in _MEASURES:
        values, limit_ms = getattr(reported, name), getattr(limits, limit_name)
        if values is None:
            continue
        if (estimate := unloaded(label, values, limit_ms * 1e6, load.mean_open)) is not None:
            never.append(
                f"{label} was {milliseconds(estimate.ns / 1e6)} ms {estimate.queries}, above the official limit of "
                f"{limit_ms:,} ms, so a lower rate hardly helps"
            )
        elif values.max / 1e6 > limit_ms:
            exceeded.append(f"{label} up to {milliseconds(values.max / 1e6)} ms, official limit {limit_ms:,} ms")
    if never:
        time_s = plan.sample_count / trial.queries_per_second + start_s
        return [*never, _accuracy(time_s, plan.sample_count, "--scenario Offline ")]
    steady_rate = load.completed_per_second * (1 if load.kept_up else LOAD_SHARE)
    rate = _two_digits_down(min(trial.settings["target_qps"], steady_rate) * (_LOWER if exceeded else 1))
    has_own_dataset = manifest.asked.get("dataset_path") is not None
    conf = read_stored(OWN_DATA_CONF if has_own_dataset else EMBEDDED_CONF)

    def value(key: str) -> float | None:
        return rate if key == "target_qps" else lookup(conf, plan.loadgen_key, "Server", key)

    count = count_run(settings_of(plan.scenario, benchmark, CURRENT_ROUND, plan.sample_count, value), "performance")
    in_all = duration(count.expected_s + start_s)
    at = " at p50" if has_own_dataset else ""
    return [
        *exceeded,
        f"next: the same command with --target-qps {rate:g} (official limits{at}; {count.samples:,} queries, "
        f"about {in_all}); {_THEN}",
    ]


def _two_digits_down(value: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.floor(value / unit + 1e-9) * unit:.2g}")


def _accuracy(time_s: float, samples: int, scenario: str) -> str:
    return (
        f"next: the same command with {scenario}--accuracy (scores of {samples:,} articles, about {duration(time_s)}); "
        f"{_THEN}"
    )
