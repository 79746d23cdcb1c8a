"""Options of other programs for LLM inference, and the options of this harness that replace them."""

# Field of a run → other spellings of its option, which the command line accepts.
ACCEPTED = {
    "model_path": ("model_name",),
    "output_log_dir": ("output_dir",),
    "total_sample_count": ("total_count",),
}

# Field of a run → other options of MLCommons' scripts, of vLLM's and guidellm's benchmarks, and of MLPerf clients.
_SPELLINGS = {
    "api_model_name": ("served_model_name",),
    "api_server": ("base_url", "host", "port", "target", "url"),
    "concurrency": ("max_concurrency", "num_concurrency"),
    "dataset_path": ("data", "dataset"),
    "engine": ("backend",),
    "max_new_tokens": ("max_tokens",),
    "model_path": ("model",),
    "output_log_dir": ("artifact_dir", "log_dir", "output_path", "result_dir"),
    "target_qps": ("qps", "rate", "request_rate"),
    "tensor_parallel_size": ("tp",),
    "total_sample_count": ("max_requests", "n_samples", "num_prompts", "num_samples", "request_count"),
}

# Field with KEY=VALUE pairs → keys that are options of other programs.
_KEYS = {
    "sampling_arg": ("seed", "temperature", "top_k", "top_p"),
    "engine_arg": (
        "block_size", "cpu_offload_gb", "data_parallel_size", "enable_chunked_prefill", "enable_prefix_caching",
        "enforce_eager", "gpu_memory_utilization", "kv_cache_dtype", "load_format", "max_model_len",
        "max_num_batched_tokens", "max_num_seqs", "pipeline_parallel_size", "quantization", "speculative_config",
        "swap_space", "trust_remote_code",
    ),
}  # fmt: skip


def field_and_key(option: str) -> tuple[str, str]:
    """Return the field that replaces an option as typed, and the key if the field has pairs; "" for none."""
    name = option.lstrip("-").replace("-", "_")
    for table in (ACCEPTED, _SPELLINGS):
        for field, spellings in table.items():
            if name in spellings:
                return field, ""
    return next(((field, name) for field, keys in _KEYS.items() if name in keys), ("", ""))
