"""(h) What a sample costs the leg's process and a replica's, with dummy replicas, and the rate that they reach."""

from pathlib import Path
from typing import Any

from runs.numbers.numbers import Numbers

from .null_run import NullSpec, null_run
from .report import Part, at_most
from .sizes import Sizes

REPLICAS = (1, 2, 4)
SERVER_QPS = 1_340.0  # the best eight GPUs of MLPerf Inference v6.1: 171,114 tokens/s of 128 each
LIBRARY_SAMPLES = 1_000


def run(work: Path, sizes: Sizes) -> Part:
    """Measure each number of replicas in turn."""
    part = Part("h", "capacity: CPU time a sample with dummy replicas that answer 128 ids at once")
    for count in REPLICAS:
        server = [_server(work / f"server-{count}-{repeat}", count, sizes) for repeat in range(sizes.repeats)]
        offline = [_offline(work / f"offline-{count}-{repeat}", count, sizes) for repeat in range(sizes.repeats)]
        name = f"{count} replica{'s' * (count > 1)}"
        for mode, runs in ((f"Server {SERVER_QPS:,.0f} qps", server), ("Offline", offline)):
            leg_us = [facts["cpu_s"] / samples * 1e6 for _, facts, samples in runs]
            replica_us = [facts["replicas_cpu_s"] / samples * 1e6 for _, facts, samples in runs]
            part.add(f"{name}, {mode}: leg's process", "µs", leg_us, at_most(30) if mode == "Offline" else None)
            part.add(f"{name}, {mode}: replicas", "µs", replica_us)
        part.add(f"{name}: Offline rate", "samples/s", [numbers.samples_per_second or 0.0 for numbers, *_ in offline])
    part.notes.append(
        "CPU time is of all threads of a process, LoadGen's, the recorder's and the messaging library's too, without "
        "the start; prompts have 850 ids. A replica's is the dummy engine's own work as well. In Server every query is "
        "a message of its own each way, in Offline several travel together."
    )
    return part


def _server(folder: Path, replicas: int, sizes: Sizes) -> tuple[Numbers, dict[str, Any], int]:
    duration_ms = int(sizes.null_seconds * 1e3)
    return _run(NullSpec(str(folder), "ours", "Server", SERVER_QPS, duration_ms, 100, LIBRARY_SAMPLES, replicas))


def _offline(folder: Path, replicas: int, sizes: Sizes) -> tuple[Numbers, dict[str, Any], int]:
    count = sizes.capacity_samples
    return _run(NullSpec(str(folder), "ours", "Offline", 1.0, 1, count, LIBRARY_SAMPLES, replicas))


def _run(spec: NullSpec) -> tuple[Numbers, dict[str, Any], int]:
    numbers, facts = null_run(spec)
    return numbers, facts, facts["samples"]
