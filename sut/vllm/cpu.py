"""Settings of vLLM, OpenMP and the C library on the CPU: environment variables, and limits for one step.

vLLM's own limits for a CPU do not depend on the model. A step of 2,048 tokens takes 20 ms with a small model and
seconds with a large one, and every query in the engine waits for the step.
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

KV_CACHE_GIB_ON_CPU = 4  # filled with zeros at the start, which takes at least 1 s per GiB
LIGHT_KV_CACHE_GIB = 1  # enough for 35 of the embedded model's longest queries at a time
# Cores per data-parallel rank from which binding pays: vLLM's waiting process then costs at most 1/8 of them.
BINDING_PAYS_FROM = 8
NOT_BOUND = "nobind"  # vLLM's value for threads on any core
CORE_PROCESS = "VLLM_ENABLE_V1_MULTIPROCESSING"  # vLLM's switch: "0" = schedule and compute in one process
# glibc returns freed large buffers to the kernel. The CPU engine frees and allocates its activations at every step,
# which causes hundreds of thousands of page faults per minute. These settings keep the buffers. [mallopt(3)]
KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(256 << 20)}
# After all blocks of the KV cache have been used, the blocks of a request are scattered, and with pages of 4 KiB the
# engine is up to 10% slower. This setting requests huge pages if the kernel allows madvise. [the GNU C Library's
# manual, "Memory Allocation Tunables"]
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

START_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
PRELOAD = "LD_PRELOAD"
OPENMP = "libgomp"

# Default limits of a step.
QUERIES = 512  # queries in the engine at a time (vLLM's servers on a CPU: 128); 256 are too few for a small model
FEWEST_TOKENS, UNIT = 512, 128
# A small model's step takes longer than its multiplications, because of attention and the work per query.
MAX_TOKENS: dict[Scenario, int] = {"Server": 2048, "Interactive": 1024}
# Limit for a step full of prompts: the scenario's TPOT limit.
LONGEST_STEP_S: dict[Scenario, float] = {"Server": 0.1, "Interactive": 0.03}
MULTIPLY_ADDS_PER_S = 40e9  # per core, float32 with AVX2: 9.5 M parameters take 0.11 ms per token on two cores


def check_data_types(options: Mapping[str, Any], precision: str, quantization: Mapping[str, Any]) -> None:
    """Refuse data types that vLLM cannot compute with on this processor.

    Args:
        options: options of the engine.
        precision: data type of the model's weights, as in the manifest.
        quantization: quantization settings in the model's config.json.

    Raises:
        SetupError: If vLLM's CPU build cannot compute with a data type, or this processor lacks the instructions.
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
        _require(needed, f"weights in {precision}", "use a model with weights in bfloat16", "machine/model")


def _needed_by_weights(precision: str, quantization: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the instruction sets of which the weights need one; None = any processor, () = no processor.

    [vLLM 0.32.0: model_executor/kernels/linear. _C_AVX2.abi3.so lacks cpu_gemm_wna16. No CPU build has
    static_scaled_fp8_quant, which merges FP8 weights with a single scale.]
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
    """Refuse an option if the processor has none of the instruction sets of which it needs one."""
    if not needed:
        raise SetupError(
            f"{what}: vLLM's CPU build cannot compute with it", f"{fix}, or use an accelerator", cause=rule
        )
    if (supported := instructions()) and supported.isdisjoint(needed):
        raise SetupError(
            f"{what}: vLLM's CPU build needs {' or '.join(needed)}, which this processor does not have",
            f"{fix}, or use another machine",
            cause=rule,
        )


def instructions() -> frozenset[str]:
    """Return the processor's instruction sets by the kernel's names; empty except on x86 with Linux."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as lines:
        for line in lines:
            if line.startswith("flags"):
                return frozenset(line.split())
    return frozenset()


def computes_in_core(options: dict[str, Any], cores: int) -> bool:
    """Return whether a CPU engine computes in the process that schedules, instead of in a worker process.

    With a worker, vLLM's scheduling process waits for each step in a busy loop, on a core that the model needs. Each
    part of a split model needs a worker. So does each data-parallel rank whose threads are bound to cores, which pays
    from BINDING_PAYS_FROM cores.

    Args:
        options: engine options; only the parallel sizes and the executor matter.
        cores: number of usable cores.

    Raises:
        InputError: If a parallel size is not a whole number from 1.
    """
    copies, *parts = [parallel_size(options, f"{kind}_parallel_size") for kind in ("data", "tensor", "pipeline")]
    fits = max(parts) == 1 and (copies == 1 or cores // copies < BINDING_PAYS_FROM)
    allowed = os.environ.get(CORE_PROCESS, "0") == "0"  # the user's value counts
    return fits and allowed and options.get("distributed_executor_backend", "uni") == "uni"


def computes_alone(options: dict[str, Any], environment: dict[str, str]) -> bool:
    """Return whether an engine's core is a single process with vLLM's OpenMP library, and the user has not chosen its
    start method.
    """
    alone = options.get("distributed_executor_backend") == "uni" and parallel_size(options, "data_parallel_size") == 1
    loaded = OPENMP in os.environ.get(PRELOAD, "") and OPENMP in environment.get(PRELOAD, "")
    return alone and loaded and START_METHOD not in os.environ


@functools.cache
def openmp_library() -> str:
    """Return the path of PyTorch's OpenMP library; empty if it is missing. vLLM preloads it in an engine's process,
    because otherwise the threads share one core. [vllm/platforms/cpu.py]
    """
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        return ""
    folder = Path(torch.origin).parent
    libraries = [
        path for place in (folder.parent / "torch.libs", folder / "lib") for path in place.glob(f"{OPENMP}*.so*")
    ]
    return str(libraries[0]) if libraries else ""


def cpu_environment(
    options: dict[str, Any], cores: list[int], engines: int = 1, *, light: bool = False, taken: int = 0
) -> dict[str, str]:
    """Return the environment variables of an engine on the CPU.

    Args:
        options: engine options; only the parallel sizes and the executor matter.
        cores: IDs of the usable cores.
        engines: number of engines that share the machine's memory.
        light: whether the run uses the embedded model with few queries at a time.
        taken: number of cores that other programs use.

    Raises:
        InputError: If a parallel size is not a whole number from 1.
    """
    ranks = parallel_size(options, "tensor_parallel_size") * parallel_size(options, "data_parallel_size")
    # Which cores are free changes with each moment, so the threads are not bound to cores beside other programs.
    environment = {"VLLM_CPU_OMP_THREADS_BIND": NOT_BOUND if taken else core_binding(cores, ranks)}
    in_core = computes_in_core(options, len(cores))
    if in_core or taken:
        environment["OMP_NUM_THREADS"] = str(threads_per_rank(len(cores), taken, ranks))
    if in_core:
        # AsyncLLM's core still is a separate process; SingleStream's engine computes in the run's process.
        environment[CORE_PROCESS] = "0"
        if ranks == 1:  # vLLM binds a worker's threads
            environment["OMP_PLACES"] = "{" + ",".join(map(str, cores)) + "}"
            environment["OMP_PROC_BIND"] = "true"
    import psutil

    quarter_gib = int(psutil.virtual_memory().available * 0.25 / ranks / engines) >> 30
    most_gib = LIGHT_KV_CACHE_GIB if light else KV_CACHE_GIB_ON_CPU
    environment["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, min(most_gib, quarter_gib)))
    if library := openmp_library():
        environment[PRELOAD] = library
    return environment | KEEP_FREED_MEMORY | HUGE_PAGES


def threads_per_rank(cores: int, taken: int, ranks: int = 1) -> int:
    """Return the number of threads of each rank, so that each thread has a core of its own.

    OpenMP's threads wait for each other in a busy loop. If they share cores with another program, each step takes as
    long as the program's time slices.
    """
    return max(1, (cores - taken) // ranks)


def core_binding(cores: list[int], ranks: int) -> str:
    """Return the cores of each rank in vLLM's form: `0,1|2,3`. With fewer cores than ranks, vLLM chooses."""
    share = len(cores) // ranks
    if share == 0:
        return "auto"
    return "|".join(",".join(str(core) for core in cores[rank * share : (rank + 1) * share]) for rank in range(ranks))


def cpu_batch_limits(requested: dict[str, Any], scenario: Scenario, *, parameters: int, cores: int) -> dict[str, int]:
    """Return `max_num_seqs` and `max_num_batched_tokens` for a scenario with streamed responses.

    Args:
        asked: requested engine options.
        parameters: number of the model's parameters.
        cores: number of cores per data-parallel rank.
    """
    in_time = int(LONGEST_STEP_S[scenario] * cores * MULTIPLY_ADDS_PER_S / parameters)
    tokens = min(MAX_TOKENS[scenario], max(FEWEST_TOKENS, in_time // UNIT * UNIT))
    queries = requested.get("max_num_seqs", QUERIES)
    if isinstance(queries, int) and queries > tokens:
        tokens = queries  # a step can hold a token of each query
    return {"max_num_seqs": QUERIES, "max_num_batched_tokens": tokens}
