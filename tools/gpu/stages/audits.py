"""Stage 3: a killed engine; the caching audit on an engine without and with a cache; prefix caching in a run."""

import time

import psutil

from runs.errors import ExecutionError, ExitCode
from tools.gpu.gpu_load import query_gpu
from tools.gpu.harness import RunLoad, StartedCommand, finish_audit, offline_load, run, start
from tools.gpu.inputs import DUMMY_OF_AN_AUDIT, large_model, small_model, with_arguments
from tools.gpu.stage import GpuStage, Skipped
from tools.gpu.stages.processes import engine_core, until_running

END_S = 60.0  # time limit for a run to end after its engine died


def measure(stage: GpuStage) -> None:
    """Run the stage, the short steps first."""
    dummy = stage.options.dummy
    stage.step("kill", 10 if dummy else 60, lambda: kill_engine(stage))
    stage.step("caching-off", 20 if dummy else 140, lambda: audit(stage, "caching-off", ExitCode.OK))
    if not dummy:  # the dummy engine has no cache
        stage.step("caching-on", 170, lambda: audit(stage, "caching-on", ExitCode.NEGATIVE, enable_prefix_caching=True))
        stage.step("prefix", 60, lambda: prefix_caching(stage))


def audit(stage: GpuStage, name: str, expected: ExitCode, **arguments: object) -> None:
    """Run the caching audit on the large model, whose prompts take long enough to expose a cache."""
    inputs = large_model(stage, "bf16")
    eager = {} if stage.options.small else {"enforce_eager": True}  # starts faster
    options = {**with_arguments(inputs, **eager, **arguments), "scenario": "Offline", "test": "output_caching"}
    options |= DUMMY_OF_AN_AUDIT if stage.options.dummy else {}
    code = finish_audit(stage, name, start(stage, name, RunLoad(options, {"target_qps": 1}, "audit")))
    _report_expected(stage, name, code == expected, f"exit code {code}, expected: {expected:d}")


def prefix_caching(stage: GpuStage) -> None:
    """Check that a run with prefix caching is marked as not eligible for submission, and counts the reused tokens."""
    inputs = with_arguments(small_model(stage), enable_prefix_caching=True)
    load = offline_load(inputs, 64)
    manifest = run(stage, "prefix", RunLoad(load.options, {**load.conf, "min_query_count": 128})).manifest
    reasons = [reason for reason in manifest.unofficial_reasons if "prefix" in reason]
    reused = manifest.observed.cached_prompt_tokens
    _report_expected(stage, "prefix caching in a run", bool(reasons and reused), f"{reasons}, {reused} reused tokens")


def kill_engine(stage: GpuStage) -> None:
    """Kill vLLM's core during a run with SIGKILL: expect exit code 4, no remaining process, and free GPU memory."""
    if stage.options.dummy:
        raise Skipped("a rehearsal with the dummy engine has no vLLM")
    load = offline_load(small_model(stage), 96 if stage.options.small else 512)
    conf: dict[str, object] = {"min_duration": 600_000, "min_query_count": 1, "target_qps": 10}
    started = start(stage, "killed", RunLoad(load.options, conf))
    try:
        _kill(stage, started)
    finally:
        started.end()


def _kill(stage: GpuStage, started: StartedCommand) -> None:
    progress = until_running(stage, started, lambda progress: progress.output_tokens > 0)
    family = psutil.Process(progress.pid).children(recursive=True)
    core = engine_core(progress.pid)
    if core is None:
        raise ExecutionError(f"the run has no process of an engine core; {started.error()}")
    killed_s = time.monotonic()
    core.kill()
    code = started.wait(END_S)
    seconds = time.monotonic() - killed_s
    _, alive = psutil.wait_procs(family, timeout=1)
    left = ", ".join(str(process.pid) for process in alive) or "none"
    text = (
        f"exit code {code} after {seconds:.1f} s, processes left: {left}, GPU memory in use: {query_gpu('memory.used')}"
    )
    _report_expected(stage, "kill -9 of the engine", code == ExitCode.FAILED and not alive, text)
    stage.say(f"      {started.error()}")


def _report_expected(stage: GpuStage, name: str, is_expected: bool, text: str) -> None:
    stage.say(f"== {name}: {'as expected' if is_expected else 'NOT as expected'}: {text}")
    stage.keep(name, {"as_expected": is_expected, "found": text})
