"""Which options make which kind of change: the table behind G-1 and G-8.

Class A changes how a step of the model is computed: a kernel, its choice, its compilation. Class B changes what is
computed, or how requests are served: numbers, memory, parallelism, batching, speculation. A gain by class B is real,
but it is no faster kernel.
"""

CLASS_A = frozenset(
    {
        "attention_backend",
        "compilation_config",
        "cudagraph_mode",
        "disable_custom_all_reduce",
        "enforce_eager",
        "kernel_config",
        "linear_backend",
        "moe_backend",
        "OMP_NUM_THREADS",
        "OMP_PLACES",
        "OMP_PROC_BIND",
        "VLLM_ATTENTION_BACKEND",
        "VLLM_CPU_OMP_THREADS_BIND",
        "VLLM_USE_DEEP_GEMM",
        "VLLM_USE_FLASHINFER_SAMPLER",
        # the dummy engine's speed
        "prefill_us",
        "tpot_ms",
        "ttft_ms",
    }
)
CLASS_B = frozenset(
    {
        "async_scheduling",
        "block_size",
        "data_parallel_size",
        "distributed_executor_backend",
        "dtype",
        "enable_chunked_prefill",
        "enable_prefix_caching",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "kv_cache_memory_bytes",
        "load_format",
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_seqs",
        "model",
        "num_gpu_blocks_override",
        "pipeline_parallel_size",
        "quantization",
        "speculative",
        "speculative_config",
        "swap_space",
        "tensor_parallel_size",
        "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        # the dummy engine's batch size
        "slots",
    }
)
# These change the answers or the model's numbers: they also need the gate on quality.
NEEDS_QUALITY_GATE = frozenset(
    {"dtype", "kv_cache_dtype", "model", "quantization", "speculative", "speculative_config"}
)

# One option under several names: as asked for, as resolved, as printed.
SAME_OPTION = {"speculative_config": "speculative", "cache_dtype": "kv_cache_dtype"}

# What a lever may change beside itself, and G-1 then asks to be shown without effect.
SIDE_EFFECTS: dict[str, frozenset[str]] = {
    "attention_backend": frozenset({"kv_cache_tokens"}),
    "compilation_config": frozenset({"kv_cache_tokens", "enforce_eager"}),
    "enforce_eager": frozenset({"kv_cache_tokens"}),
    "kv_cache_dtype": frozenset({"kv_cache_tokens", "attention_backend"}),
    "dtype": frozenset({"kv_cache_tokens", "kv_cache_dtype", "attention_backend"}),
    "quantization": frozenset({"kv_cache_tokens"}),
    "max_num_batched_tokens": frozenset({"kv_cache_tokens"}),
    "max_num_seqs": frozenset({"kv_cache_tokens"}),
    "gpu_memory_utilization": frozenset({"kv_cache_tokens"}),
    "tensor_parallel_size": frozenset({"kv_cache_tokens"}),
    "speculative": frozenset({"kv_cache_tokens", "async_scheduling"}),
}


def class_of(option: str) -> str | None:
    """A or B; None for an option that the table does not have."""
    if option in CLASS_A:
        return "A"
    return "B" if option in CLASS_B else None
