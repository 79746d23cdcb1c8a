"""What LoadGen is given in a leg: user.conf and audit.config, checked line by line; what of it is not official."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runs.benchmark import LOADGEN_SCENARIO, Benchmark, Scenario
from runs.environment import HARNESS_ROOT
from runs.errors import InputError, SetupError
from runs.loadgen.user_conf import Setting, lookup, parse_conf, read_conf_text, with_setting
from scenarios.leg.config import EMBEDDED_CONF, RunConfig
from scenarios.leg.trial import TRIAL_CONF

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


@dataclass(frozen=True)
class LoadgenConf:
    """The texts that LoadGen is given."""

    path: Path  # of the given user.conf
    user_conf: str  # with --target-qps; of a trial without the rate
    audit_config: str | None
    unofficial_reasons: list[str]


def read_conf(config: RunConfig, benchmark: Benchmark, sample_count: int) -> LoadgenConf:
    """Read both files, and refuse lines that LoadGen would ignore or would not survive.

    Raises:
        InputError, SetupError: naming the file, the line and the fix.
    """
    scenario = LOADGEN_SCENARIO[config.scenario]
    path = config.user_conf or _default_conf(config)
    text = read_conf_text(path, "--user-conf")
    settings = parse_conf(text, path)
    for setting in settings:
        if setting.key == "mode":
            raise InputError(f"{path}:{setting.line}: the mode is chosen by --accuracy", "remove the line")
        if setting.key == "use_token_latencies" and setting.value != "1":
            raise InputError(f"{path}:{setting.line}: this benchmark needs use_token_latencies", "remove the line")
    reasons = list(settings_reasons(settings, benchmark, config.scenario))
    if config.target_qps is not None:
        if scenario == "SingleStream":
            raise InputError(
                "--target-qps has no meaning in SingleStream",
                "leave it out; *.SingleStream.target_latency in the file of --user-conf is the expected latency",
            )
        rate = f"{config.target_qps:.10f}".rstrip("0").rstrip(".")
        text = with_setting(text, benchmark.loadgen_key, scenario, "target_qps", rate)
    audit_text, audit = None, tuple[Setting, ...]()
    if config.audit_conf is not None:
        audit_text = read_conf_text(config.audit_conf, "--audit-conf")
        audit = parse_conf(audit_text, config.audit_conf)
        _check_audit_lines(config.audit_conf, audit, config.accuracy)
        reasons.append("an audit configuration changes LoadGen's settings: this leg is an audit, not a result")
    _check_counts(config, benchmark, settings, audit, sample_count)
    return LoadgenConf(path, text, audit_text, reasons)


def settings_reasons(settings: tuple[Setting, ...], benchmark: Benchmark, scenario: Scenario) -> Iterator[str]:
    """Why a leg with these lines of user.conf could not be submitted."""
    value = partial(lookup, settings, benchmark.loadgen_key, LOADGEN_SCENARIO[scenario])
    duration, needed_ms = value("min_duration"), benchmark.min_duration_ms
    if duration is not None and int(duration) < needed_ms:
        yield f"user.conf: min_duration {duration} ms is below the required {needed_ms} ms"
    count, needed = value("min_query_count"), benchmark.performance_samples
    if scenario == "Offline" and count is not None and int(count) < needed:
        yield f"user.conf: min_query_count {count} is below the {needed:,} samples required"
    for key in _OPEN_ONLY_KEYS:
        if value(key):
            yield f"user.conf: {key} may be set in the open division only"
    if scenario in ("Server", "Interactive") and value("target_latency"):
        yield "user.conf: Server target_latency may be set in the open division only"


def _default_conf(config: RunConfig) -> Path:
    if config.dataset_path is not None:
        return HARNESS_ROOT / "user.conf"
    return TRIAL_CONF if config.is_trial else EMBEDDED_CONF


def _check_audit_lines(path: Path, settings: tuple[Setting, ...], accuracy: bool) -> None:
    if not settings:
        raise InputError(f"--audit-conf {path} sets nothing", "leave it out, or see audit.config")
    # LoadGen's TestMode: AccuracyOnly, PerformanceOnly.
    own_mode, name, option = ("1", "accuracy", "leave out") if accuracy else ("2", "performance", "add")
    for setting in settings:
        at = f"{path}:{setting.line}"
        if setting.key == "mode" and setting.value != own_mode:
            raise InputError(
                f"{at}: mode = {setting.value}, and this leg is {own_mode} ({name})",
                f"write {own_mode}, remove the line, or {option} --accuracy",
            )
        if setting.model != "*":
            raise InputError(
                f"{at}: LoadGen reads only model * from an audit configuration",
                f"write *.{setting.scenario}.{setting.key}",
            )
        if setting.key == "use_token_latencies":
            raise InputError(f"{at}: an audit must not change use_token_latencies", "remove the line")


def _check_counts(
    config: RunConfig,
    benchmark: Benchmark,
    settings: tuple[Setting, ...],
    audit: tuple[Setting, ...],
    sample_count: int,
) -> None:
    """Refuse numbers of samples with which LoadGen would crash, or would not score every sample."""
    scenario = LOADGEN_SCENARIO[config.scenario]

    def value(key: str) -> str | None:
        return lookup(audit, "*", scenario, key) or lookup(settings, benchmark.loadgen_key, scenario, key)

    place = config.audit_conf or config.user_conf  # the files of the harness have none of these keys
    index, loaded = value("performance_issue_same_index"), min(sample_count, benchmark.performance_samples)
    if index is not None and int(index) >= loaded:
        raise SetupError(
            f"{place}: performance_issue_same_index {index} is outside the {loaded} loaded samples; "
            "LoadGen would crash",
            f"use an index from 0 to {loaded - 1}",
        )
    fewer = value("accuracy_sample_count_override")
    if config.accuracy and fewer is not None and 0 < int(fewer) < sample_count:  # 0: all
        raise SetupError(
            f"{place}: accuracy_sample_count_override {fewer} is below the {sample_count} samples of an accuracy leg, "
            "which scores every one",
            f"remove the line; --total-sample-count {fewer} takes fewer samples",
        )
    override = value("performance_sample_count_override") or benchmark.performance_samples
    if value("performance_issue_unique") not in (None, "0") and int(override) > sample_count:
        raise SetupError(
            f"{place}: performance_issue_unique with {sample_count} of {benchmark.performance_samples} samples",
            f"LoadGen would crash; add `*.*.performance_sample_count_override = {sample_count}`",
        )
