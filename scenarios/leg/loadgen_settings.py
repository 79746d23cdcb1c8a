"""LoadGen's settings for one leg, from its compiled-in mlperf.conf and the user.conf in the run directory."""

from pathlib import Path
from typing import Any

from runs.errors import ExecutionError, SetupError
from runs.loadgen.counts import CountSettings, count_leg
from runs.record.manifest import LegPlan


def build_settings(lg: Any, plan: LegPlan, user_conf: Path) -> Any:
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


def build_log_settings(lg: Any, plan: LegPlan, out_dir: Path) -> Any:
    """LoadGen's log settings: into the run directory, nothing on the terminal, trace only if asked."""
    output = lg.LogOutputSettings()
    output.outdir = str(out_dir)
    output.copy_summary_to_stdout = False
    log = lg.LogSettings()
    log.log_output = output
    log.enable_trace = plan.enable_log_trace
    return log


def expected_samples(settings: Any, plan: LegPlan) -> int | None:
    """How many samples LoadGen will issue, by its own rounding; None where that depends on the engine's speed.

    Only for progress: an audit configuration may still change it.
    """
    if plan.mode == "accuracy":
        return plan.sample_count
    if plan.audit or plan.loadgen_scenario == "SingleStream":
        return None
    offline = plan.loadgen_scenario == "Offline"
    counted = CountSettings(
        scenario=plan.scenario,
        set_size=min(plan.sample_count, settings.performance_sample_count_override or plan.sample_count),
        sample_count=plan.sample_count,
        target_qps=settings.offline_expected_qps if offline else settings.server_target_qps,
        target_latency_ms=0.0,
        min_duration_ms=settings.min_duration_ms,
        min_query_count=settings.min_query_count,
        equal_issue=bool(settings.sample_concatenate_permutation),
        schedule_rng_seed=settings.schedule_rng_seed,
    )
    return count_leg(counted, "performance").samples


def check_engaged(detail: Any, plan: LegPlan) -> None:
    """After the run: LoadGen ran in the mode and scenario that were asked for.

    Raises:
        ExecutionError: something (an audit configuration, say) changed them.
    """
    mode = {"accuracy": "AccuracyOnly", "performance": "PerformanceOnly"}[plan.mode]
    for name, wanted in (("effective_test_mode", mode), ("effective_scenario", plan.loadgen_scenario)):
        found = detail.get(name)
        if found != wanted and not (plan.audit and name == "effective_test_mode"):
            raise ExecutionError(f"LoadGen ran with {name} {found}, not {wanted}", "see mlperf_log_detail.txt")
