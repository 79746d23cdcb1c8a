"""The facts in an engine's log.

vLLM prints its resolved configuration once per engine core, the size of its KV cache, and the attention backend; the
dummy engine prints nothing.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs.files.reading import ENGINE_LOG, MIB, open_record

MAX_BYTES = 16 * MIB  # size of the log's beginning that is read

# Names in vLLM's line `Initializing a V1 LLM engine (…) with config: …`, and in the manifest.
_CONFIGURATION = {
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "enable_prefix_caching",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "max_seq_len": "max_model_len",
    "enforce_eager": "enforce_eager",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "device_config": "device",
}
_START = re.compile(
    r"(?P<rank>\(EngineCore_DP\d[^\n]{0,80})?Initializing a V1 LLM engine[^\n]{0,400}? with config: "
    r"(?P<config>[^\n]{0,65536})"
)
_SPECULATIVE = re.compile(r"\bspeculative_config=(None|\S+)")
_KV_TOKENS = re.compile(r"KV cache size: ([\d,]{1,20}) tokens")
_BACKEND = re.compile(r"Using (\w+)(?: attention)? backend", re.IGNORECASE)
_DEAD = re.compile(r"EngineDeadError|EngineCore (?:encountered|failed|died)|CUDA out of memory|OutOfMemoryError")
_PROCESS = re.compile(r"^\(MainProcess pid=(\d{1,10})\)", re.MULTILINE)
_HIT_RATE = re.compile(r"Prefix cache hit rate: (\d{1,3}(?:\.\d{1,3})?)%")
_PREEMPTED = re.compile(r"preempt(?:ed|ion)", re.IGNORECASE)


@dataclass
class EngineLog:
    """Facts from engine.log; empty for facts that the engine did not print."""

    configuration: dict[str, Any] = field(default_factory=dict)
    kv_cache_tokens: int | None = None
    attention_backend: str | None = None
    dead_line: int | None = None
    preempted: bool = False
    processes: frozenset[int] = frozenset()  # IDs of the main processes of the engine
    cache_hit_rate: float = 0.0  # highest hit rate of the prefix cache, in percent


def read_engine_log(path: Path) -> EngineLog:
    """Read an engine.log; raise InputError if it is unreadable."""
    with open_record(path, "use the unchanged engine.log of the run", max_bytes=ENGINE_LOG.file_bytes) as stream:
        text = stream.read(MAX_BYTES).decode(errors="replace")
    log = EngineLog()
    for start in _START.finditer(text):
        line = start["config"]
        printed: dict[str, Any] = {}
        for printed_name, option in _CONFIGURATION.items():
            if value := re.search(rf"\b{printed_name}=([^,]+)", line):
                printed[option] = _plain(value[1].strip())
        if speculative := _SPECULATIVE.search(line):
            printed["speculative"] = speculative[1].rstrip(",") != "None"
        if start["rank"]:
            # Each data-parallel rank of a dense model prints 1 instead of their number.
            printed.pop("data_parallel_size", None)
        for name, printed_value in printed.items():
            before = log.configuration.setdefault(name, printed_value)
            if before != printed_value:  # the engine cores printed different values
                log.configuration[name] = f"{before}, and {printed_value} in another line"
    if match := _KV_TOKENS.search(text):
        log.kv_cache_tokens = int(match[1].replace(",", ""))
    if match := _BACKEND.search(text):
        log.attention_backend = match[1]
    if match := _DEAD.search(text):
        log.dead_line = text.count("\n", 0, match.start()) + 1
    log.processes = frozenset(int(process) for process in _PROCESS.findall(text))
    log.cache_hit_rate = max(map(float, _HIT_RATE.findall(text)), default=0.0)
    log.preempted = bool(_PREEMPTED.search(text))
    return log


def _plain(value: str) -> Any:
    value = value.removeprefix("torch.").strip("'\"")
    if value in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[value]
    return int(value) if value.isdecimal() and len(value) < 20 else value
