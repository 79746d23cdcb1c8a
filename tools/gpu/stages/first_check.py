"""Stage C: the GPU, the reduced libraries of vLLM, and `doctor`. If something is missing, the measurements end."""

import json
import sys
from importlib.util import find_spec

from runs.errors import ExecutionError, SetupError
from runs.harness import HARNESS_ROOT, harness_facts
from runs.machine.accelerators import accelerators
from runs.machine.environment import software_versions
from runs.processes.child import run_program
from tools.gpu.commands import run_command
from tools.gpu.inputs import large_model
from tools.gpu.probe import FAILED
from tools.gpu.stage import GPU, GpuStage, Skipped, Stage

PROBE = "probe"
_MISSING = "MISSING"


def measure(stage: GpuStage) -> None:
    """Check what the other stages need.

    Raises:
        SetupError: If the other stages cannot run.
    """
    stage.session.update(system=system_facts(dummy=stage.options.dummy))
    for name, value in stage.session.results.system.items():
        stage.say(f"   {name}: {value}")
    stage.step("doctor", 25, lambda: examine(stage))
    stage.step(PROBE, 15, lambda: probe(stage))
    failed = [f"{name}: {outcome}" for name, outcome in stage.steps.items() if outcome.startswith("failed")]
    if failed:
        raise SetupError("; ".join(failed), "see tools/gpu/README.md, If a step fails")


def system_facts(*, dummy: bool) -> dict[str, str]:
    """Return the conditions of all figures."""
    versions, devices = software_versions(), accelerators()
    device = devices[0] if devices else {}
    names = [str(row.get("name")) for row in devices]
    return {
        GPU: ", ".join(names) if names and not dummy else "none (dummy engine)",
        "driver": str(device.get("driver_version") or "unknown"),
        "power limit": f"{device['power.limit']} W" if device.get("power.limit") else "unknown",
        "vLLM": "none (dummy engine)" if dummy else versions.get("vllm", "unknown"),
        "torch": versions.get("torch", "unknown"),
        "LoadGen": versions.get("mlcommons-loadgen", "unknown"),
        "FlashInfer": "not installed" if find_spec("flashinfer") is None else "installed",
        "weights": "random, in the shape of Llama-3.1-8B",
        "harness": str(harness_facts()["git_commit"] or "unknown")[:12],
    }


def examine(stage: GpuStage) -> None:
    """Run `doctor`; a missing part is an error."""
    dataset = large_model(stage)["dataset_path"]  # the model has no weights, which doctor would report
    done = run_command(stage, "doctor", ["doctor", "--dataset-path", dataset])
    for line in done.lines:
        if not line.startswith("ok ") or "accelerator" in line or "vLLM" in line:
            stage.say(f"   {line}")
    if missing := [line for line in done.lines if line.startswith(_MISSING)]:
        raise ExecutionError("; ".join(missing))


def probe(stage: GpuStage) -> None:
    """Record the limits of the GPU; a library without a kernel is an error."""
    if stage.options.dummy:
        raise Skipped("the dummy engine has no libraries")
    done = run_program([sys.executable, "-m", "tools.gpu.probe"], cwd=HARNESS_ROOT, timeout_s=max(1.0, stage.left_s))
    (stage.folder / "probe.txt").write_bytes(done.stdout + done.stderr)
    lines = done.stdout.decode().splitlines()
    if not lines:
        raise ExecutionError(f"the probe ended with code {done.returncode}: {done.stderr.decode()[-200:]}")
    findings = json.loads(lines[-1])
    for name, finding in findings.items():
        stage.say(f"   {name}: {finding['text']}")
        if finding["figure"]:
            stage.record(finding["figure"], finding["value"])
    if failed := [f"{name}: {row['text']}" for name, row in findings.items() if row["text"].startswith(FAILED)]:
        raise ExecutionError("; ".join(failed))


STAGE = Stage("C", "the machine: doctor, libraries, limits of the GPU", share_s=50, least_s=10, measure=measure)
