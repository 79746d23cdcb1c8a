"""Upper bounds of tokens/s by the memory and by the arithmetic of a device, and the share that a run reached.

Arithmetic: one multiplication and one addition for each weight and each token of prompt and output. Attention is left
out, because it is smaller for prompts of this length. Memory: each output token reads the keys and values of its
context. With one query at a time it also reads all weights, which a batch would share.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

from qsl.weights import read_weights
from runs.errors import HarnessError, InputError
from runs.files.reading import read_object
from runs.record.manifest import Manifest
from runs.record.requests_log import RequestTable

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "fp8": 1, "int8": 1}


class Device(NamedTuple):
    """Peak rates of one device."""

    name: str
    bytes_per_second: float
    flops: float  # 16-bit floating-point operations per second, without sparsity
    source: str


# Figures without sparsity from data sheets. The first device counts whose words are all in the driver's name of it.
_DEVICES = (
    Device("B200", 8.0e12, 2250e12, "NVIDIA HGX B200 data sheet"),
    Device("H200", 4.8e12, 989e12, "NVIDIA H200 data sheet, SXM"),
    Device("H100 NVL", 3.9e12, 835e12, "NVIDIA H100 data sheet, NVL"),
    Device("H100 PCIe", 2.0e12, 756e12, "NVIDIA H100 data sheet, PCIe"),
    Device("H100", 3.35e12, 989e12, "NVIDIA H100 data sheet, SXM"),
    Device("A100 80GB PCIe", 1.935e12, 312e12, "NVIDIA A100 data sheet, 80 GB PCIe"),
    Device("A100 80GB", 2.039e12, 312e12, "NVIDIA A100 data sheet, 80 GB SXM"),
    Device("A100", 1.555e12, 312e12, "NVIDIA A100 data sheet, 40 GB"),
    Device("L40S", 0.864e12, 362e12, "NVIDIA L40S data sheet"),
    Device("L4", 0.3e12, 121e12, "NVIDIA L4 data sheet"),
    Device("MI355X", 8.0e12, 2500e12, "AMD Instinct MI355X data sheet"),
    Device("MI325X", 6.0e12, 1307e12, "AMD Instinct MI325X data sheet"),
    Device("MI300X", 5.3e12, 1307e12, "AMD Instinct MI300X data sheet"),
)


def find_device(name: str) -> Device | None:
    """Return the device with a name such as `NVIDIA H100 80GB HBM3`, or None if it is not in the table."""
    words = set(name.upper().replace("-", " ").split())
    return next((device for device in _DEVICES if set(device.name.upper().split()) <= words), None)


def ceiling_rows(manifest: Manifest, requests: RequestTable, tokens_per_second: float | None) -> list[tuple[str, str]]:
    """Return the upper bounds for the devices and the share that a run reached, or the reason why they are unknown.

    Args:
        tokens_per_second: Rate of the run.
    """
    if not (manifest.plan.engine_record.computes_here and manifest.observed.accelerators):
        return []
    name = str(manifest.observed.accelerators[0].get("name"))
    if (device := find_device(name)) is None:
        return [("unknown", f"{name} is not in the table of devices")]
    engine = manifest.engine.configuration
    sizes = [int(engine.get(f"{name}_parallel_size") or 1) for name in ("tensor", "data", "pipeline")]
    count = math.prod(sizes) * max(1, len(manifest.replicas))
    try:
        arithmetic, memory = (count * bound for bound in bounds(device, manifest, requests))
    except HarnessError as error:
        return [("unknown", error.message)]
    rows = [
        ("device", f"{count} × {device.name} ({device.source})"),
        ("memory allows", f"{memory:,.0f} tokens/s, with {device.bytes_per_second / 1e9:,.1f} GB/s per device"),
        ("arithmetic allows", f"{arithmetic:,.0f} tokens/s, with {device.flops / 1e12:,.2f} TFLOP/s per device"),
    ]
    if tokens_per_second:
        share = tokens_per_second / min(arithmetic, memory)
        rows.append(("reached", f"{tokens_per_second:,.1f} tokens/s, {share:.1%} of the lower bound"))
    return rows


def bounds(device: Device, manifest: Manifest, requests: RequestTable) -> tuple[float, float]:
    """Return the upper bounds of output tokens/s of one device: by its arithmetic, and by its memory.

    Raises:
        InputError: If the model is not on this machine.
    """
    engine = manifest.engine.configuration
    folder = Path(str(manifest.model.folder))
    shape, parameters = read_object(folder / "config.json", ""), read_weights(folder).parameters
    if not parameters:
        raise InputError(f"{folder} has no safetensors files", "")
    weight_bytes = parameters * _BYTES.get(str(engine.get("quantization") or engine.get("dtype")), 2)
    # On all these devices, 8-bit arithmetic is twice as fast as 16-bit arithmetic.
    speed = 2 if "fp8" in str(engine.get("quantization")) else 1
    prompt, output = requests.prompt_tokens.astype(float), requests.output_tokens.astype(float)
    total = float(output.sum())
    work = 2.0 * parameters * float((prompt + output).sum())
    alone = manifest.plan.scenario == "SingleStream"
    read = float((output * (prompt + output / 2)).sum()) * _kv_bytes_per_token(shape, engine)
    read += weight_bytes * (total if alone else float(output.max()))
    return total * device.flops * speed / work, total * device.bytes_per_second / read


def _kv_bytes_per_token(shape: dict[str, Any], engine: dict[str, Any]) -> float:
    heads = int(shape["num_attention_heads"])
    kv_heads = int(shape.get("num_key_value_heads") or heads)
    head = int(shape.get("head_dim") or int(shape["hidden_size"]) // heads)
    kind = str(engine.get("kv_cache_dtype") or "auto")
    width = 1 if "8" in kind else _BYTES.get(str(engine.get("dtype")), 2)
    return float(2 * int(shape["num_hidden_layers"]) * kv_heads * head * width)
