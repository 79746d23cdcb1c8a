"""A program: prints what vLLM's own platform object says of this machine, as JSON in its last line.

Importing vLLM takes seconds and much memory, and initialises nothing else in this process.
"""

import json
from typing import Any


def told() -> dict[str, Any]:
    """The platform's word for itself, its devices, and the variable that chooses among them."""
    from vllm.platforms import current_platform as platform

    def ask(method: str, *arguments: Any) -> Any:
        try:
            return getattr(platform, method)(*arguments)
        except Exception:  # what this platform cannot tell; those of plug-ins raise anything
            return None

    name = platform._enum.name.lower()  # cuda, rocm, xpu, tpu, cpu, oot (a plug-in's), unspecified (no device found)
    devices = range(0 if name in ("cpu", "unspecified") else ask("device_count") or _torch_count())
    return {
        "platform": name,
        "devices": len(devices),
        "names": [ask("get_device_name", device) for device in devices],
        "memory_bytes": [ask("get_device_total_memory", device) for device in devices],
        "visible_variable": getattr(platform, "device_control_env_var", ""),
        "bfloat16": "torch.bfloat16" in map(str, getattr(platform, "supported_dtypes", ["torch.bfloat16"])),
    }


def _torch_count() -> int:
    import torch

    return int(torch.accelerator.device_count())


if __name__ == "__main__":
    print(json.dumps(told()))
