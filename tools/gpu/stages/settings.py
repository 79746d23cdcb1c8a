"""Stage T: settings that could be faster. Offline in a run, then the highest valid Server rate with `tune`.

vLLM compiles the model for each setting, so a start takes longer than a run. The setting that is expected to be the
fastest is measured first.
"""

from dataclasses import asdict

from runs.bench.measure import measure_run
from runs.record.tune_dir import TuneDir
from scenarios.tune.journal import Journal, TuneRun
from tools.gpu.commands import VERDICTS, run_command, words_of
from tools.gpu.inputs import FP8, FP8_KV, OUTPUT_TOKENS, Inputs, Setting, engine_options, rows_of, user_conf
from tools.gpu.stage import GpuStage, Skipped, Stage

SAMPLES = 1_536  # of an Offline run: three times the queries that fit in the cache of an H100
PROBES = 2
SET_SIZE = 512  # LoadGen issues whole sets
SERVER_RUN_S = 20.0


def measure(stage: GpuStage) -> None:
    """Measure the settings, the most promising one first."""
    stage.step(f"offline-{FP8_KV.name}", 135, lambda: offline(stage, FP8_KV))
    stage.step("server", 90, lambda: server(stage, best_setting(stage)))
    stage.step(f"offline-{FP8.name}", 115, lambda: offline(stage, FP8))
    stage.step("server", 90, lambda: server(stage, best_setting(stage)))  # if the first setting has no rate


def offline(stage: GpuStage, setting: Setting) -> None:
    """Measure an Offline run. The edge benchmark has no minimum of samples."""
    samples = min(SAMPLES, rows_of(stage))
    name = f"offline-{setting.name}"
    conf = user_conf(stage, name, "Offline", min_duration=1, min_query_count=samples, target_qps=1)
    place = stage.new_folder(name)
    fixed: Inputs = {"scenario": "Offline", "lg_model_name": "llama3_1-8b-edge", "total_sample_count": samples}
    options = {**engine_options(stage, setting), **fixed, "user_conf": conf, "output_log_dir": place}
    done = run_command(stage, place.name, ["run", *words_of(options)]).check(*VERDICTS)
    run = measure_run(place, kind="offline", limits=None, percentile=None, output_tokens=None, number=1, folder=place)
    if not run.done_qps or run.loadgen_qps is None:
        raise Skipped("; ".join(run.reasons))
    more = f"{run.done_qps:.1f} samples/s without fill and drain, {run.loadgen_qps:.1f} with them, {done.seconds:.0f} s"
    tokens = run.done_qps * (run.output_tokens_mean or 0.0)
    stage.record(name, tokens, more, run=run.model_dump(mode="json"), setting=asdict(setting))


def server(stage: GpuStage, setting: Setting) -> None:
    """Find a high valid Server rate; the confirmation run of `tune`, which starts an engine, is left out."""
    place = TuneDir(stage.new_folder("tune"))
    run_s = stage.options.run_s(SERVER_RUN_S)
    conf = user_conf(stage, "tune", "Server", min_duration=round(1e3 * run_s), min_query_count=459)
    fixed = {"scenario": "Server", "offline_qps": offline_rate(stage), "max_probes": PROBES, "resolution": 0.05}
    options = {**engine_options(stage, setting), **fixed, "user_conf": conf, "output_log_dir": place.root}
    options["total_sample_count"] = min(SET_SIZE, rows_of(stage))
    reported = 0

    def has_enough() -> bool:
        nonlocal reported
        probes = Journal(place.journal).runs("probe") if place.journal.exists() else []
        for probe in probes[reported:]:
            stage.say(f"   tune: {probe.target_qps:g} queries/s: {probe.verdict} in {probe.wall_s:.0f} s")
            _record_server(stage, setting, probe)
        reported = len(probes)
        return len(probes) >= PROBES

    run_command(stage, place.root.name, ["tune", *words_of(options)], has_enough).check(*VERDICTS)


def _record_server(stage: GpuStage, setting: Setting, probe: TuneRun) -> None:
    """Record a VALID rate that is the highest so far."""
    tokens = probe.target_qps * OUTPUT_TOKENS
    if not probe.valid or tokens <= (stage.value_of("server") or 0.0):
        return
    more = f"VALID at {probe.target_qps:g} queries/s, {probe.queries_answered:,} queries, engine {setting.name}"
    for name in ("ttft", "tpot"):
        if (value := getattr(probe, f"{name}_p99_ms")) is not None:
            more += f", p99 {name.upper()} {value:.3g} ms"
    stage.record("server", tokens, more, probe=probe.model_dump(mode="json"))


def best_setting(stage: GpuStage) -> Setting:
    """Return the setting with the highest Offline rate so far."""
    return max((FP8_KV, FP8), key=lambda setting: stage.value_of(f"offline-{setting.name}") or 0.0)


def offline_rate(stage: GpuStage) -> float:
    """Return the highest Offline rate of this machine in samples/s, for loads that are shares of it.

    Raises:
        Skipped: If no rate was measured or given.
    """
    tokens = stage.value_of(f"offline-{best_setting(stage).name}")
    rate = stage.options.rate or (tokens or 0.0) / OUTPUT_TOKENS
    if not rate:
        raise Skipped("the Offline rate of this machine is unknown: --rate SAMPLES_PER_S")
    return rate


STAGE = Stage("T", "faster settings: Offline in FP8, and `tune` for Server", share_s=230, least_s=135, measure=measure)
