"""The accelerators that this process may use, with the facts that each vendor's tool or library gives.

If every tool of a vendor is absent or fails, its device nodes are counted: each gets a row without facts, whose
`problem` has the reason.
"""

import importlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from runs.machine.environment import ACCELERATOR_FACTS
from runs.processes.child import run_program

TOOL_TIMEOUT_S = 30
NVIDIA = "NVIDIA"  # name of the vendor
_PCI_DISPLAY = "0x0300"  # PCI class of a display controller, such as a processor's integrated graphics

AcceleratorRow = dict[str, Any]
# Fact → function that reads it from a library or a tool's output; it may raise.
FactReaders = Mapping[str, Callable[[Any, Any], Any]]


class ProbeError(Exception):
    """A failure of a vendor's tool or library."""


@dataclass(frozen=True)
class Vendor:
    """A vendor of accelerators."""

    name: str
    # Tried in this order; each returns a row per device, or raises ProbeError.
    sources: tuple[Callable[[], list[AcceleratorRow]], ...]
    nodes: Callable[[Path], int]  # the number of device nodes below a root
    # Groups of environment variables that select devices. The first variable of a group that is set counts; each group
    # selects among the devices that the previous group left.
    visible: tuple[tuple[str, ...], ...]


def accelerators(root: Path = Path("/")) -> list[AcceleratorRow]:
    """Return a row for each accelerator of this process: `vendor`, ACCELERATOR_FACTS, `visible_by` if a variable
    selected it.

    If no source has a device's facts, they are None, and `problem` has the reason.
    """
    return [row for vendor in VENDORS for row in _devices(vendor, root)]


def described(row: AcceleratorRow) -> str:
    """Return an accelerator as text."""
    if row.get("problem"):
        return f"{row['vendor']} device {row['index']}, without facts: {row['problem']}"
    units = {"memory.total": "{} MiB", "driver_version": "driver {}", "clocks.max.sm": "{} MHz", "power.limit": "{} W"}
    return ", ".join([str(row["name"]), *(unit.format(row[name]) for name, unit in units.items() if row.get(name))])


def _devices(vendor: Vendor, root: Path) -> list[AcceleratorRow]:
    problems = []
    for source in vendor.sources:
        try:
            rows = [{"vendor": vendor.name, **dict.fromkeys(ACCELERATOR_FACTS), **row} for row in source()]
            break
        except ProbeError as error:
            problems.append(str(error))
    else:
        problem = "; ".join(problems) or "the harness supports no tool for devices of this vendor"
        rows = [
            {"vendor": vendor.name, **dict.fromkeys(ACCELERATOR_FACTS), "index": str(index), "problem": problem}
            for index in range(vendor.nodes(root))
        ]
    for group in vendor.visible:
        variable = next((name for name in group if name in os.environ), None)
        if variable is not None:
            rows = [{**row, "visible_by": f"{variable}={os.environ[variable]}"} for row in _chosen(rows, variable)]
    return rows


def _chosen(rows: list[AcceleratorRow], variable: str) -> Iterable[AcceleratorRow]:
    """Return the devices that a variable names, by index or by the beginning of their ID."""
    text = os.environ[variable].rpartition(":")[2]  # ONEAPI_DEVICE_SELECTOR=level_zero:0,1
    parts = [part.strip().partition(".")[0] for part in text.split(",") if part.strip()]  # 0.1 is part 1 of device 0
    if "*" in parts:
        return rows
    ids = [part for part in parts if part.startswith(("GPU-", "MIG-", "0x"))]
    named = {place: [part for part in ids if str(row["uuid"] or "").startswith(part)] for place, row in enumerate(rows)}
    chosen = [row for place, row in enumerate(rows) if str(place) in parts or named[place]]
    for part in ids if rows else ():
        if not any(part in names for names in named.values()):  # names a part of a device (MIG)
            problem = f"{variable} selects {part}, but no detected device has this ID"
            chosen.append({**dict.fromkeys(rows[0]), "vendor": rows[0]["vendor"], "uuid": part, "problem": problem})
    return chosen


# Sources ----------------------------------------------------------------------------------------------------------


def tool_output(tool: str, *arguments: str) -> str:
    """Return the output of a vendor's tool.

    Raises:
        ProbeError: If the tool is missing or fails.
    """
    path = shutil.which(tool)
    if path is None:
        raise ProbeError(f"{tool} is not installed")
    try:
        done = run_program([path, *arguments], timeout_s=TOOL_TIMEOUT_S)
        done.check_returncode()
    except subprocess.CalledProcessError as error:
        printed = (error.stderr or error.stdout).decode(errors="replace").strip().splitlines()
        raise ProbeError(f"{tool} failed: {printed[0] if printed else f'exit {error.returncode}'}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise ProbeError(f"{tool} failed: {error}") from error
    return done.stdout.decode(errors="replace")


def _json_of(tool: str, *arguments: str) -> Any:
    text = tool_output(tool, *arguments)
    try:
        return json.loads(text[text.index("{") :])  # warnings may come first
    except ValueError as error:
        raise ProbeError(f"{tool} did not print JSON") from error


def _row(index: object, facts: FactReaders, source: Any, device: Any) -> AcceleratorRow:
    """Return a device's facts as text; None for facts that this device or driver version does not report."""
    row: AcceleratorRow = {"index": str(index)}
    for name, read in facts.items():
        try:
            value = read(source, device)
        except Exception:
            value = None
        row[name] = value.decode() if isinstance(value, bytes) else value if value is None else str(value)
    return row


def _of_library(
    name: str, start: str, stop: str, facts: FactReaders, devices: Callable[[Any], Iterable[Any]]
) -> list[AcceleratorRow]:
    """Return the rows from a vendor's Python library, which may raise any exception."""
    try:
        library = importlib.import_module(name)
    except Exception as error:
        raise ProbeError(f"{name} cannot be imported: {error}") from error
    try:
        getattr(library, start)()
        try:
            return [_row(index, facts, library, device) for index, device in enumerate(devices(library))]
        finally:
            getattr(library, stop)()
    except Exception as error:
        raise ProbeError(f"{name} failed: {error}") from error


def _nvidia_smi() -> list[AcceleratorRow]:
    text = tool_output("nvidia-smi", f"--query-gpu={','.join(ACCELERATOR_FACTS)}", "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [dict(zip(ACCELERATOR_FACTS, row, strict=True)) for row in rows if len(row) == len(ACCELERATOR_FACTS)]


def _xpu_smi() -> list[AcceleratorRow]:
    rows = []
    for device in _json_of("xpu-smi", "discovery", "-j").get("device_list", []):
        index = str(device.get("device_id"))
        rows.append(_row(index, _XPU_SMI, index, device | _json_of("xpu-smi", "discovery", "-d", index, "-j")))
    return rows


def _watts(cap: Any) -> Any:
    """Return watts; AMD's library reports microwatts, in some versions watts."""
    return cap // 1_000_000 if isinstance(cap, int) and cap >= 10_000 else cap


# NVIDIA's library, for containers without the tool nvidia-smi.
_NVML: FactReaders = {
    "name": lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),
    "uuid": lambda nvml, gpu: nvml.nvmlDeviceGetUUID(gpu),
    "memory.total": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total >> 20,
    "driver_version": lambda nvml, gpu: nvml.nvmlSystemGetDriverVersion(),
    "clocks.max.sm": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "power.limit": lambda nvml, gpu: f"{nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000:.2f}",
}
# AMD's library, which vLLM requires.
_AMDSMI: FactReaders = {
    "name": lambda smi, gpu: smi.amdsmi_get_gpu_asic_info(gpu)["market_name"],
    "uuid": lambda smi, gpu: smi.amdsmi_get_gpu_device_uuid(gpu),
    "memory.total": lambda smi, gpu: smi.amdsmi_get_gpu_vram_info(gpu)["vram_size"],
    "driver_version": lambda smi, gpu: smi.amdsmi_get_gpu_driver_info(gpu)["driver_version"],
    "clocks.max.sm": lambda smi, gpu: smi.amdsmi_get_clock_info(gpu, smi.AmdSmiClkType.GFX)["max_clk"],
    "power.limit": lambda smi, gpu: _watts(smi.amdsmi_get_power_cap_info(gpu)["power_cap"]),
}
_XPU_SMI: FactReaders = {
    "name": lambda index, device: device["device_name"],
    "uuid": lambda index, device: device["uuid"],
    "memory.total": lambda index, device: int(device["memory_physical_size_byte"]) >> 20,
    "driver_version": lambda index, device: device["driver_version"],
    "clocks.max.sm": lambda index, device: device["core_clock_rate_mhz"],
    "power.limit": lambda index, device: _json_of("xpu-smi", "config", "-d", index, "-j")["power_limit"],
}


# Device nodes -----------------------------------------------------------------------------------------------------


def _nodes(pattern: str, kind: str, vendor: str, root: Path, *, required: str = "", displays: bool = True) -> int:
    """Return a function that counts a vendor's device nodes in a class of sysfs; "" for a class of a single vendor.

    Args:
        required: path that must exist too.
        displays: whether to count display controllers.
    """

    def fact(node: Path, name: str) -> str:
        try:
            return (root / "sys/class" / kind / node.name / "device" / name).read_text().strip()
        except OSError:
            return ""

    if not (root / required).exists():
        return 0
    nodes = [node for node in root.glob(pattern) if not vendor or fact(node, "vendor") == vendor]
    return sum(displays or not fact(node, "class").startswith(_PCI_DISPLAY) for node in nodes)


_PYNVML = partial(
    _of_library, "pynvml", "nvmlInit", "nvmlShutdown", _NVML,
    lambda nvml: map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount())),
)  # fmt: skip
_AMD = partial(
    _of_library, "amdsmi", "amdsmi_init", "amdsmi_shut_down", _AMDSMI, lambda smi: smi.amdsmi_get_processor_handles()
)
VENDORS = (
    Vendor(NVIDIA, (_nvidia_smi, _PYNVML), partial(_nodes, "dev/nvidia[0-9]*", "", ""), (("CUDA_VISIBLE_DEVICES",),)),
    Vendor(
        "AMD",
        (_AMD,),
        partial(_nodes, "dev/dri/renderD*", "drm", "0x1002", required="dev/kfd"),
        (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")),
    ),
    Vendor(
        "Intel",
        (_xpu_smi,),
        partial(_nodes, "dev/dri/renderD*", "drm", "0x8086", displays=False),
        (("ZE_AFFINITY_MASK",), ("ONEAPI_DEVICE_SELECTOR",)),
    ),
    Vendor("Google", (), partial(_nodes, "dev/accel[0-9]*", "accel", "0x1ae0"), (("TPU_VISIBLE_CHIPS",),)),
)
