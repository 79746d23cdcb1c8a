"""Why a leg could not be submitted. Every reason is a sentence; an empty list claims only that none was found."""

from runs.benchmark import LOADGEN_SCENARIO, Benchmark, Mode, SamplingPolicy, Scenario
from runs.loadgen.user_conf import Setting, lookup
from runs.record.official_inputs import data_set_reasons

# Settings of the benchmark that only the open division may override. [LoadGen's mlperf.conf, comments]
_OPEN_ONLY_KEYS = (
    "use_token_latencies",
    "infer_token_latencies",
    "token_latency_scaling_factor",
    "ttft_latency",
    "tpot_latency",
    "target_latency_percentile",
    "samples_per_query",
    "sample_concatenate_permutation",
    "performance_issue_unique",
    "performance_issue_same",
    "performance_issue_same_index",
    "performance_sample_count_override",
    "accuracy_sample_count_override",
    "max_duration",
    "max_query_count",
    "accuracy_log_sampling_target",
)


def settings_reasons(settings: tuple[Setting, ...], benchmark: Benchmark, scenario: Scenario) -> list[str]:
    """Reasons that lie in user.conf."""
    reasons = []

    def value(key: str) -> str | None:
        return lookup(settings, benchmark.loadgen_key, LOADGEN_SCENARIO[scenario], key)

    duration, needed_ms = value("min_duration"), benchmark.min_duration_ms
    if duration is not None and int(duration) < needed_ms:
        reasons.append(f"user.conf: min_duration {duration} ms is below the required {needed_ms} ms")
    count = value("min_query_count")
    needed = benchmark.performance_samples
    if scenario == "Offline" and count is not None and int(count) < needed:
        reasons.append(f"user.conf: min_query_count {count} is below the {needed:,} samples required")
    reasons += [f"user.conf: {key} may be set in the open division only" for key in _OPEN_ONLY_KEYS if value(key)]
    if scenario in ("Server", "Interactive") and value("target_latency"):
        reasons.append("user.conf: Server target_latency may be set in the open division only")
    return reasons


def sampling_reasons(sampling: SamplingPolicy, official: SamplingPolicy) -> list[str]:
    """Reasons that lie in how tokens are chosen."""
    return [] if sampling == official else [f"sampling differs from the benchmark's: {sampling}"]


def data_reasons(
    benchmark: Benchmark, scenario: Scenario, mode: Mode, sample_count: int, sha256: str, *, bundled: bool
) -> list[str]:
    """Reasons that lie in the data set or in the pairing of scenario and benchmark."""
    reasons = []
    needed = benchmark.samples(mode)
    if bundled:
        reasons.append(f"the bundled articles are not {benchmark.data_set}")
    elif sample_count != needed:
        reasons.append(f"{sample_count:,} samples instead of the {needed:,} of {benchmark.submission_name}")
    else:
        reasons += data_set_reasons(benchmark, sha256)
    if scenario not in benchmark.scenarios:
        reasons.append(f"{benchmark.submission_name} has no {scenario} scenario in a submission")
    return reasons
