"""vLLM's devices on this machine, from its own platform object.

A CPU build of vLLM is recognized by its version, as in vLLM [vllm/platforms/__init__.py, cpu_platform_plugin]. For
other builds, the separate process `python -m sut.vllm.machine` asks vLLM, because the import takes seconds and much
memory. Each replica has a part of the machine.
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
from runs.harness import HARNESS_ROOT, INSTALL, PROGRAM, module_path
from runs.machine.accelerators import accelerators, described
from runs.machine.environment import usable_cores, vllm_is_cpu_build
from runs.processes.child import run_program

if TYPE_CHECKING:
    from runs.record.manifest import ReplicaPlace

ASK_TIMEOUT_S = 300
CPU = "cpu"
FLASHINFER_SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
NO_FLASHINFER = (
    f"flashinfer, which vLLM imports for its sampler, is not installed: run `make setup`, or set {FLASHINFER_SAMPLER}=0"
)


@dataclass(frozen=True)
class Machine:
    """The devices and memory of one vLLM engine."""

    platform: str  # vLLM's name: cuda, rocm, xpu, tpu, cpu, oot (of a plug-in), unspecified (not found)
    devices: int  # number of accelerators; 0 on the CPU
    cores: list[int]  # IDs of the usable cores
    device_name: str = ""  # name of the first device
    device_bytes: int = 0  # memory of the smallest device; 0 if not reported
    visible_variable: str = ""  # environment variable that selects devices
    bfloat16: bool = True  # whether the devices support bfloat16
    engines: int = 1  # number of engines that share the machine's memory
    unused: tuple[str, ...] = ()  # names of accelerators that this build of vLLM cannot use
    fault: str = ""  # why vLLM cannot compute on this machine, with the fix

    @property
    def on_cpu(self) -> bool:
        return self.platform == CPU


def this_machine() -> Machine:
    """Return the devices of this machine that vLLM's build uses.

    Raises:
        SetupError: If vLLM does not report its devices.
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
        SetupError: If vLLM cannot be imported, or does not respond.
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
            f"vLLM does not report its devices: {lines[-1]}", f"{INSTALL}, and see `{PROGRAM} doctor`"
        ) from error
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise SetupError(f"vLLM does not report its devices: {error}", f"see `{PROGRAM} doctor`") from error
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
    """Return the NUMA node of each core; empty if the kernel does not report NUMA nodes."""
    nodes: dict[int, int] = {}
    for folder in root.glob("node[0-9]*"):
        for part in (folder / "cpulist").read_text().strip().split(","):
            first, _, last = part.partition("-")
            if first:
                nodes |= dict.fromkeys(range(int(first), int(last or first) + 1), int(folder.name[4:]))
    return nodes


def core_shares(cores: list[int], count: int, node_of: dict[int, int]) -> list[list[int]]:
    """Divide cores into `count` equal shares, each within one NUMA node if possible.

    Raises:
        SetupError: If the machine has fewer cores than shares.
    """
    size = len(cores) // count
    if size == 0:
        raise SetupError(f"--replicas {count}: the machine has {len(cores)} cores", "give at most one replica per core")
    by_node = sorted(cores, key=lambda core: (node_of.get(core, 0), core))
    return [sorted(by_node[place * size : (place + 1) * size]) for place in range(count)]


def one_node(cores: list[int], node_of: dict[int, int]) -> int | None:
    """Return the NUMA node of all these cores; None if they are on multiple nodes, or the machine has only one."""
    nodes = {node_of.get(core) for core in cores}
    return nodes.pop() if len(nodes) == 1 and len(set(node_of.values())) > 1 else None


def replica_places(machine: Machine, count: int | None, devices_each: int | None) -> "list[ReplicaPlace]":
    """Return the devices or cores of each replica.

    Args:
        count: number of replicas; None = one per device or group of devices, on the CPU one per NUMA node.
        devices_each: requested devices per engine; None = an equal share.

    Raises:
        SetupError: If the machine has too few devices or cores.
    """
    from runs.record.manifest import ReplicaPlace

    if machine.on_cpu:
        node_of = numa_nodes()
        count = count or len({node_of.get(core) for core in machine.cores})
        parts = core_shares(machine.cores, count, node_of)
        return [ReplicaPlace(cores=cores, numa_node=one_node(cores, node_of)) for cores in parts]
    count = count or max(1, machine.devices // (devices_each or 1))
    each = devices_each or machine.devices // count
    if count * each > machine.devices or not each:
        raise SetupError(
            f"{count} replicas on {each or 1} device(s) each: the machine has {machine.devices} devices",
            "lower --replicas or --tensor-parallel-size",
        )
    ids = _device_ids(machine)
    groups = [ids[place * each : (place + 1) * each] for place in range(count)]
    return [ReplicaPlace(devices=group, variables={machine.visible_variable: ",".join(group)}) for group in groups]


def machine_at(machine: Machine, place: "ReplicaPlace", replicas: int) -> Machine:
    """Return a machine with only a replica's devices or cores."""
    return dataclasses.replace(
        machine, devices=len(place.devices), cores=place.cores or machine.cores, engines=replicas
    )


def _device_ids(machine: Machine) -> list[str]:
    """Return the devices' names in the platform's environment variable; by default their numbers."""
    named = os.environ.get(machine.visible_variable, "")
    ids = [part.strip() for part in named.split(",") if part.strip()]
    return ids if len(ids) == machine.devices else [str(number) for number in range(machine.devices)]


def _platform_facts() -> dict[str, Any]:
    """Return the platform's name, its devices, and the environment variable that selects devices."""
    from vllm.platforms import current_platform as platform

    def ask(method: str, *arguments: Any) -> Any:
        try:
            return getattr(platform, method)(*arguments)
        except Exception:  # unknown on this platform; plug-ins may raise any exception
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
