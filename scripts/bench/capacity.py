"""(h) What a sample costs the leg's process and a replica's, and the rate that they reach.

With dummy replicas, and with vLLM's own front end and scheduler around a model that is computed in no time.
"""

import dataclasses
from pathlib import Path
from typing import Any

from runs.numbers.numbers import Numbers

from .legs import engine_plan
from .models import TINY, make_llama
from .null_run import NullSpec, null_run
from .report import Part, at_most
from .sizes import Sizes

REPLICAS = (1, 2, 4)
SERVER_QPS = 1_340.0  # the best eight GPUs of MLPerf Inference v6.1: 171,114 tokens/s of 128 each
VLLM_SERVER_QPS = 50.0  # two cores compute no more of vLLM's own work than a few hundred
EXECUTOR = "scripts.bench.instant_executor.InstantExecutor"
# As on an accelerator: large batches, and prompts that fit into a step.
ENGINE_ARGUMENTS = {
    "distributed_executor_backend": EXECUTOR,
    "max_num_seqs": 1024,
    "max_num_batched_tokens": 8192,
    "max_model_len": 1024,
}

Measured = tuple[Numbers, dict[str, Any]]


def run(work: Path, sizes: Sizes) -> Part:
    """Measure each number of replicas in turn."""
    part = Part("h", "capacity: CPU time a sample around engines that answer 128 ids at once")
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
        "way, in Offline several travel together. Without replicas, what is beside the leg's process is vLLM's core."
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


def _both(part: Part, work: Path, name: str, spec: NullSpec, samples: int, sizes: Sizes) -> None:
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
