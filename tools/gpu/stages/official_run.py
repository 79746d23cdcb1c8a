"""Stage D: one Server run of official length. It takes more time than a device lent for 15 minutes has."""

from runs.numbers.result import read_result
from runs.record.layout import RunDir
from tools.gpu.commands import VERDICTS, run_command, words_of
from tools.gpu.inputs import OUTPUT_TOKENS, engine_options, user_conf
from tools.gpu.stage import GpuStage, Stage
from tools.gpu.stages.settings import best_setting, offline_rate

SHARE = 0.93  # share of the Offline rate, if `tune` found no rate
MIN_DURATION_S = 600.0


def measure(stage: GpuStage) -> None:
    """Start the run."""
    stage.step("server-official", 780, lambda: official_run(stage))


def official_run(stage: GpuStage) -> None:
    """Measure a Server run at the highest rate that `tune` found."""
    rate = (stage.value_of("server") or 0.0) / OUTPUT_TOKENS or SHARE * offline_rate(stage)
    place = RunDir(stage.new_folder("server-official"))
    duration_s = stage.options.run_s(MIN_DURATION_S)
    conf = user_conf(stage, "server-official", "Server", min_duration=round(1e3 * duration_s), target_qps=rate)
    fixed = {"scenario": "Server", "user_conf": conf, "output_log_dir": place.root}
    options = {**engine_options(stage, best_setting(stage)), **fixed}
    run_command(stage, place.root.name, ["run", *words_of(options)]).check(*VERDICTS)
    result = read_result(place.result)
    tokens = (result.reported.tokens_per_second if result.reported else None) or 0.0
    more = f"{result.verdict} at {rate:.4g} queries/s" + "".join(f"; {reason}" for reason in result.reasons[:1])
    stage.record("server-official", tokens, more, result=result.model_dump(mode="json"))


STAGE = Stage("D", "a Server run of 600 s", share_s=900, least_s=780, measure=measure)
