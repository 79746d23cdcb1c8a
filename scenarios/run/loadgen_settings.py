"""LoadGen's settings for one run, from its compiled-in mlperf.conf and the user.conf in the run directory."""

from functools import partial
from pathlib import Path
from typing import Any

from runs.benchmarks import BENCHMARKS
from runs.errors import ExecutionError, SetupError
from runs.loadgen.conf_lines import lookup, read_stored
from runs.loadgen.counts import count_run, settings_of
from runs.record.manifest import RunPlan
from runs.rounds import CURRENT_ROUND


def build_settings(lg: Any, plan: RunPlan, user_conf: Path) -> Any:
    """A `TestSettings`. LoadGen loads its own mlperf.conf only at the first call in a process: call this once.

    Raises:
        SetupError: LoadGen rejects the file, or did not take its settings for this model from mlperf.conf.
    """
    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, plan.loadgen_scenario)
    code = settings.FromConfig(str(user_conf), plan.loadgen_key, plan.loadgen_scenario, 1)
    if code != 0:
        raise SetupError(f"LoadGen rejects {user_conf} (code {code})", "see its lines against LoadGen's grammar")
    if not settings.use_token_latencies or settings.schedule_rng_seed == 0:
        raise SetupError(
            f"LoadGen has no settings for the model {plan.loadgen_key}: seeds or token latencies are missing",
            "install the locked mlcommons-loadgen (`make setup`); user.conf must not switch use_token_latencies off",
        )
    settings.mode = lg.TestMode.AccuracyOnly if plan.mode == "accuracy" else lg.TestMode.PerformanceOnly
    return settings


def build_log_settings(lg: Any, plan: RunPlan, out_dir: Path) -> Any:
    """LoadGen's log settings: into the run directory, nothing on the terminal, trace only if asked."""
    output = lg.LogOutputSettings()
    output.outdir = str(out_dir)
    output.copy_summary_to_stdout = False
    log = lg.LogSettings()
    log.log_output = output
    log.enable_trace = plan.enable_log_trace
    return log


def expected_samples(plan: RunPlan, user_conf: Path) -> int | None:
    """How many samples LoadGen will issue; None where that depends on an audit or on the engine's speed."""
    if plan.mode == "performance" and (plan.audit or plan.loadgen_scenario == "SingleStream"):
        return None
    settings = read_stored(user_conf)
    value = partial(lookup, settings, plan.loadgen_key, plan.loadgen_scenario)
    benchmark = BENCHMARKS[plan.loadgen_key]
    return count_run(settings_of(plan.scenario, benchmark, CURRENT_ROUND, plan.sample_count, value), plan.mode).samples


def check_engaged(detail: Any, plan: RunPlan) -> None:
    """After the run: LoadGen ran in the mode and scenario that were asked for.

    Raises:
        ExecutionError: something (an audit configuration, say) changed them.
    """
    mode = {"accuracy": "AccuracyOnly", "performance": "PerformanceOnly"}[plan.mode]
    for name, wanted in (("effective_test_mode", mode), ("effective_scenario", plan.loadgen_scenario)):
        found = detail.get(name)
        if found != wanted and not (plan.audit and name == "effective_test_mode"):
            raise ExecutionError(f"LoadGen ran with {name} {found}, not {wanted}", "see mlperf_log_detail.txt")
