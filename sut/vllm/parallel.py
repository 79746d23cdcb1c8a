"""The number of copies of the model (data-parallel ranks or replicas), and of devices per copy.

Copies are independent, so throughput grows with their number. Devices that share a copy wait for each other at every
layer, which pays only if a copy does not fit on one device, or with one query at a time.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.errors import InputError

MAX_PARTS = 8  # maximum number of devices per copy: Llama has 8 key-value heads to divide
# Minimum number of longest queries whose KV cache must fit into a copy; with fewer, decoding leaves a device idle.
MIN_QUERIES_PER_COPY = 32
MEMORY_SHARE = 0.9  # share of a device for weights, cache, activations [vLLM, gpu_memory_utilization; 0.92 in 0.32]
WORKING_BYTES = 2 << 30  # bytes per device for activations and graphs
GIB = 1 << 30


@dataclass(frozen=True)
class Layout:
    """The number of copies of the model and of devices per copy (tensor parallelism), and the reason; "" without a
    choice.
    """

    copies: int
    parts: int
    why: str = ""


@dataclass(frozen=True)
class MemoryNeed:
    """Memory in bytes that one copy needs, over all its devices; 0 = unknown."""

    weights_bytes: int
    cache_bytes: int

    def fits(self, parts: int, device_bytes: int) -> bool:
        available = parts * (device_bytes * MEMORY_SHARE - WORKING_BYTES)
        return self.weights_bytes + self.cache_bytes <= available


def parallel_size(options: dict[str, Any], name: str) -> int:
    """Return a parallel size from the engine options; 1 if it is missing.

    Raises:
        InputError: If the value is not a whole number from 1.
    """
    value = options.get(name, 1)
    if type(value) is not int or value < 1:
        raise InputError(f"--engine-arg {name}={value}: must be a whole number of at least 1", "give a whole number")
    return value


def choose_layout(
    devices: int,
    device_bytes: int,
    need: MemoryNeed,
    *,
    one_at_a_time: bool,
    copies: int | None = None,
    parts: int | None = None,
    place: str = "device",
) -> Layout:
    """Choose the layout for a number of devices.

    Args:
        devices: number of devices, at least 1; each may be a group of devices, the stages of a pipeline.
        device_bytes: memory of the smallest device; 0 = not reported.
        need: memory that one copy needs.
        one_at_a_time: whether the engine gets one query at a time (SingleStream).
        copies, parts: requested numbers of copies and of devices per copy.
        place: word for a device, in the reason.
    """
    if copies is not None and parts is not None:
        return Layout(copies, parts)
    most = _power_of_two(devices)
    if parts is not None:
        copies = 1 if one_at_a_time else max(1, devices // parts)
        why = f"{parts} per replica, as requested"
    elif copies is not None:
        parts = _power_of_two(devices // copies)
        why = "the requested number of replicas share the devices"
    elif one_at_a_time:
        copies, parts = 1, most
        why = "all devices compute the single query of the scenario"
    elif not device_bytes:
        copies, parts = devices, 1
        why = "the memory of the devices is unknown, so a replica is assumed to fit on one device"
    else:
        parts = next((size for size in _powers(most) if need.fits(size, device_bytes)), most)
        copies = devices // parts
        fits = "hardly fit" if not need.fits(parts, device_bytes) else "fit" if parts == 1 else "do not fit on fewer"
        why = (
            f"{need.weights_bytes / GIB:.1f} GiB of weights and {need.cache_bytes / GIB:.1f} GiB of cache for "
            f"{MIN_QUERIES_PER_COPY} of the longest queries {fits} ({device_bytes / GIB:.1f} GiB per {place})"
        )
    if devices == copies == parts == 1:
        return Layout(1, 1)
    copies_in_words = "1 copy" if copies == 1 else f"{copies} copies"
    return Layout(
        copies, parts, f"{devices} {place}s: {copies_in_words} of the model, tensor parallel over {parts} each: {why}"
    )


def _powers(most: int) -> Iterator[int]:
    return (1 << exponent for exponent in range(most.bit_length()))


def _power_of_two(devices: int) -> int:
    return min(MAX_PARTS, 1 << int(math.log2(max(1, devices))))


def copy_need(
    model_folder: Path | None, parameters: int, sequence_tokens: int, *, value_bytes: int, cache_value_bytes: int
) -> MemoryNeed:
    """Return the memory that one copy of a model needs.

    Args:
        model_folder: folder with config.json and weights; None = unknown.
        parameters: number of the model's parameters.
        sequence_tokens: tokens of prompt and output of the longest query.
        value_bytes: bytes of a parameter during computation, unless the model is quantized.
        cache_value_bytes: bytes of a value in the KV cache.
    """
    if model_folder is None:
        return MemoryNeed(0, 0)
    try:
        config = json.loads((model_folder / "config.json").read_text())
        heads = int(config["num_attention_heads"])
        head_size = int(config.get("head_dim") or config["hidden_size"] // heads)
        layers, cache_heads = int(config["num_hidden_layers"]), int(config.get("num_key_value_heads") or heads)
    except (OSError, ValueError, KeyError, TypeError):  # unknown architecture; vLLM checks the model
        return MemoryNeed(parameters * value_bytes, 0)
    stored = sum(path.stat().st_size for path in model_folder.glob("*.safetensors"))
    weights = stored if config.get("quantization_config") else parameters * value_bytes
    keys_and_values = 2 * layers * cache_heads * head_size * cache_value_bytes
    return MemoryNeed(weights, keys_and_values * sequence_tokens * MIN_QUERIES_PER_COPY)
