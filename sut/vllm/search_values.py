"""Values that a search tries by itself, around what vLLM chooses on such machines.

Only options that decide when something is computed, never what. The smallest token budget is no smaller than the
largest number of sequences, which vLLM would refuse.
"""

from typing import Any

from sut.vllm.machine import Machine

GPU_VALUES: dict[str, tuple[Any, ...]] = {
    "admission": ("fcfs", "deadline", "priority", "shortest", "off"),
    "admission_tokens": (2048, 4096, 8192, 16384, 32768),
    "admission_queries": (64, 128, 256, 512),
    "max_num_batched_tokens": (2048, 4096, 8192, 16384, 32768),
    "max_num_seqs": (128, 256, 512, 1024, 2048),
}
CPU_VALUES: dict[str, tuple[Any, ...]] = {
    "admission": ("fcfs", "deadline", "priority", "shortest", "off"),
    "admission_tokens": (1024, 2048, 4096, 8192),
    "admission_queries": (16, 24, 32, 48),
    "max_num_batched_tokens": (512, 1024, 2048, 4096, 8192),
    "max_num_seqs": (32, 64, 128, 256, 512),
}
COPIES = (2, 4, 8)


def search_values(machine: Machine, devices_a_copy: int) -> dict[str, tuple[Any, ...]]:
    """For each option, the values for a machine; numbers of copies only as far as there are places for them."""
    usual = CPU_VALUES if machine.on_cpu else GPU_VALUES
    places = len(machine.cores) if machine.on_cpu else machine.devices
    copies = tuple(number for number in COPIES if number * devices_a_copy <= places)
    return {"data_parallel_size": copies, **usual} if copies else dict(usual)
