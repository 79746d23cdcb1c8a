"""Check the reduced libraries of vLLM on this GPU, and measure the GPU's limits: `python -m tools.gpu.probe`.

Each check is independent of the others. The last line of the output is a JSON object: check → finding.
"""

import json
import statistics
import time
import traceback
from collections.abc import Callable
from typing import Any

FAILED = "FAILED"
REPEATS = 20


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


def find_device() -> str:
    import torch

    free, total = torch.cuda.mem_get_info()
    major, minor = torch.cuda.get_device_capability(0)
    name = torch.cuda.get_device_name(0)
    return f"torch {torch.__version__}, {name}, sm_{major}{minor}, {free >> 20} of {total >> 20} MiB free"


def measure_copy() -> str:
    import torch

    source = _random(1 << 30)
    target = torch.empty_like(source)
    return f"{2 * source.nbytes / _seconds(lambda: target.copy_(source)) / 1e12:.2f} TB/s read and written"


def measure_product() -> str:
    size = 8192
    left, right = _random(size, size), _random(size, size)
    return f"{2 * size**3 / _seconds(lambda: left @ right) / 1e12:.0f} TFLOP/s in bf16"


def import_engine() -> str:
    import vllm
    import vllm.v1.engine.async_llm
    import vllm.v1.worker.gpu_worker
    from vllm.platforms import current_platform

    return f"vLLM {vllm.__version__}, {type(current_platform).__name__}"


def check_rms_norm() -> str:
    import torch
    from vllm import _custom_ops as ops

    values, weight, epsilon = _random(512, 4096), _random(4096), 1e-5
    output = torch.full_like(values, float("nan"))
    ops.rms_norm(output, values, weight, epsilon)
    wide = values.double()
    reference = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon) * weight.double()
    return f"relative error {_relative_error(output, reference):.1e}"


def check_fp8_product() -> str:
    import torch
    from vllm import _custom_ops as ops

    rows, inner, columns, compared = 8192, 4096, 14336, 256
    activations, activation_scale = ops.scaled_fp8_quant(_random(rows, inner), use_per_token_if_dynamic=True)
    weights, weight_scale = ops.scaled_fp8_quant(_random(columns, inner))

    def product() -> Any:
        return ops.cutlass_scaled_mm(activations, weights.t(), activation_scale, weight_scale, torch.bfloat16)

    reference = (activations[:compared].float() * activation_scale[:compared]) @ (weights.float() * weight_scale).t()
    error = _relative_error(product()[:compared], reference)
    return f"relative error {error:.1e}, {2 * rows * inner * columns / _seconds(product) / 1e12:.0f} TFLOP/s in FP8"


def check_attention() -> str:
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
    return f"relative error {_relative_error(output[0] if isinstance(output, tuple) else output, reference):.1e}"


CHECKS: dict[str, Callable[[], str]] = {
    "device": find_device,
    "copy": measure_copy,
    "product": measure_product,
    "engine": import_engine,
    "rms_norm": check_rms_norm,
    "FP8 product": check_fp8_product,
    "attention": check_attention,
}


def run_check(check: Callable[[], str]) -> str:
    """Return the finding of a check; a failure has its cause and line."""
    try:
        return check()
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{FAILED}: {type(error).__name__}: {error} ({place.filename.rpartition('/')[2]}:{place.lineno})"[:300]


def main() -> None:
    """Run all checks."""
    facts = {}
    for name, check in CHECKS.items():
        started = time.perf_counter()
        facts[name] = f"{run_check(check)} in {time.perf_counter() - started:.1f} s"
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
