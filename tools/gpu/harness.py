"""Runs of the harness, started with `main.py`, and the reports of stages on them."""

import contextlib
import json
import math
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.errors import ExecutionError, ExitCode
from runs.harness import HARNESS_ROOT
from runs.numbers.result import RunNumbers, read_result
from runs.processes.child import end_group
from runs.record.engines.engine_log import read_engine_log
from runs.record.engines.engine_stages import last_error
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, read_manifest
from tools.gpu.inputs import Inputs, rows_of
from tools.gpu.stage import GpuStage
from tools.peers.rates import MIN_QUERIES
from tools.peers.support.peer_runs import one_query, run_arguments

ENGINE_START_S = 300
OVERTIME_S = 30.0  # time that a started run may take after the end of the stage
END_S = 25.0  # time for a run to end after SIGINT
_ROUNDING = 1.08  # factor on the number of queries, so that the duration decides the end


@dataclass(frozen=True)
class RunLoad:
    """The requested load of a run: options of `main.py` and LoadGen's settings."""

    options: Inputs
    conf: dict[str, object]
    command: str = "run"


def offline_load(inputs: Inputs, samples: int, **more: Any) -> RunLoad:
    """Return the load of an Offline run with a number of samples. The edge benchmark has no minimum."""
    fixed = {"scenario": "Offline", "lg_model_name": "llama3_1-8b-edge", "total_sample_count": samples}
    return RunLoad({**inputs, **fixed, **more}, one_query(samples))


def server_load(stage: GpuStage, inputs: Inputs, scenario: str, rate: float, seconds: float) -> RunLoad:
    """Return the load of a Server or Interactive run over one dataset, because LoadGen rounds up to whole datasets."""
    rows = rows_of(stage)
    seconds = min(seconds, (rows - 10) / (_ROUNDING * rate))
    samples = min(rows, max(MIN_QUERIES + 21, math.ceil(_ROUNDING * rate * seconds) + 10))
    conf = {"min_duration": round(1e3 * seconds), "min_query_count": MIN_QUERIES, "target_qps": f"{rate:.6f}"}
    return RunLoad({**inputs, "scenario": scenario, "total_sample_count": samples}, conf)


class StartedCommand:
    """A running command of the harness, in its own process group."""

    def __init__(self, place: Path, load: RunLoad) -> None:
        options = {**load.options, "engine_arg": _engine_arguments(load.options)}
        self.run, self.log, self.started_s = RunDir(place), place.with_name(f"{place.name}.log"), time.monotonic()
        arguments = [*run_arguments(self.run, options, load.conf), "--engine-start-timeout-s", str(ENGINE_START_S)]
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "main.py", load.command, *arguments],
                cwd=HARNESS_ROOT,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started_s

    def wait(self, seconds: float) -> int:
        """Wait for the end; return the exit code.

        Raises:
            ExecutionError: If it did not end in time.
        """
        try:
            return self.process.wait(max(1.0, seconds))
        except subprocess.TimeoutExpired:
            self.end()
            raise ExecutionError(f"no end after {seconds:.0f} s; {self.error()}") from None

    def end(self) -> None:
        """Interrupt a run, and kill its remaining processes."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
        end_group(self.process)

    def error(self) -> str:
        """Return the run's error with its fix, otherwise the end of its output; and the engine's last error."""
        lines = self.output()
        reported = [number for number, line in enumerate(lines) if line.startswith("error")]
        lines = lines[reported[-1] :][:3] if reported else lines[-4:]
        if error := last_error(self.run.engine_log):
            lines.append(f"engine.log: {error}")
        return "\n   ".join(lines)

    def output(self) -> list[str]:
        return self.log.read_text(errors="replace").strip().splitlines()


def _engine_arguments(options: Inputs) -> list[str]:
    return [
        f"{name}={json.dumps(value) if isinstance(value, bool) else value}"
        for name, value in options["engine_arg"].items()
    ]


@dataclass(frozen=True)
class MeasuredRun:
    """The manifest and result of a run with a verdict."""

    run: RunDir
    result: RunNumbers
    manifest: Manifest

    @property
    def rate(self) -> float:
        """The rate in samples/s."""
        return (self.result.reported.samples_per_second if self.result.reported else None) or 0.0

    def line(self) -> str:
        """Return the run as a line of text."""
        result, numbers, lag = self.result, self.result.reported, self.manifest.observed.loop_lag
        parts: list[str] = [result.verdict]
        if numbers is not None and numbers.samples_per_second:
            parts.append(f"{numbers.samples_per_second:.2f} samples/s")
        if numbers is not None and numbers.tokens_per_second:
            parts.append(f"{numbers.tokens_per_second:,.0f} tokens/s")
        parts.append(f"{result.counts.samples} samples in {(result.duration_ns or 0) / 1e9:.0f} s")
        for name in ("ttft", "tpot", "latency"):
            if (values := getattr(numbers, f"{name}_ns", None)) is not None:
                parts += [f"{name.upper()} p50 {values.p50 / 1e6:.4g} p99 {values.p99 / 1e6:.4g} ms"]
        if lag is not None:
            parts.append(f"loop lag p99 {lag.p99_ms:.3g} worst {lag.worst_ms:.3g} ms")
        return ", ".join([*parts, *result.reasons])

    def as_json(self) -> dict[str, Any]:
        """Return the numbers for the stage's JSON file."""
        observed = self.manifest.observed
        return {
            "result": self.result.model_dump(mode="json"),
            "configuration": self.manifest.engine.configuration,
            "warm_up": self.manifest.engine.warm_up and self.manifest.engine.warm_up.model_dump(),
            "loop_lag": observed.loop_lag and observed.loop_lag.model_dump(),
            "start_stages": observed.start_stages,
            "cached_prompt_tokens": observed.cached_prompt_tokens,
            "kv_cache_tokens": read_engine_log(self.run.engine_log).kv_cache_tokens,
        }


def start(stage: GpuStage, name: str, load: RunLoad) -> StartedCommand:
    """Start a run of a stage."""
    return StartedCommand(stage.folder / name, load)


def finish(stage: GpuStage, name: str, started: StartedCommand) -> MeasuredRun:
    """Wait for a run, and report it.

    Raises:
        ExecutionError: If it has no verdict.
    """
    code = started.wait(stage.left_s + OVERTIME_S)
    if code not in (ExitCode.OK, ExitCode.NEGATIVE) or not started.run.result.exists():
        raise ExecutionError(f"exit code {code}: {started.error()}")
    run = MeasuredRun(started.run, read_result(started.run.result), read_manifest(started.run.manifest))
    load, stages = stage.load.since(started.started_s), run.manifest.observed.start_stages or {}
    stage.say(f"   {name}: {run.line()}")
    parts = " ".join(f"{what.split()[0]} {seconds:.0f}" for what, seconds in stages.items())
    stage.say(f"      {started.seconds:.0f} s in all, start: {parts}; GPU {load}")
    stage.keep(name, {**run.as_json(), "exit_code": code, "seconds": round(started.seconds, 1), "gpu": load})
    return run


def run(stage: GpuStage, name: str, load: RunLoad) -> MeasuredRun:
    """Run, wait and report."""
    return finish(stage, name, start(stage, name, load))


def finish_audit(stage: GpuStage, name: str, started: StartedCommand) -> int:
    """Wait for an audit, report it, and return its exit code."""
    code = started.wait(stage.left_s + OVERTIME_S)
    verdicts: dict[int, str] = {ExitCode.OK: "PASS", ExitCode.NEGATIVE: "FAIL"}
    verdict = verdicts.get(code, f"exit code {code}")
    stage.say(f"   {name}: {verdict} in {started.seconds:.0f} s")
    lines = [line for line in started.output() if " pass " not in line]
    for line in lines[-6:] if code in verdicts else [started.error()]:
        stage.say(f"      {line}")
    stage.keep(name, {"exit_code": code, "seconds": round(started.seconds, 1), "output": started.output()[-40:]})
    return code


def report_command(stage: GpuStage, name: str, *arguments: str, lines: int = 8) -> None:
    """Run a command of the harness, and report the end of its output."""
    done = subprocess.run(
        [sys.executable, "main.py", *arguments],
        cwd=HARNESS_ROOT,
        capture_output=True,
        text=True,
        timeout=max(1.0, stage.left_s),
        check=False,
    )
    text = (done.stdout + done.stderr).strip()
    (stage.folder / f"{name}.txt").write_text(text)
    stage.say(f"   {name}: exit code {done.returncode}")
    for line in [line for line in text.splitlines() if " pass " not in line][-lines:]:
        stage.say(f"      {line}")
    stage.keep(name, {"exit_code": done.returncode})
