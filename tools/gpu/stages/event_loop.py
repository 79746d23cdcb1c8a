"""Stage 4: the cost of the event loop, by profiles of a Server run and LoadGen's delays of issue."""

import contextlib
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil

from runs.loadgen.schedule import poisson_offsets_ns
from runs.record.requests_log import read_request_table
from tools.gpu.harness import MeasuredRun, RunLoad, finish, run, server_load, start
from tools.gpu.inputs import large_model, small_model
from tools.gpu.stage import GpuStage
from tools.gpu.stages.offline import offline_rate
from tools.gpu.stages.processes import engine_core, until_running

PROFILE_S = 15.0
SHARE = 0.90  # share of the Offline rate
FAST_RATE = 300.0  # queries/s of the small model, at which the loop's work dominates
_WAITING = re.compile(r"\b(select|poll|wait|epoll|_recv|recv_multipart|sleep|acquire|futex)\b")


def measure(stage: GpuStage) -> None:
    """Run the stage."""
    rate = stage.step("rate", 1, lambda: offline_rate(stage))
    if rate is None:
        return
    seconds, dummy = stage.options.seconds_of_a_run(75), stage.options.dummy
    load = server_load(stage, large_model(stage, stage.options.precision), "Server", SHARE * rate, seconds)
    finished = stage.step("profile", seconds + (PROFILE_S if dummy else 90), lambda: profile(stage, load, seconds))
    if finished is not None:
        report_lateness(stage, "profiled", finished)
    if not stage.options.small:
        conf: dict[str, object] = {"min_duration": 20_000, "min_query_count": 459, "target_qps": FAST_RATE}
        fast = RunLoad({**small_model(stage), "scenario": "Server", "total_sample_count": 512}, conf)
        finished = stage.step("fast", 70, lambda: run(stage, "fast", fast))
        if finished is not None:
            report_lateness(stage, "fast", finished)


def profile(stage: GpuStage, load: RunLoad, seconds: float) -> MeasuredRun:
    """Run, and profile the run's process and the engine's process with py-spy."""
    started = start(stage, "profiled", load)
    progress = until_running(stage, started, lambda progress: progress.elapsed_s > seconds / 6)
    processes = {"run": psutil.Process(progress.pid)}
    if (core := engine_core(progress.pid)) is not None:
        processes["core"] = core
    before_s = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
    since_s = time.monotonic()
    profiles = {name: stage.folder / f"{name}.folded.txt" for name in processes}
    spies = [_spy(processes[name], path, min(PROFILE_S, seconds)) for name, path in profiles.items()]
    with contextlib.suppress(subprocess.TimeoutExpired):
        started.process.wait(min(PROFILE_S, seconds))
    for spy in spies:
        if spy is not None:
            spy.wait(25)
    elapsed_s = time.monotonic() - since_s
    for name, process in processes.items():
        with contextlib.suppress(psutil.Error):
            cores = (sum(process.cpu_times()[:2]) - before_s[name]) / elapsed_s
            stage.say(f"   {name}: {cores:.2f} cores in use")
            stage.keep(f"cores {name}", cores)
    finished = finish(stage, "profiled", started)
    for name, path in profiles.items():
        for line in hottest(path) if path.exists() else ["no profile"]:
            stage.say(f"      {name}: {line}")
    return finished


def _spy(process: psutil.Process, path: Path, seconds: float) -> "subprocess.Popen[bytes] | None":
    command = ["py-spy", "record", "--nonblocking", "-d", f"{seconds:.0f}", "-r", "100", "-f", "raw", "-t"]
    with contextlib.suppress(OSError):  # py-spy is not installed
        return subprocess.Popen([*command, "-o", str(path), "-p", str(process.pid)], stdout=subprocess.DEVNULL)
    return None


def hottest(path: Path, count: int = 8) -> list[str]:
    """Return the functions with the most own samples, without waiting functions."""
    own_samples: Counter[str] = Counter()
    for line in path.read_text(errors="replace").splitlines():
        stack, _, samples = line.rpartition(" ")
        function = stack.rpartition(";")[2]
        if not _WAITING.search(function):
            own_samples[function] += int(samples)
    total = own_samples.total()
    return [f"{100 * samples / total:4.1f} %  {function[:120]}" for function, samples in own_samples.most_common(count)]


def report_lateness(stage: GpuStage, name: str, finished: MeasuredRun) -> None:
    """Report the delay of LoadGen's issues against the schedule, which follows from the seed."""
    settings = finished.result.in_force
    issued_ns = np.sort(read_request_table(finished.run.requests).issue_ns)
    planned_ns = poisson_offsets_ns(settings.schedule_rng_seed, settings.target_qps, len(issued_ns))
    late_ms = (issued_ns - issued_ns[0] - planned_ns) / 1e6
    late_ms -= late_ms.min()
    lateness = {name: round(float(np.percentile(late_ms, share)), 3) for name, share in (("p50", 50), ("p99", 99))}
    lateness["worst"] = round(float(late_ms.max()), 3)
    stage.say(f"== {name}: issued later than scheduled, in ms, the earliest counting as 0: {lateness}")
    stage.keep(f"lateness {name}", lateness)
