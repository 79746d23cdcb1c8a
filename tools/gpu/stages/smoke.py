"""Stage 0: everything once. GPU and libraries, `doctor`, a run of each scenario, an audit, `verify`, `results`."""

import json
import subprocess
import sys
from functools import partial

from runs.errors import ExecutionError
from runs.harness import HARNESS_ROOT
from tools.gpu.gpu_load import query_gpu
from tools.gpu.harness import RunLoad, StartedCommand, finish, finish_audit, offline_load, report_command, run, start
from tools.gpu.inputs import REHEARSAL_ROWS, SMALL_ROWS, Inputs, small_model, with_arguments
from tools.gpu.probe import FAILED
from tools.gpu.stage import ALWAYS, GpuStage

PROBE_S = 150
_DEVICE = "name,memory.total,memory.used,driver_version,power.limit"
# Multiple engines share the GPU: each gets a fixed cache, because vLLM would count the memory of other engines as its
# own.
_SHARE = {"gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 2 << 30}


def measure(stage: GpuStage) -> None:
    """Run the stage."""
    small, dummy = stage.options.small, stage.options.dummy
    if not small:
        stage.step("probe", 60, lambda: probe(stage))
    inputs = stage.step("model", 20, lambda: small_model(stage))
    if inputs is None:
        return
    files = [word for name in ("model_path", "dataset_path") for word in (f"--{name.replace('_', '-')}", inputs[name])]
    stage.step("doctor", 30, lambda: report_command(stage, "doctor", "doctor", *files))
    rows = REHEARSAL_ROWS if small else SMALL_ROWS
    stage.step("offline", 20 if dummy else 80, lambda: run(stage, "offline", offline_load(inputs, rows)))
    loads = _loads(stage, inputs, rows)
    # Starts take most of the time, so the runs start together if the machine has enough memory.
    groups = [[name] for name in loads] if small and not dummy else [list(loads)]
    for names in groups:
        stage.step(", ".join(names), 20 if dummy else 130, partial(_together, stage, loads, names))
    stage.step(
        "verify",
        20,
        lambda: report_command(stage, "verify", "verify", "--performance-only", str(stage.folder / "offline"), lines=5),
    )
    stage.step("results", 10, lambda: report_command(stage, "results", "results", str(stage.folder), lines=9))


def probe(stage: GpuStage) -> None:
    """Report the GPU and the findings of the probe."""
    stage.say(f"   {query_gpu(_DEVICE)}")
    command = [sys.executable, "-m", "tools.gpu.probe"]
    done = subprocess.run(command, cwd=HARNESS_ROOT, capture_output=True, text=True, timeout=PROBE_S, check=False)
    (stage.folder / "probe.txt").write_text(done.stdout + done.stderr)
    if not done.stdout:
        raise ExecutionError(f"the probe ended with code {done.returncode}: {done.stderr[-200:]}")
    facts = json.loads(done.stdout.splitlines()[-1])
    stage.keep("probe", facts)
    for name, text in facts.items():
        stage.say(f"{'!!' if text.startswith(FAILED) else '  '} probe, {name}: {text}")


def _loads(stage: GpuStage, inputs: Inputs, rows: int) -> dict[str, RunLoad]:
    """Return a load of each kind except Offline performance."""
    small = stage.options.small
    shared = inputs if small else with_arguments(inputs, **_SHARE)
    few = {**shared, "total_sample_count": 48 if small else 460}
    server: dict[str, object] = {
        "min_duration": round(1e3 * stage.options.seconds_of_a_run(20)),
        "min_query_count": 20 if small else 459,
        "target_qps": 2 if small and not stage.options.dummy else 20,
    }
    single: dict[str, object] = {"min_duration": 1, "min_query_count": 63, "target_latency": 1}
    audit = offline_load(shared, rows, test="TEST06")
    return {
        "accuracy": offline_load(shared, rows, accuracy=True),
        "server": RunLoad({**few, "scenario": "Server"}, server),
        "interactive": RunLoad({**few, "scenario": "Interactive"}, server),
        "single": RunLoad({**shared, "scenario": "SingleStream", "total_sample_count": 64}, single),
        "test06": RunLoad(audit.options, audit.conf, "audit"),
    }


def _together(stage: GpuStage, loads: dict[str, RunLoad], names: list[str]) -> None:
    """Start runs together, and report each."""
    started = {name: start(stage, name, loads[name]) for name in names}
    for name, process in started.items():
        stage.step(name, ALWAYS, partial(_report, stage, name, loads[name], process))


def _report(stage: GpuStage, name: str, load: RunLoad, started: StartedCommand) -> None:
    if load.command == "audit":
        finish_audit(stage, name, started)
    else:
        finish(stage, name, started)
