"""How far from the limit: tokens per second against what a device's memory and arithmetic allow.

Two bounds that no scheduler can pass. Arithmetic: a multiplication and an addition for each weight and token, prompt
and output (attention's own, which is less for prompts of this benchmark's length, is left out). Memory: each output
token reads the keys and values of its context; with one query at a time also all weights, which a batch shares.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qsl.weights import read_weights
from runs.errors import HarnessError
from runs.reading import read_object
from runs.record.manifest import Manifest
from runs.record.requests_log import RequestTable

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "fp8": 1, "int8": 1}


@dataclass(frozen=True)
class Device:
    """What one device can do at most."""

    name: str
    bytes_per_second: float
    flops: float  # dense 16-bit floating point (float32 of a CPU)
    source: str


# Dense figures, without sparsity, from the vendors' data sheets. Matched in this order: the first whose words are all
# in the name that the driver tells.
_TABLE: tuple[tuple[str, float, float, str], ...] = (
    ("B200", 8.0e12, 2250e12, "NVIDIA HGX B200 data sheet"),
    ("H200", 4.8e12, 989e12, "NVIDIA H200 data sheet, SXM"),
    ("H100 NVL", 3.9e12, 835e12, "NVIDIA H100 data sheet, NVL"),
    ("H100 PCIe", 2.0e12, 756e12, "NVIDIA H100 data sheet, PCIe"),
    ("H100", 3.35e12, 989e12, "NVIDIA H100 data sheet, SXM"),
    ("A100 80GB PCIe", 1.935e12, 312e12, "NVIDIA A100 data sheet, 80 GB PCIe"),
    ("A100 80GB", 2.039e12, 312e12, "NVIDIA A100 data sheet, 80 GB SXM"),
    ("A100", 1.555e12, 312e12, "NVIDIA A100 data sheet, 40 GB"),
    ("L40S", 0.864e12, 362e12, "NVIDIA L40S data sheet"),
    ("L4", 0.3e12, 121e12, "NVIDIA L4 data sheet"),
    ("MI355X", 8.0e12, 2500e12, "AMD Instinct MI355X data sheet"),
    ("MI325X", 6.0e12, 1307e12, "AMD Instinct MI325X data sheet"),
    ("MI300X", 5.3e12, 1307e12, "AMD Instinct MI300X data sheet"),
)


def find_device(name: str) -> Device | None:
    """The device of a name such as `NVIDIA H100 80GB HBM3`; None for one that is not in the table."""
    words = set(name.upper().replace("-", " ").split())
    for known, bytes_per_second, flops, source in _TABLE:
        if set(known.upper().split()) <= words:
            return Device(known, bytes_per_second, flops, source)
    return None


def measure_cpu() -> Device:
    """This machine's processor by a short stream (a copy of 256 MiB) and a float32 matrix product, best of five."""
    import torch  # slow to import, and rarely needed

    source = torch.ones(64 * 2**20, dtype=torch.float32)
    target = torch.empty_like(source)
    copy_s = min(_timed(lambda: target.copy_(source)) for _ in range(5))
    size = 1536
    left = torch.ones(size, size)
    product = torch.empty_like(left)
    product_s = min(_timed(lambda: torch.mm(left, left, out=product)) for _ in range(5))
    return Device(
        f"this processor, {torch.get_num_threads()} threads",
        2 * source.nbytes / copy_s,
        2 * size**3 / product_s,
        "measured now, by this command",
    )


def _timed(work: Any) -> float:
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


@dataclass(frozen=True)
class Ceiling:
    """Output tokens per second that the devices of a leg allow at most."""

    device: Device
    count: int
    arithmetic: float
    memory: float
    parameters: int

    @property
    def lowest(self) -> float:
        return min(self.arithmetic, self.memory)


def ceiling(manifest: Manifest, requests: RequestTable, measured: Device | None) -> Ceiling | str:
    """The bounds of a leg, or why there are none.

    Args:
        measured: of a leg on a CPU.
    """
    if not manifest.resolved.engine_record.computes_here:
        return f"not known for engine {manifest.resolved.engine}"
    configuration = manifest.engine.get("configuration") or {}
    if manifest.accelerator:
        name = str(manifest.accelerator[0].get("name"))
        device = find_device(name)
        if device is None:
            return f"{name} is not in the table of devices"
    elif measured is None:
        return "the leg ran on a processor: --measure-machine measures this machine's, if it is the same one"
    else:
        device = measured
    count = 1
    if manifest.accelerator:
        sizes = [int(configuration.get(f"{name}_parallel_size") or 1) for name in ("tensor", "data", "pipeline")]
        count = int(np.prod(sizes)) * max(1, len(manifest.replicas))
    try:
        folder = Path(str(manifest.model.get("folder")))
        shape = read_object(folder / "config.json", "")
        parameters = read_weights(folder).parameters
    except (HarnessError, OSError):
        return f"the model's folder {manifest.model.get('folder')} is not here"
    if not parameters:
        return f"{folder} holds no safetensors files"
    weight_bytes = parameters * BYTES.get(str(configuration.get("quantization") or configuration.get("dtype")), 2)
    kv_bytes = _kv_bytes_per_token(shape, configuration)
    speed = 2 if "fp8" in str(configuration.get("quantization")) else 1  # of 8-bit arithmetic, on all devices above
    prompt, output = requests.prompt_tokens.astype(float), requests.output_tokens.astype(float)
    total = float(output.sum())
    work = 2.0 * parameters * float((prompt + output).sum())
    context = float((output * (prompt + output / 2)).sum())
    alone = manifest.resolved.scenario == "SingleStream"
    read = context * kv_bytes + (total * weight_bytes if alone else float(output.max()) * weight_bytes)
    return Ceiling(
        device,
        count,
        total / (work / (device.flops * speed * count)),
        total / (read / (device.bytes_per_second * count)),
        parameters,
    )


def _kv_bytes_per_token(shape: dict[str, Any], configuration: dict[str, Any]) -> float:
    heads = int(shape["num_attention_heads"])
    kv_heads = int(shape.get("num_key_value_heads") or heads)
    head = int(shape.get("head_dim") or int(shape["hidden_size"]) // heads)
    kind = str(configuration.get("kv_cache_dtype") or "auto")
    width = 1 if "8" in kind else BYTES.get(str(configuration.get("dtype")), 2)
    return float(2 * int(shape["num_hidden_layers"]) * kv_heads * head * width)
