"""Check the reduced libraries of vLLM on this GPU, and measure the GPU's limits: `python -m tools.gpu.probe`.

Each check is independent of the others. The last line of the output is a JSON object: check → text, and for a limit of
the GPU the ID of its figure (expected.yaml) and its value.
"""

import json
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

FAILED = "FAILED"
REPEATS = 20
MAX_ERROR = 1e-2  # relative error of a kernel's output


@dataclass(frozen=True)
class ProbeFinding:
    """The finding of a check."""

    text: str
    figure: str = ""  # ID of the figure that the check measures
    value: float = 0.0


def _relative_error(value: Any, reference: Any) -> float:
    difference = (value.double() - reference.double()).norm() / reference.double().norm()
    return float(difference)


def _seconds(job: Callable[[], object]) -> float:
    """Return the median time of a job on the GPU."""
    import torch

    for _ in range(3):
        job()
    times = []
    for _ in range(REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        job()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return float(statistics.median(times))


def _random(*shape: int) -> Any:
    import torch

    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def _checked(error: float, more: str = "", figure: str = "", value: float = 0.0) -> ProbeFinding:
    """Return the finding on a kernel whose output has this relative error."""
    text = f"relative error {error:.1e}{more}"
    return ProbeFinding(text if error < MAX_ERROR else f"{FAILED}: {text}, allowed: {MAX_ERROR:g}", figure, value)


def find_device() -> ProbeFinding:
    import torch

    free, total = torch.cuda.mem_get_info()
    major, minor = torch.cuda.get_device_capability(0)
    name = torch.cuda.get_device_name(0)
    return ProbeFinding(f"torch {torch.__version__}, {name}, sm_{major}{minor}, {free >> 20} of {total >> 20} MiB free")


def measure_copy() -> ProbeFinding:
    import torch

    source = _random(1 << 30)
    target = torch.empty_like(source)
    rate = 2 * source.nbytes / _seconds(lambda: target.copy_(source)) / 1e12
    return ProbeFinding(f"{rate:.2f} TB/s read and written", "gpu-copy", rate)


def measure_product() -> ProbeFinding:
    size = 8192
    left, right = _random(size, size), _random(size, size)
    rate = 2 * size**3 / _seconds(lambda: left @ right) / 1e12
    return ProbeFinding(f"{rate:.0f} TFLOP/s in bf16", "gpu-bf16", rate)


def import_engine() -> ProbeFinding:
    import vllm
    import vllm.v1.engine.async_llm
    import vllm.v1.worker.gpu_worker
    from vllm.platforms import current_platform

    return ProbeFinding(f"vLLM {vllm.__version__}, {type(current_platform).__name__}")


def check_rms_norm() -> ProbeFinding:
    import torch
    from vllm import _custom_ops as ops

    values, weight, epsilon = _random(512, 4096), _random(4096), 1e-5
    output = torch.full_like(values, float("nan"))
    ops.rms_norm(output, values, weight, epsilon)
    wide = values.double()
    reference = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon) * weight.double()
    return _checked(_relative_error(output, reference))


def check_fp8_product() -> ProbeFinding:
    import torch
    from vllm import _custom_ops as ops

    rows, inner, columns, compared = 8192, 4096, 14336, 256
    activations, activation_scale = ops.scaled_fp8_quant(_random(rows, inner), use_per_token_if_dynamic=True)
    weights, weight_scale = ops.scaled_fp8_quant(_random(columns, inner))

    def product() -> Any:
        return ops.cutlass_scaled_mm(activations, weights.t(), activation_scale, weight_scale, torch.bfloat16)

    reference = (activations[:compared].float() * activation_scale[:compared]) @ (weights.float() * weight_scale).t()
    error = _relative_error(product()[:compared], reference)
    rate = 2 * rows * inner * columns / _seconds(product) / 1e12
    return _checked(error, f", {rate:.0f} TFLOP/s in FP8", "gpu-fp8", rate)


def check_attention() -> ProbeFinding:
    """Compare FlashAttention 3 with PyTorch."""
    import torch
    from vllm.vllm_flash_attn import flash_attn_varlen_func

    length, heads, key_heads, head = 600, 32, 8, 128
    query, key, value = _random(length, heads, head), _random(length, key_heads, head), _random(length, key_heads, head)
    bounds = torch.tensor([0, length], device="cuda", dtype=torch.int32)
    output = flash_attn_varlen_func(query, key, value, length, bounds, length, bounds, causal=True, fa_version=3)
    repeated = (part.repeat_interleave(heads // key_heads, 1) for part in (key, value))
    wide = [part.transpose(0, 1).unsqueeze(0).float() for part in (query, *repeated)]
    reference = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True)[0].transpose(0, 1)
    return _checked(_relative_error(output[0] if isinstance(output, tuple) else output, reference))


CHECKS: dict[str, Callable[[], ProbeFinding]] = {
    "device": find_device,
    "copy": measure_copy,
    "product": measure_product,
    "engine": import_engine,
    "rms_norm": check_rms_norm,
    "FP8 product": check_fp8_product,
    "attention": check_attention,
}


def run_check(check: Callable[[], ProbeFinding]) -> ProbeFinding:
    """Return the finding of a check with its duration; a failure has its cause and line."""
    started_s = time.perf_counter()
    try:
        finding = check()
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({place.filename.rpartition('/')[2]}:{place.lineno})"
        return ProbeFinding(f"{FAILED}: {text}"[:300])
    return ProbeFinding(f"{finding.text} in {time.perf_counter() - started_s:.1f} s", finding.figure, finding.value)


def main() -> None:
    """Run all checks."""
    print(json.dumps({name: asdict(run_check(check)) for name, check in CHECKS.items()}))


if __name__ == "__main__":
    main()
