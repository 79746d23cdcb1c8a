"""The facts in an engine's own log.

vLLM prints its resolved configuration once per engine core, the size of its KV cache, and the attention backend; the
dummy engine prints nothing. The stages of a start are for display only.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs.reading import ENGINE_LOG, MIB, open_record

MAX_BYTES = 16 * MIB  # of the log, from its beginning or its end

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
_ERROR = re.compile(r"(?m)^\([^\n)]{1,80}\) ERROR [^\n\]]{1,80}\] (\w+(?:Error|Exception): [^\n]{1,2000})")
_PREEMPTED = re.compile(r"preempt(?:ed|ion)", re.IGNORECASE)

TAIL_BYTES = 256 * 1024
# vLLM's messages (0.28 to 0.32) at the beginning of a stage, and the stage. The last one found counts.
_BEGINS = (
    (r"Starting to load model", "loading weights"),
    (r"Loading weights took|Model loading took", "profiling memory"),
    (r"Dynamo bytecode transform|Warming up model for the compilation", "compiling"),
    (r"Available KV cache memory|for KV cache on node|KV cache size:", "making the KV cache"),
    (r"Capturing CUDA graphs", "capturing graphs"),
    (r"init engine \(profile|Graph capturing finished", "last preparations"),
)
_ANY = re.compile("|".join(f"({pattern})" for pattern, _ in _BEGINS))


@dataclass
class EngineLog:
    """Facts from engine.log; empty where the engine printed none."""

    configuration: dict[str, Any] = field(default_factory=dict)
    kv_cache_tokens: int | None = None
    attention_backend: str | None = None
    dead_line: int | None = None
    preempted: bool = False


def read_engine_log(path: Path) -> EngineLog:
    """Read an engine.log; InputError if it is unreadable."""
    with open_record(path, "take the unchanged engine.log of the run", max_bytes=ENGINE_LOG.file_bytes) as stream:
        text = stream.read(MAX_BYTES).decode(errors="replace")
    log = EngineLog()
    for start in _START.finditer(text):
        line = start["config"]
        printed: dict[str, Any] = {}
        for theirs, ours in _CONFIGURATION.items():
            if value := re.search(rf"\b{theirs}=([^,]+)", line):
                printed[ours] = _plain(value[1].strip())
        if speculative := _SPECULATIVE.search(line):
            printed["speculative"] = speculative[1].rstrip(",") != "None"
        if start["rank"]:
            printed.pop("data_parallel_size", None)  # each copy of a dense model prints 1
        for name, one in printed.items():
            before = log.configuration.setdefault(name, one)
            if before != one:  # each engine core prints the configuration
                log.configuration[name] = f"{before}, and {one} in another line"
    if found := _KV_TOKENS.search(text):
        log.kv_cache_tokens = int(found[1].replace(",", ""))
    if found := _BACKEND.search(text):
        log.attention_backend = found[1]
    if found := _DEAD.search(text):
        log.dead_line = text.count("\n", 0, found.start()) + 1
    log.preempted = bool(_PREEMPTED.search(text))
    return log


def end_of(log: Path, most_bytes: int) -> str:
    """The last bytes of a log as text, without reading the others.

    Raises:
        OSError: it cannot be read.
    """
    with log.open("rb") as stream:
        stream.seek(0, 2)
        stream.seek(max(0, stream.tell() - most_bytes))
        return stream.read(most_bytes).decode(errors="replace")


def last_error(path: Path) -> str:
    """The last line of the last traceback of an engine's process; empty if there is none. For display."""
    try:
        text = end_of(path, MAX_BYTES)
    except OSError:
        return ""
    found = _ERROR.findall(text)
    return str(found[-1]) if found else ""


def _plain(value: str) -> Any:
    value = value.removeprefix("torch.").strip("'\"")
    if value in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[value]
    return int(value) if value.isdecimal() and len(value) < 20 else value


def start_stage(engine_log: Path) -> str:
    """The stage of an engine's start; empty while its log names none."""
    try:
        text = end_of(engine_log, TAIL_BYTES)
    except OSError:
        return ""
    last = 0
    for found in _ANY.finditer(text):
        last = found.lastindex or 0
    return _BEGINS[last - 1][1] if last else ""


class StageClock:
    """The duration of each stage of a leg's start.

    Args:
        first: the current stage.
        since_s: its begin, in seconds since the epoch.
        now_s: the clock.
    """

    def __init__(self, first: str, since_s: float, now_s: Callable[[], float] = time.time) -> None:
        self._stage, self._since_s, self._now_s = first, since_s, now_s
        self.seconds: dict[str, float] = {}

    def enter(self, stage: str) -> None:
        """Begin a stage, unless it is the current one."""
        if stage == self._stage:
            return
        now_s = self._now_s()
        took_s = max(0.0, now_s - self._since_s)  # the clock may have been set back
        self.seconds[self._stage] = round(self.seconds.get(self._stage, 0.0) + took_s, 1)
        self._stage, self._since_s = stage, now_s
