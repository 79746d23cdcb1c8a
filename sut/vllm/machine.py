"""vLLM's devices on this machine, from its own platform object.

A CPU build of vLLM is known by its version, as vLLM itself knows it [vllm/platforms/__init__.py, cpu_platform_plugin].
Any other build is asked by `python -m sut.vllm.machine`, a process of its own, as the import takes seconds and much
memory. Replicas have each their part of the machine.
"""

import dataclasses
import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runs.errors import SetupError
from runs.harness import HARNESS_ROOT, module_path
from runs.machine.accelerators import accelerators, described
from runs.machine.environment import usable_cores, vllm_is_cpu_build
from runs.processes.child import run_program

if TYPE_CHECKING:
    from runs.record.manifest import ReplicaPlace

ASK_TIMEOUT_S = 300
CPU = "cpu"
FLASHINFER_SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
NO_FLASHINFER = (
    f"flashinfer is not installed, which vLLM imports for its sampler: run `make setup`, or set {FLASHINFER_SAMPLER}=0"
)


@dataclass(frozen=True)
class Machine:
    """The devices and memory of one vLLM engine."""

    platform: str  # vLLM's name: cuda, rocm, xpu, tpu, cpu, oot (a plug-in's), unspecified (none was found)
    devices: int  # accelerators; 0 on the CPU
    cores: list[int]  # IDs of those that may be used
    device_name: str = ""  # name of the first device
    device_bytes: int = 0  # memory of the smallest device; 0 where it is not reported
    visible_variable: str = ""  # chooses among the devices
    bfloat16: bool = True  # whether they compute in it
    engines: int = 1  # engines that share its memory
    unused: tuple[str, ...] = ()  # accelerators, in words, that this build of vLLM leaves unused
    fault: str = ""  # why vLLM cannot compute here, with the fix

    @property
    def on_cpu(self) -> bool:
        return self.platform == CPU


def this_machine() -> Machine:
    """This machine as vLLM's build will use it.

    Raises:
        SetupError: vLLM cannot be asked.
    """
    if vllm_is_cpu_build():
        return Machine(CPU, 0, usable_cores(), unused=tuple(map(described, accelerators())))
    return ask_vllm()


def likely_machine() -> Machine:
    """Return the machine without examining its accelerators."""
    return Machine(CPU, 0, usable_cores()) if vllm_is_cpu_build() else Machine("unspecified", 1, usable_cores())


@functools.cache
def ask_vllm() -> Machine:
    """Ask vLLM's platform object.

    Raises:
        SetupError: vLLM cannot be imported, or does not answer.
    """
    try:
        done = run_program(
            [sys.executable, "-m", "sut.vllm.machine"],
            cwd=HARNESS_ROOT,
            env={**os.environ, **module_path()},
            timeout_s=ASK_TIMEOUT_S,
        )
        done.check_returncode()
        response = json.loads(done.stdout.splitlines()[-1])
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or [f"exit {error.returncode}"]
        raise SetupError(
            f"vLLM does not report what it computes on: {lines[-1]}",
            "run `make setup`, and use .venv/bin/python; see `main.py doctor`",
        ) from error
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise SetupError(f"vLLM does not report what it computes on: {error}", "see `main.py doctor`") from error
    sizes, names = response["memory_bytes"], response["names"]
    return Machine(
        response["platform"],
        response["devices"],
        usable_cores(),
        device_name=next(filter(None, names), ""),
        device_bytes=min(sizes) if sizes and all(sizes) else 0,
        visible_variable=response["visible_variable"],
        bfloat16=response["bfloat16"],
        unused=tuple(map(described, accelerators())) if response["platform"] == CPU else (),
        fault=NO_FLASHINFER if response["lacks_flashinfer"] else "",
    )


def numa_nodes(root: Path = Path("/sys/devices/system/node")) -> dict[int, int]:
    """Core → its NUMA node; empty where the kernel does not report them."""
    nodes: dict[int, int] = {}
    for folder in root.glob("node[0-9]*"):
        for part in (folder / "cpulist").read_text().strip().split(","):
            first, _, last = part.partition("-")
            if first:
                nodes |= dict.fromkeys(range(int(first), int(last or first) + 1), int(folder.name[4:]))
    return nodes


def shares(cores: list[int], count: int, node_of: dict[int, int]) -> list[list[int]]:
    """Cores in `count` equal shares, each from one NUMA node where that comes out even.

    Raises:
        SetupError: fewer cores than shares.
    """
    size = len(cores) // count
    if size == 0:
        raise SetupError(f"--replicas {count}: there are {len(cores)} cores", "ask for a replica a core at most")
    by_node = sorted(cores, key=lambda core: (node_of.get(core, 0), core))
    return [sorted(by_node[place * size : (place + 1) * size]) for place in range(count)]


def one_node(cores: list[int], node_of: dict[int, int]) -> int | None:
    """The NUMA node on which all these cores are, where there are several nodes to choose from."""
    found = {node_of.get(core) for core in cores}
    return found.pop() if len(found) == 1 and len(set(node_of.values())) > 1 else None


def replica_places(machine: Machine, count: int | None, devices_each: int | None) -> "list[ReplicaPlace]":
    """Places on a machine.

    Args:
        count: replicas; None = one for each device or group of devices, on the CPU one for each NUMA node.
        devices_each: what one engine was asked to be split over; None = as many as there are for each.

    Raises:
        SetupError: there are not enough devices or cores.
    """
    from runs.record.manifest import ReplicaPlace

    if machine.on_cpu:
        node_of = numa_nodes()
        count = count or len({node_of.get(core) for core in machine.cores})
        parts = shares(machine.cores, count, node_of)
        return [ReplicaPlace(cores=cores, numa_node=one_node(cores, node_of)) for cores in parts]
    count = count or max(1, machine.devices // (devices_each or 1))
    each = devices_each or machine.devices // count
    if count * each > machine.devices or not each:
        raise SetupError(
            f"{count} replicas on {each or 1} device(s) each: there are {machine.devices}",
            "ask for fewer --replicas, or for a smaller --tensor-parallel-size",
        )
    ids = _device_ids(machine)
    groups = [ids[place * each : (place + 1) * each] for place in range(count)]
    return [ReplicaPlace(devices=group, variables={machine.visible_variable: ",".join(group)}) for group in groups]


def machine_at(machine: Machine, place: "ReplicaPlace", replicas: int) -> Machine:
    """Return the part of a machine that a replica at a place has."""
    return dataclasses.replace(
        machine,
        devices=len(place.devices),
        cores=place.cores or machine.cores,
        engines=replicas,
    )


def _device_ids(machine: Machine) -> list[str]:
    """Return the devices as the platform's variable names them, else their numbers."""
    named = os.environ.get(machine.visible_variable, "")
    ids = [part.strip() for part in named.split(",") if part.strip()]
    return ids if len(ids) == machine.devices else [str(number) for number in range(machine.devices)]


def _platform_facts() -> dict[str, Any]:
    """The platform's name, its devices, and the variable that chooses among them."""
    from vllm.platforms import current_platform as platform

    def ask(method: str, *arguments: Any) -> Any:
        try:
            return getattr(platform, method)(*arguments)
        except Exception:  # unknown on this platform; plug-ins may raise anything
            return None

    name = platform._enum.name.lower()
    devices = range(0 if name in (CPU, "unspecified") else ask("device_count") or _torch_count())
    return {
        "platform": name,
        "devices": len(devices),
        "names": [ask("get_device_name", device) for device in devices],
        "memory_bytes": [ask("get_device_total_memory", device) for device in devices],
        "visible_variable": getattr(platform, "device_control_env_var", ""),
        "bfloat16": "torch.bfloat16" in map(str, getattr(platform, "supported_dtypes", ["torch.bfloat16"])),
        "lacks_flashinfer": name == "cuda" and _samples_with_flashinfer() and find_spec("flashinfer") is None,
    }


def _samples_with_flashinfer() -> bool:
    """Return whether vLLM imports FlashInfer's sampler on CUDA [vllm/v1/sample/ops/topk_topp_sampler.py]."""
    from vllm import envs

    return bool(getattr(envs, FLASHINFER_SAMPLER, False))


def _torch_count() -> int:
    import torch

    return int(torch.accelerator.device_count())


if __name__ == "__main__":
    print(json.dumps(_platform_facts()))
