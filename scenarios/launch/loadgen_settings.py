"""LoadGen's settings of one run, from its built-in mlperf.conf and the user.conf in the run directory."""

from pathlib import Path
from typing import Any

from runs.benchmarks import BENCHMARKS
from runs.errors import ExecutionError, SetupError
from runs.loadgen.conf_lines import lookup, read_stored
from runs.loadgen.counts import RunCount, count_run, settings_of
from runs.loadgen.defaults import PERFORMANCE_MODE
from runs.record.manifest import RunPlan
from runs.rounds import CURRENT_ROUND


def build_settings(lg: Any, plan: RunPlan, user_conf: Path) -> Any:
    """Return LoadGen's `TestSettings`. Call this once, because LoadGen loads mlperf.conf only once per process.

    Raises:
        SetupError: If LoadGen rejects the file, or mlperf.conf has no settings for this model.
    """
    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, plan.loadgen_scenario)
    code = settings.FromConfig(str(user_conf), plan.loadgen_key, plan.loadgen_scenario, 1)
    if code != 0:
        raise SetupError(f"{user_conf}: LoadGen rejects it (code {code})", "write lines model.scenario.key = value")
    if not settings.use_token_latencies or settings.schedule_rng_seed == 0:
        raise SetupError(
            f"LoadGen has no seeds or token latencies for the model {plan.loadgen_key}",
            "install the pinned LoadGen with `make setup`, and remove the line use_token_latencies = 0 from user.conf",
        )
    if plan.schedule_rng_seed is not None:
        settings.schedule_rng_seed = plan.schedule_rng_seed
    settings.mode = lg.TestMode.AccuracyOnly if plan.mode == "accuracy" else lg.TestMode.PerformanceOnly
    return settings


def build_log_settings(lg: Any, plan: RunPlan, out_dir: Path) -> Any:
    """Return LoadGen's log settings: logs in the run directory, no terminal output, a trace only on request."""
    output = lg.LogOutputSettings()
    output.outdir = str(out_dir)
    output.copy_summary_to_stdout = False
    log = lg.LogSettings()
    log.log_output = output
    log.enable_trace = plan.enable_log_trace
    return log


def expected_size(plan: RunPlan, *files: Path) -> RunCount | None:
    """Return the size of a run; None if the engine's speed decides it, or an audit that sets a minimum duration.

    Args:
        files: Files of LoadGen's settings. A file overrides the settings of the files before it.
    """
    overriding_first = [read_stored(file) for file in reversed(files)]

    def value(key: str) -> float | None:
        numbers = (lookup(lines, plan.loadgen_key, plan.loadgen_scenario, key) for lines in overriding_first)
        return next((number for number in numbers if number is not None), None)

    settings = settings_of(plan.scenario, BENCHMARKS[plan.loadgen_key], CURRENT_ROUND, plan.sample_count, value)
    is_fixed = not settings.min_duration_ms and not settings.equal_issue and value("mode") in (None, PERFORMANCE_MODE)
    if plan.mode == "performance" and (plan.audit or plan.loadgen_scenario == "SingleStream") and not is_fixed:
        return None
    return count_run(settings, plan.mode)


def check_engaged(detail: Any, plan: RunPlan) -> None:
    """Check after the run that LoadGen used the requested mode and scenario.

    Raises:
        ExecutionError: If another file, such as an audit.config, changed them.
    """
    mode = {"accuracy": "AccuracyOnly", "performance": "PerformanceOnly"}[plan.mode]
    for name, wanted in (("effective_test_mode", mode), ("effective_scenario", plan.loadgen_scenario)):
        effective = detail.get(name)
        if effective != wanted and not (plan.audit and name == "effective_test_mode"):
            raise ExecutionError(f"LoadGen used {name} {effective}, requested: {wanted}", "see mlperf_log_detail.txt")
