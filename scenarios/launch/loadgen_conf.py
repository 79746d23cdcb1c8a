"""The user.conf and audit.config of a run: checks, and reasons why a run is not eligible for submission."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from runs.benchmark import LOADGEN_SCENARIO, Benchmark, Mode, Scenario
from runs.errors import SetupError
from runs.loadgen.conf_lines import KEYS, Setting, effective_line, is_read, lookup, number_of, with_setting
from runs.loadgen.early_stopping import PERCENTILE
from runs.loadgen.user_conf import CheckedConf, Problem, check_conf, read_conf_text
from scenarios.launch.resolved_options import ResolvedOptions
from scenarios.launch.run_config import EMBEDDED_CONF, OWN_DATA_CONF, USER_CONF
from scenarios.launch.trial import TRIAL_CONF

# Settings other than 0 that turn a run into an audit or end it early. [loadgen, perf-audit-settings,
# perf-cut-short]
_OFF = (
    "performance_issue_unique",
    "performance_issue_same",
    "accuracy_log_sampling_target",
    "max_duration",
    "max_query_count",
    "infer_token_latencies",
)
_MODES = {"accuracy": 1, "performance": 2}  # LoadGen's TestMode
# Scenario → setting that a run must choose, its meaning, and LoadGen's default.
_CHOSEN = {
    "Offline": ("target_qps", "the expected rate in samples/s", "1 sample/s"),
    "Server": ("target_qps", "the rate in queries/s", "1 query/s"),
    "SingleStream": ("target_latency", "the expected latency of a query in ms", "10 ms"),
}


@dataclass(frozen=True)
class LoadgenConf:
    """The LoadGen configuration texts of a run."""

    path: Path  # path of the user.conf that the user chose
    user_conf: str  # text with --target-qps; for a trial, text without the rate
    audit_config: str | None
    unofficial_reasons: list[str]
    notes: list[str] = field(default_factory=list)  # lines without effect
    trial: bool = False  # True if the warm-up will set the rate


def read_conf(resolved: ResolvedOptions, sample_count: int, *, rate_follows: bool = False) -> LoadgenConf:
    """Read both files, and refuse lines that LoadGen would ignore or misread, or that would crash it.

    Args:
        rate_follows: The caller gives the rate of each run later. The rate of a trial follows as well.

    Raises:
        InputError, SetupError: If a file is refused; the message lists all lines and fixes.
    """
    config, benchmark, mode, scenario = resolved.config, resolved.benchmark, resolved.mode, resolved.loadgen_scenario
    path = config.user_conf or _default_conf(resolved, sample_count)
    trial = config.user_conf is None and path == TRIAL_CONF
    text = read_conf_text(path, "--user-conf")
    user = check_conf(text, path, benchmark, config.scenario)
    user.problems += _kind_of_run(user, benchmark, scenario, mode)
    audit_text, audit = None, None
    if config.audit_conf is not None:
        audit_text = read_conf_text(config.audit_conf, "--audit-conf")
        audit = check_conf(audit_text, config.audit_conf, benchmark, config.scenario, audit=True)
        audit.problems += _kind_of_run(audit, benchmark, scenario, mode)
        if not audit.problems and not list(_applying(audit.settings, "*", scenario)):
            audit.problems.append(Problem(None, f"no line applies to {scenario}", "see configs/audits"))
    # The settings of an audit.config override user.conf.
    above = {} if audit is None else {key: lookup(audit.settings, "*", scenario, key) for key in KEYS}
    if config.target_qps is None and not rate_follows and not trial:
        user.problems += missing_rate(user, benchmark, scenario, mode, above)
    for conf in (user,) if audit is None else (user, audit):
        conf.problems += _no_queries(conf, user, benchmark, scenario, above)
        conf.refuse()
    notes = [user.note] if user.note else []
    if not list(_applying(user.settings, benchmark.loadgen_key, scenario)):
        notes.append(f"{path}: no line applies to {benchmark.loadgen_key} in {scenario}")
    reasons = list(settings_reasons(user.settings, benchmark, config.scenario))
    if config.target_qps is not None:
        rate = f"{config.target_qps:.10f}".rstrip("0").rstrip(".")
        text = with_setting(text, benchmark.loadgen_key, scenario, "target_qps", rate)
    if audit is not None:
        notes += [audit.note] if audit.note else []
        reasons.append("audit.config changes LoadGen's settings, so this run is an audit")
    _check_counts(resolved, user, above, sample_count)
    return LoadgenConf(path, text, audit_text, reasons, notes, trial)


def _applying(settings: Sequence[Setting], model: str, scenario: str) -> Iterator[Setting]:
    """Yield the lines that LoadGen reads for a model and a scenario."""
    for setting in settings:
        if setting.model in ("*", model) and setting.scenario in ("*", scenario) and is_read(setting.key, scenario):
            yield setting


def missing_rate(
    user: CheckedConf, benchmark: Benchmark, scenario: str, mode: Mode, above: Mapping[str, float | None]
) -> Iterator[Problem]:
    """Refuse a run at LoadGen's default rate or expected latency.

    Args:
        above: Settings of an audit.config, which win over user.conf.
    """
    key, meaning, default = _CHOSEN[scenario]
    value = partial(_effective, above, user.settings, benchmark.loadgen_key, scenario)
    faulty = (problem.setting for problem in user.problems if problem.setting is not None)
    if value(key) is not None or any(setting.key == key and setting.scenario in ("*", scenario) for setting in faulty):
        return
    # Server issues queries at this rate in each mode. In other scenarios, the rate decides the number of samples.
    if scenario != "Server" and (mode == "accuracy" or value("min_duration") == 0):
        return
    if scenario == "Offline" and value("performance_issue_unique"):
        return
    unread = [line for line in user.ignored if line.setting.key == key and line.setting.scenario in ("*", scenario)]
    for_others = "; ".join(f"line {line.setting.line} is for {line.setting.model}" for line in unread[:3])
    why = f" ({for_others})" if unread else ""
    example = unread[-1].setting.value if unread else {"target_qps": "10", "target_latency": "300"}[key]
    name = f"{benchmark.loadgen_key if unread else '*'}.{scenario}.{key}"
    option = " or give --target-qps" if key == "target_qps" else ""
    yield Problem(
        None,
        f"no line sets {key} for {benchmark.loadgen_key} in {scenario}{why}; LoadGen would use {default}",
        f"add `{name} = {example}` with {meaning},{option or ' measured or estimated'}",
    )


def _effective(
    above: Mapping[str, float | None], settings: Sequence[Setting], model: str, scenario: str, key: str
) -> float | None:
    value_above = above.get(key)
    return lookup(settings, model, scenario, key) if value_above is None else value_above


def refuse_missing_rate(
    text: str, path: Path, benchmark: Benchmark, scenario: Scenario, mode: Mode, above: Mapping[str, float | None]
) -> None:
    """Raise the problem of `missing_rate` for a user.conf that was accepted with `rate_follows`.

    Raises:
        InputError: If the rate is missing.
    """
    user = check_conf(text, path, benchmark, scenario)
    user.problems += missing_rate(user, benchmark, LOADGEN_SCENARIO[scenario], mode, above)
    user.refuse()


def _no_queries(
    conf: CheckedConf, user: CheckedConf, benchmark: Benchmark, scenario: str, above: Mapping[str, float | None]
) -> Iterator[Problem]:
    """Refuse min_query_count = 0 if LoadGen would divide by it or issue no query."""
    value = partial(_effective, above, user.settings, benchmark.loadgen_key, scenario)
    line = effective_line(conf.settings, (benchmark.loadgen_key,), scenario, "min_query_count")
    if line is not None and value("min_query_count") == 0 and (scenario == "Server" or value("min_duration") == 0):
        yield Problem(line.line, f"min_query_count = {line.value}: LoadGen would crash", "set a number above 0", line)


def _kind_of_run(conf: CheckedConf, benchmark: Benchmark, scenario: str, mode: Mode) -> Iterator[Problem]:
    """Refuse lines that contradict --accuracy or the benchmark's kind of latencies."""
    models = (benchmark.loadgen_key,)  # `settings` contains only the lines for * of audit.config
    wanted = _MODES[mode]
    line = effective_line(conf.settings, models, scenario, "mode")
    if line is not None and (stated := number_of(line.value, KEYS["mode"])) != wanted:
        option = "remove" if mode == "accuracy" else "add"
        yield Problem(
            line.line,
            f"mode = {stated}: this run has mode {wanted} ({mode})",
            f"write {wanted}, remove the line, or {option} --accuracy",
        )
    line = effective_line(conf.settings, models, scenario, "use_token_latencies")
    if line is not None and not number_of(line.value, KEYS["use_token_latencies"]):
        yield Problem(line.line, f"use_token_latencies = {line.value}: this benchmark requires 1", "remove the line")


def settings_reasons(settings: Sequence[Setting], benchmark: Benchmark, scenario: Scenario) -> Iterator[str]:
    """Yield the values of user.conf that make a run not eligible for submission."""
    loadgen_scenario = LOADGEN_SCENARIO[scenario]
    value = partial(lookup, settings, benchmark.loadgen_key, loadgen_scenario)
    for key, (required, unit) in _least(benchmark, scenario).items():
        effective = value(key)
        if (
            effective is not None
            and effective < required
            and not (key == "performance_sample_count_override" and not effective)
        ):
            yield f"user.conf: {key} {effective:,.15g}{unit} is below the required {required:,.15g}{unit}"
    for key, limit_ms in _most_ms(benchmark, scenario).items():
        effective = value(key)
        if effective is not None and effective > limit_ms:
            yield f"user.conf: {key} {effective:,.15g} ms is above the limit of {limit_ms:,.15g} ms"
    for key in _OFF:
        if effective := value(key):
            yield f"user.conf: {key} is {effective}; a submitted run requires 0"
    if value("sample_concatenate_permutation") == 0:
        yield "user.conf: sample_concatenate_permutation is off; this benchmark requires 1"


def _least(benchmark: Benchmark, scenario: Scenario) -> dict[str, tuple[float, str]]:
    """Return the minimum values of settings with their units."""
    least: dict[str, tuple[float, str]] = {
        "min_duration": (benchmark.min_duration_ms, " ms"),
        "performance_sample_count_override": (benchmark.performance_samples, " samples"),  # 0: the whole dataset
    }
    loadgen_scenario = LOADGEN_SCENARIO[scenario]
    if loadgen_scenario == "Offline":
        least["min_query_count"] = (benchmark.performance_samples, " samples")
    else:
        percentile = benchmark.entry.percentiles.get(loadgen_scenario, PERCENTILE[loadgen_scenario])
        least["target_latency_percentile"] = (percentile * 100, "%")
    return least


def _most_ms(benchmark: Benchmark, scenario: Scenario) -> dict[str, float]:
    """Return the maximum latency limits in ms."""
    if LOADGEN_SCENARIO[scenario] != "Server":
        return {}
    most: dict[str, float] = {}
    if benchmark.limits is not None:
        most |= {"ttft_latency": benchmark.limits.ttft_ms, "tpot_latency": benchmark.limits.tpot_ms}
    if (limit_ns := benchmark.entry.latency_ns.get(scenario)) is not None:
        most["target_latency"] = limit_ns / 1e6
    return most


def _default_conf(resolved: ResolvedOptions, sample_count: int) -> Path:
    config = resolved.config
    if config.dataset_path is None:
        return TRIAL_CONF if config.is_trial else EMBEDDED_CONF
    if sample_count >= resolved.benchmark.samples(resolved.mode):
        return USER_CONF
    measured = resolved.loadgen_scenario == "Server" and not config.accuracy
    return TRIAL_CONF if measured and config.target_qps is None and config.audit_conf is None else OWN_DATA_CONF


def _check_counts(
    resolved: ResolvedOptions, user: CheckedConf, above: Mapping[str, float | None], sample_count: int
) -> None:
    """Refuse sample counts with which LoadGen would crash or skip samples in an accuracy run."""
    config, benchmark, scenario = resolved.config, resolved.benchmark, resolved.loadgen_scenario
    value = partial(_effective, above, user.settings, benchmark.loadgen_key, scenario)
    place = config.audit_conf or config.user_conf  # The harness's own files contain none of these keys.
    override = value("performance_sample_count_override")
    if override is None:
        override = benchmark.performance_samples
    loaded = min(sample_count, int(override) or sample_count)
    unique, same = value("performance_issue_unique"), value("performance_issue_same")
    index = value("performance_issue_same_index")
    if same and index is not None and index >= loaded:
        raise SetupError(
            f"{place}: performance_issue_same_index {index} is outside the {loaded} loaded samples; "
            "LoadGen would crash",
            f"use an index from 0 to {loaded - 1}",
        )
    fewer = value("accuracy_sample_count_override")
    if config.accuracy and fewer is not None and 0 < fewer < sample_count:  # 0: all
        raise SetupError(
            f"{place}: accuracy_sample_count_override {fewer} is below the {sample_count} samples of the accuracy run",
            f"remove the line, or use --total-sample-count {fewer}",
        )
    if unique and same:
        raise SetupError(
            f"{place}: performance_issue_unique and performance_issue_same exclude each other",
            "remove one of the two lines",
        )
    if unique and override > sample_count and scenario == "Offline":
        raise SetupError(
            f"{place}: performance_issue_unique with {sample_count} samples crashes LoadGen",
            f"add `*.*.performance_sample_count_override = {sample_count}`",
        )
