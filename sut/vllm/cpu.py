"""Settings of vLLM, OpenMP and the C library on the CPU: variables, and the work of one step.

vLLM's own limits for a CPU do not depend on the model: 2,048 tokens a step take a small model 20 ms and a larger one
seconds, for which every query in the engine waits.
"""

import contextlib
import functools
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runs.benchmark import Scenario
from runs.errors import SetupError
from sut.vllm.parallel import parallel_size

KV_CACHE_GIB_ON_CPU = 4  # filled with zeros at the start, which takes a second or more a GiB
LIGHT_KV_CACHE_GIB = 1  # for few queries of the embedded model at a time: 35 of the longest
BINDING_PAYS_FROM = 8  # cores a copy: a core for vLLM's waiting process then costs an eighth at most
CORE_PROCESS = "VLLM_ENABLE_V1_MULTIPROCESSING"  # vLLM's switch: "0" for no other process than the one that schedules
# glibc gives large buffers back to the kernel when they are freed, and the CPU engine frees and asks again for its
# activations at every step: hundreds of thousands of page faults a minute. Kept instead. [mallopt(3)]
KEEP_FREED_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
# Once all blocks of the KV cache were given out and taken back, a request's lie scattered over it, and with pages of
# 4 KiB the engine is slower by up to a tenth. Huge pages, where the kernel gives them on request (madvise).
# [the GNU C Library's manual, "Memory Allocation Tunables"]
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

START_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
PRELOAD = "LD_PRELOAD"
OPENMP = "libgomp"

# Of a step, where nothing else is asked for.
QUERIES = 512  # in the engine at a time (vLLM's servers on a CPU: 128); with 256 a small model's wait for a place
FEWEST_TOKENS, UNIT = 512, 128
# A small model's step costs more than its multiplications: attention, and what is done once a query.
MAX_TOKENS: dict[Scenario, int] = {"Server": 2048, "Interactive": 1024}
# What a step full of prompts may take: the scenario's limit for an output token.
LONGEST_STEP_S: dict[Scenario, float] = {"Server": 0.1, "Interactive": 0.03}
MULTIPLY_ADDS_PER_S = 40e9  # per core, float32 with AVX2: 9.5 M parameters take 0.11 ms per token on two cores


def check_data_types(options: Mapping[str, Any], precision: str, quantization: Mapping[str, Any]) -> None:
    """Refuse data types that vLLM cannot compute with on this processor.

    Args:
        options: engine options.
        precision: of the model's weights, as in the record.
        quantization: of config.json.

    Raises:
        SetupError: If no processor, or not this one, has the instructions.
    """
    cache, for_fp8_cache = str(options.get("kv_cache_dtype", "auto")), ("avx512f", "amx_tile")
    if cache.startswith("fp8"):  # [vLLM 0.32.0: v1/attention/backends/cpu_attn.py, _get_attn_isa]
        _require(for_fp8_cache, f"--engine-arg kv_cache_dtype={cache}", "remove the option", "machine/vLLM")
    if cache == "auto" and quantization.get("kv_cache_scheme"):  # [model_executor/layers/attention/attention.py]
        what = "the FP8 cache of config.json, kv_cache_scheme"
        _require(for_fp8_cache, what, "give --engine-arg kv_cache_dtype=bfloat16", "machine/model")
    if options.get("quantization") == "fp8" and not quantization:
        _require((), "--engine-arg quantization=fp8", "remove the option", "machine/vLLM")
    if (needed := _needed_by_weights(precision, quantization)) is not None:
        _require(needed, f"weights in {precision}", "name a model with weights in bfloat16", "machine/model")


def _needed_by_weights(precision: str, quantization: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Instructions of which weights need one; None: they run on any processor; (): they run on none.

    [vLLM 0.32.0: model_executor/kernels/linear. _C_AVX2.abi3.so lacks cpu_gemm_wna16. No CPU build has
    static_scaled_fp8_quant, with which FP8 weights that have one scale are joined.]
    """
    groups = quantization.get("config_groups")
    schemes = [group.get("weights") for group in groups.values()] if isinstance(groups, dict) else []
    strategies = {str(scheme.get("strategy")) for scheme in schemes if isinstance(scheme, dict)}
    if precision.startswith("fp8"):
        by_block = "block" in strategies or quantization.get("weight_block_size") is not None
        return None if strategies == {"channel"} else ("amx_tile",) if by_block else ()
    if precision.startswith("int") and precision.endswith("a16"):
        return ("avx512f",) if precision.startswith("int4") else ()
    return ("amx_tile",) if precision.startswith("fp4") else None


def _require(needed: tuple[str, ...], what: str, fix: str, rule: str) -> None:
    """Refuse what needs one of these instructions where the processor is known to have none of them."""
    if not needed:
        raise SetupError(
            f"{what}: vLLM's CPU build cannot compute with it", f"{fix}, or use an accelerator", cause=rule
        )
    if (known := instructions()) and known.isdisjoint(needed):
        raise SetupError(
            f"{what}: vLLM's CPU build needs {' or '.join(needed)}, which this processor does not have",
            f"{fix}, or use another machine",
            cause=rule,
        )


def instructions() -> frozenset[str]:
    """Extensions of the processor's instructions, by the kernel's names; empty where it is no x86 under Linux."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as lines:
        for line in lines:
            if line.startswith("flags"):
                return frozenset(line.split())
    return frozenset()


def computes_in_core(options: dict[str, Any], cores: int) -> bool:
    """Return whether a CPU engine computes in the process that schedules, instead of in a worker process.

    With a worker, vLLM's scheduling process waits for each step in a loop that never sleeps, on a core that the model
    needs. Several parts of one model need a worker each. So do copies whose threads are to be bound to cores of their
    own: worth it once a copy has many.

    Args:
        options: engine options; only the parallel sizes and the executor matter.
        cores: how many may be used.

    Raises:
        InputError: a parallel size that is no whole number from 1.
    """
    copies, *parts = [parallel_size(options, f"{kind}_parallel_size") for kind in ("data", "tensor", "pipeline")]
    fits = max(parts) == 1 and (copies == 1 or cores // copies < BINDING_PAYS_FROM)
    allowed = os.environ.get(CORE_PROCESS, "0") == "0"  # the user's value counts
    return fits and allowed and options.get("distributed_executor_backend", "uni") == "uni"


def computes_alone(options: dict[str, Any], environment: dict[str, str]) -> bool:
    """Return whether an engine's core is one process that computes, with the OpenMP library of vLLM, and the
    user has not chosen how vLLM starts it."""
    alone = options.get("distributed_executor_backend") == "uni" and parallel_size(options, "data_parallel_size") == 1
    loaded = OPENMP in os.environ.get(PRELOAD, "") and OPENMP in environment.get(PRELOAD, "")
    return alone and loaded and START_METHOD not in os.environ


@functools.cache
def openmp_library() -> str:
    """PyTorch's own OpenMP library, which vLLM loads ahead into an engine's process: else its threads share one core.
    Empty if there is none. [vllm/platforms/cpu.py]"""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        return ""
    folder = Path(torch.origin).parent
    found = [path for place in (folder.parent / "torch.libs", folder / "lib") for path in place.glob(f"{OPENMP}*.so*")]
    return str(found[0]) if found else ""


def cpu_environment(
    options: dict[str, Any], cores: list[int], engines: int = 1, *, light: bool = False
) -> dict[str, str]:
    """The variables of an engine on the CPU.

    Args:
        options: engine options; only the parallel sizes and the executor matter.
        cores: IDs of those that may be used.
        engines: that share the machine's memory.
        light: the embedded model has few queries at a time.

    Raises:
        InputError: a parallel size that is no whole number from 1.
    """
    ranks = parallel_size(options, "tensor_parallel_size") * parallel_size(options, "data_parallel_size")
    environment = {"VLLM_CPU_OMP_THREADS_BIND": core_binding(cores, ranks)}
    if computes_in_core(options, len(cores)):
        environment[CORE_PROCESS] = "0"  # AsyncLLM's core has a process of its own even so; SingleStream's not
        environment["OMP_NUM_THREADS"] = str(max(1, len(cores) // ranks))
        if ranks == 1:  # vLLM's binding of a worker's threads
            environment["OMP_PLACES"] = "{" + ",".join(map(str, cores)) + "}"
            environment["OMP_PROC_BIND"] = "true"
    import psutil

    quarter_gib = int(psutil.virtual_memory().available * 0.25 / ranks / engines) >> 30
    most_gib = LIGHT_KV_CACHE_GIB if light else KV_CACHE_GIB_ON_CPU
    environment["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, min(most_gib, quarter_gib)))
    if library := openmp_library():
        environment[PRELOAD] = library
    return environment | KEEP_FREED_MEMORY | HUGE_PAGES


def core_binding(cores: list[int], ranks: int) -> str:
    """Cores for each engine rank, in vLLM's form: `0,1|2,3`. Too few cores for the ranks: vLLM's own choice."""
    share = len(cores) // ranks
    if share == 0:
        return "auto"
    return "|".join(",".join(str(core) for core in cores[rank * share : (rank + 1) * share]) for rank in range(ranks))


def cpu_batch_limits(asked: dict[str, Any], scenario: Scenario, *, parameters: int, cores: int) -> dict[str, int]:
    """`max_num_seqs` and `max_num_batched_tokens` for a scenario whose responses are streamed.

    Args:
        asked: engine options that are given.
        parameters: of the model.
        cores: of one copy.
    """
    in_time = int(LONGEST_STEP_S[scenario] * cores * MULTIPLY_ADDS_PER_S / parameters)
    tokens = min(MAX_TOKENS[scenario], max(FEWEST_TOKENS, in_time // UNIT * UNIT))
    queries = asked.get("max_num_seqs", QUERIES)
    if isinstance(queries, int) and queries > tokens:
        tokens = queries  # a step has room for a token of each
    return {"max_num_seqs": QUERIES, "max_num_batched_tokens": tokens}
