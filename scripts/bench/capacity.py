"""What a sample costs the leg's process and a replica's, and what that process can carry.

(h) with dummy replicas, and with vLLM's own front end and scheduler around a model that is computed in no time.
(k) with very many dummy replicas: what grows with their number.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

from runs.numbers.numbers import Numbers
from runs.record.manifest import DEFAULT_ROUTING
from sut.engine import Request
from sut.replicas.routing import Routing

from .report import BenchPart, Figure, at_most
from .simulation import NOBODY
from .sizes import Sizes
from .tools.legs import engine_plan
from .tools.models import TINY, make_llama
from .tools.null_run import PROMPT_IDS, NullSpec, null_run

REPLICAS = (1, 2, 4)
SERVER_QPS = 1_340.0  # the best eight GPUs of MLPerf Inference v6.1: 171,114 tokens/s of 128 each
VLLM_SERVER_QPS = 50.0  # two cores compute no more of vLLM's own work than a few hundred
EXECUTOR = "scripts.bench.tools.executors.InstantExecutor"
# As on an accelerator: large batches, and prompts that fit into a step.
ENGINE_ARGUMENTS = {
    "distributed_executor_backend": EXECUTOR,
    "max_num_seqs": 1024,
    "max_num_batched_tokens": 8192,
    "max_model_len": 1024,
}
ROUTED = (8, 72, 512)  # replicas of which the router alone is measured
ROUTED_QUERIES = 20_000
OPEN_A_REPLICA = 200
CORE_US = 1e6
QPS_A_DEVICE = SERVER_QPS / 8

Measured = tuple[Numbers, dict[str, Any]]


def run(work: Path, sizes: Sizes) -> BenchPart:
    """(h) Each number of replicas in turn."""
    part = BenchPart("h", "capacity: CPU time a sample around engines that answer 128 ids at once")
    for count in REPLICAS:
        dummy = NullSpec("", "Server", target_qps=SERVER_QPS, replicas=count, kind="dummy")
        _both(part, work, f"{count} dummy replica{'s' * (count > 1)}", dummy, sizes.capacity_samples, sizes)
    vllm = vllm_spec(work)
    for count in (0, *REPLICAS):
        spec = dataclasses.replace(vllm, replicas=count)
        name = f"vLLM, {count} replica{'s' * (count > 1)}" if count else "vLLM in the leg's process"
        _both(part, work, name, spec, sizes.capacity_vllm_samples, sizes)
    part.notes.append(
        "CPU time is of all threads of a process, LoadGen's, the recorder's and the messaging library's too, without "
        "the start; prompts have 850 ids. A replica's is its engine's own work as well: the dummy's, or vLLM's front "
        "end and scheduler, whose model is computed in no time. In Server every query is a message of its own each "
        "way, in Offline several travel together; the slower the replicas, the fewer, and after each pause work takes "
        "longer, as the caches are cold. Without replicas, what is beside the leg's process is vLLM's core."
    )
    return part


def vllm_spec(work: Path) -> NullSpec:
    """vLLM in the leg's process, in Server; its model, which takes no time, is made in a folder."""
    model = make_llama(work / "model", TINY)
    options = {"scenario": "Server", "vllm": True, "model_path": str(model), "engine_arg": ENGINE_ARGUMENTS}
    plan = engine_plan(work, options)
    environment = {**plan.environment, "VLLM_CPU_KVCACHE_SPACE": "1"}
    spec = NullSpec("", "Server", target_qps=VLLM_SERVER_QPS, kind="vllm", model_path=str(model))
    return dataclasses.replace(spec, engine_options=plan.engine_options, environment=environment)


def _both(part: BenchPart, work: Path, name: str, spec: NullSpec, samples: int, sizes: Sizes) -> None:
    """Server at the spec's rate, then one Offline query."""
    folder = work / name.replace(" ", "-")
    duration_ms = int(sizes.null_seconds * 1e3)
    server = dataclasses.replace(spec, min_duration_ms=duration_ms)
    offline = dataclasses.replace(spec, scenario="Offline", target_qps=1.0, min_query_count=samples)
    target = at_most(30) if spec.replicas else None

    def runs(one: NullSpec) -> list[Measured]:
        places = (str(folder / f"{one.scenario}-{repeat}") for repeat in range(sizes.repeats))
        return [null_run(dataclasses.replace(one, outdir=place)) for place in places]

    def add(mode: str, found: list[Measured], aim: Any) -> None:
        def cost(key: str) -> list[float]:
            return [facts[key] / facts["samples"] * 1e6 for _, facts in found]

        part.add(f"{name}, {mode}: leg's process", "µs", cost("cpu_s"), aim)
        part.add(f"{name}, {mode}: beside it", "µs", cost("engines_cpu_s"))

    add(f"Server {spec.target_qps:,.0f} qps", runs(server), None)
    found = runs(offline)
    add("Offline", found, target)
    part.add(f"{name}: Offline rate", "samples/s", [numbers.samples_per_second or 0.0 for numbers, _ in found])


def many(work: Path, sizes: Sizes) -> BenchPart:
    """(k) Dummy replicas as far as this machine goes, the router alone for more."""
    part = BenchPart("k", "many replicas: dummy ones as far as two cores go, and what the leg's process can carry")
    cost: dict[str, Figure] = {}
    for count in sizes.many_replicas:
        offline: dict[str, Any] = {"min_query_count": sizes.capacity_samples}
        server = {"scenario": "Server", "target_qps": SERVER_QPS, "min_duration_ms": int(sizes.null_seconds * 1e3)}
        for mode, settings in (("Offline", offline), (f"Server {SERVER_QPS:,.0f} qps", server)):
            spec = NullSpec(str(work / f"{mode.split()[0]}-{count}"), replicas=count, kind="dummy", **settings)
            _, facts = null_run(spec)
            used = [facts["cpu_s"] / facts["samples"] * 1e6]
            cost[spec.scenario] = part.add(f"{count} replicas, {mode}: leg's process, a sample", "µs", used)
        part.add(f"{count} replicas: start of all", "s", [facts["start_s"]])
        part.add(f"{count} replicas: leg's process, idle, of a core", "%", [100 * facts["idle_share"]])
        part.add(f"{count} replicas: leg's memory", "GB", [facts["peak_memory_bytes"] / 1e9])
        part.add(f"{count} replicas: leg's open files", "", [facts["open_files"]])
    for count in ROUTED:
        part.add(f"router, {count} replicas: a query", "µs", [_routed_us(count) for _ in range(sizes.repeats)])
    for scenario, figure in cost.items():
        most = CORE_US / figure.median
        part.add(f"{scenario}: a core's worth of queries", "queries/s", [most])
        part.add(f"{scenario}: devices that this feeds, at {QPS_A_DEVICE:g} queries/s each", "", [most / QPS_A_DEVICE])
    part.notes.append(
        "the leg's process has one event loop and LoadGen's thread: what it carries is bounded by a core's worth of "
        "its CPU time, most of it Python's. Start: all replicas of this machine's cores at once; on machines of their "
        "own they start beside each other."
    )
    return part


def _routed_us(replicas: int) -> float:
    """The router's own time for a query, from its choice to its answer, with many open."""
    routing = Routing(DEFAULT_ROUTING, replicas)
    query = Request(NOBODY, PROMPT_IDS)
    opened = [(tag, routing.choose(tag, query)) for tag in range(OPEN_A_REPLICA * replicas)]
    began = time.perf_counter()
    for number in range(ROUTED_QUERIES):
        tag, replica = opened[number % len(opened)]
        routing.first_token(replica, tag)
        routing.answered(replica, tag)
        opened[number % len(opened)] = (tag, routing.choose(tag, query))
    return (time.perf_counter() - began) / ROUTED_QUERIES * 1e6
