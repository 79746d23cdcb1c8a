"""Options of other programs for LLM inference, and the options of this harness that replace them."""

# Field of a run → other spellings of its option, which the command line accepts.
ACCEPTED = {
    "extra_body": ("extra_request_body",), "header": ("H", "headers"), "model_path": ("model_name",),
    "output_log_dir": ("output_dir",), "request_timeout": ("request_timeout_seconds",),
    "total_sample_count": ("total_count",),
}  # fmt: skip

# Field of a run or bench → other options of MLCommons' scripts, of benchmarks of other servers, and of MLPerf clients.
# `bench` accepts them; other commands name their option.
_SPELLINGS = {
    "api_model_name": ("served_model_name",),
    "api_server": ("api_base", "base_url", "endpoints", "host", "port", "target", "u", "url"),
    "backend": ("api_backend", "endpoint_type"),
    "concurrency": ("max_concurrency", "num_concurrency"),
    "dataset_path": ("data", "dataset", "input_file"),
    "duration": ("benchmark_duration", "max_seconds"),
    "engine": ("backend",),
    "input_len": ("isl", "random_input_len", "synthetic_input_tokens_mean"),
    "max_new_tokens": ("max_tokens",),
    "model": ("m", "model_names"),
    "model_path": ("model",),
    "output_len": ("osl", "output_tokens_mean", "random_output_len", "synthetic_output_tokens_mean"),
    "output_log_dir": ("artifact_dir", "log_dir", "o", "output_path", "report_dir", "result_dir"),
    "repeats": ("num_profile_runs", "num_runs"),
    "target_qps": ("qps", "rate", "request_rate"),
    "tensor_parallel_size": ("tp",),
    "tokenizer": ("model_tokenizer",),
    "total_sample_count": (
        "max_requests", "max_requests_per_run", "n_samples", "num_prompts", "num_requests", "num_samples",
        "request_count",
    ),
}  # fmt: skip
# Field of a bench → field of a run whose other spellings it accepts, too.
_OF_RUN = {"queries": "total_sample_count", "rates": "target_qps"}

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


def bench_spellings() -> dict[str, tuple[str, ...]]:
    """Return the other spellings of the options of `bench`, by field."""
    spellings = {name: (*ACCEPTED.get(name, ()), *_SPELLINGS.get(name, ())) for name in (*ACCEPTED, *_SPELLINGS)}
    bench_options = {*spellings, "data", "host", "max_concurrency", "port"}  # options of `bench` themselves
    spelled = {
        name: tuple(spelling for spelling in names if spelling not in bench_options)
        for name, names in spellings.items()
    }
    return spelled | {name: (of_run, *spelled[of_run]) for name, of_run in _OF_RUN.items()}
