"""The accelerators that this process may use, with the facts that each vendor's own tool or library gives.

A device is known by its device node; what is known of it, by the tool. A tool that is absent or fails is said in the
row of each device that it leaves untold, and never taken for an absent device. What vLLM makes of them is another
question (sut/vllm/machine.py).
"""

import importlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOL_TIMEOUT_S = 30
# A row's names are nvidia-smi's, whatever the vendor: memory in MiB, clock in MHz, power in W, as text.
FACTS = ("index", "name", "uuid", "memory.total", "driver_version", "clocks.max.sm", "power.limit")
_PCI_DISPLAY = "0x0300"  # class of a card with a screen, as processors have one built in

Row = dict[str, Any]


class Untold(Exception):
    """A source does not tell; the message says why."""


@dataclass(frozen=True)
class Vendor:
    """One maker of accelerators."""

    name: str
    # asked in this order until one tells; each returns a row a device, or raises Untold
    sources: tuple[Callable[[], list[Row]], ...]
    # device nodes below a root, which show that there are devices though no source tells
    nodes: Callable[[Path], list[Path]]
    # variables that choose among the devices; of a group the first that is set counts, and each group chooses among
    # what the one before left
    visible: tuple[tuple[str, ...], ...]


def accelerators(root: Path = Path("/")) -> list[Row]:
    """A row for each accelerator of this process: `vendor`, FACTS, `visible_by` where a variable chose it.

    Where nothing tells a device's facts they are None, and `untold` says why.
    """
    return [row for vendor in VENDORS for row in _devices(vendor, root)]


def described(row: Row) -> str:
    """One accelerator in words."""
    if row.get("untold"):
        return f"{row['vendor']} device {row['index']}, whose facts nothing tells: {row['untold']}"
    units = {"memory.total": "{} MiB", "driver_version": "driver {}", "clocks.max.sm": "{} MHz", "power.limit": "{} W"}
    return ", ".join([str(row["name"]), *(unit.format(row[name]) for name, unit in units.items() if row.get(name))])


def _devices(vendor: Vendor, root: Path) -> list[Row]:
    untold = []
    for source in vendor.sources:
        try:
            rows = [{"vendor": vendor.name, **dict.fromkeys(FACTS), **row} for row in source()]
            break
        except Untold as reason:
            untold.append(str(reason))
    else:
        why = "; ".join(untold) or "this vendor's devices have no tool that is asked"
        rows = [
            {"vendor": vendor.name, **dict.fromkeys(FACTS), "index": str(index), "untold": why}
            for index, _ in enumerate(vendor.nodes(root))
        ]
    for group in vendor.visible:
        variable = next((name for name in group if name in os.environ), None)
        if variable is not None:
            rows = [{**row, "visible_by": f"{variable}={os.environ[variable]}"} for row in _chosen(rows, variable)]
    return rows


def _chosen(rows: list[Row], variable: str) -> Iterable[Row]:
    """The devices that a variable names, by place or by the beginning of their id."""
    text = os.environ[variable].rpartition(":")[2]  # ONEAPI_DEVICE_SELECTOR=level_zero:0,1
    parts = [part.strip().partition(".")[0] for part in text.split(",") if part.strip()]  # 0.1 is a part of device 0
    if "*" in parts:
        return rows
    ids = [part for part in parts if part.startswith(("GPU-", "MIG-", "0x"))]
    chosen = [
        row
        for place, row in enumerate(rows)
        if str(place) in parts or any(str(row["uuid"] or "").startswith(part) for part in ids)
    ]
    for part in ids:
        if rows and not any(str(row["uuid"] or "").startswith(part) for row in rows):  # a part of a device (MIG)
            untold = f"no source lists {part}, which {variable} names"
            chosen.append({**dict.fromkeys(rows[0]), "vendor": rows[0]["vendor"], "uuid": part, "untold": untold})
    return chosen


# Sources ----------------------------------------------------------------------------------------------------------


def _output(tool: str, *arguments: str) -> str:
    path = shutil.which(tool)
    if path is None:
        raise Untold(f"{tool} is not installed")
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=True)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines()
        raise Untold(f"{tool} failed: {said[0] if said else f'exit {error.returncode}'}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise Untold(f"{tool} failed: {error}") from error
    return done.stdout


def _json_of(tool: str, *arguments: str) -> Any:
    text = _output(tool, *arguments)
    try:
        return json.loads(text[text.index("{") :])  # warnings may come first
    except ValueError as error:
        raise Untold(f"{tool} told no JSON") from error


def _nvidia_smi() -> list[Row]:
    text = _output("nvidia-smi", f"--query-gpu={','.join(FACTS)}", "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [dict(zip(FACTS, row, strict=True)) for row in rows if len(row) == len(FACTS)]


def _pynvml() -> list[Row]:
    """NVIDIA's library, where its tool is absent, as in some containers."""
    nvml = _library("pynvml")
    try:
        nvml.nvmlInit()
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            driver = _text(_fact(nvml.nvmlSystemGetDriverVersion))
            return [_nvml_row(nvml, index, handle) | {"driver_version": driver} for index, handle in enumerate(handles)]
        finally:
            nvml.nvmlShutdown()
    except Exception as error:
        raise Untold(f"pynvml failed: {error}") from error


def _nvml_row(nvml: Any, index: int, handle: Any) -> Row:
    memory = _fact(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total)
    limit_mw = _fact(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    return {
        "index": str(index),
        "name": _text(_fact(lambda: nvml.nvmlDeviceGetName(handle))),
        "uuid": _text(_fact(lambda: nvml.nvmlDeviceGetUUID(handle))),
        "memory.total": _mib(memory),
        "clocks.max.sm": _text(_fact(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))),
        "power.limit": None if limit_mw is None else f"{limit_mw / 1000:.2f}",
    }


def _amdsmi() -> list[Row]:
    """AMD's library, which comes with ROCm; vLLM finds AMD's devices by it too."""
    amdsmi = _library("amdsmi")
    try:
        amdsmi.amdsmi_init()
        try:
            return [_amd_row(amdsmi, *pair) for pair in enumerate(amdsmi.amdsmi_get_processor_handles())]
        finally:
            amdsmi.amdsmi_shut_down()
    except Exception as error:
        raise Untold(f"amdsmi failed: {error}") from error


def _amd_row(amdsmi: Any, index: int, handle: Any) -> Row:
    power = _fact(lambda: amdsmi.amdsmi_get_power_cap_info(handle)["power_cap"])
    if isinstance(power, int) and power >= 10_000:  # microwatts, in some versions watts
        power //= 1_000_000
    clock = _fact(lambda: amdsmi.amdsmi_get_clock_info(handle, amdsmi.AmdSmiClkType.GFX)["max_clk"])
    return {
        "index": str(index),
        "name": _fact(lambda: amdsmi.amdsmi_get_gpu_asic_info(handle)["market_name"]),
        "uuid": _fact(lambda: amdsmi.amdsmi_get_gpu_device_uuid(handle)),
        "memory.total": _text(_fact(lambda: amdsmi.amdsmi_get_gpu_vram_info(handle)["vram_size"])),
        "driver_version": _fact(lambda: amdsmi.amdsmi_get_gpu_driver_info(handle)["driver_version"]),
        "clocks.max.sm": _text(clock),
        "power.limit": _text(power),
    }


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:  # it loads a C library, and raises whatever that does
        raise Untold(f"{name} cannot be imported: {error}") from error


def _fact(read: Callable[[], Any]) -> Any:
    """What a library tells, None where this device or version does not have it."""
    try:
        return read()
    except Exception:
        return None


def _rocm_smi() -> list[Row]:
    flags = ("--showproductname", "--showuniqueid", "--showdriverversion", "--showmaxpower")
    told = _json_of("rocm-smi", *flags, "--showmeminfo", "vram", "--json")
    driver = told.get("system", {}).get("Driver version")
    return [
        {
            "index": name.removeprefix("card"),
            "name": card.get("Card Series") or card.get("Card series"),
            "uuid": card.get("Unique ID"),
            "memory.total": _mib(card.get("VRAM Total Memory (B)")),
            "driver_version": driver,
            "power.limit": card.get("Max Graphics Package Power (W)"),
        }
        for name, card in told.items()
        if name.startswith("card")
    ]


def _xpu_smi() -> list[Row]:
    rows = []
    for device in _json_of("xpu-smi", "discovery", "-j").get("device_list", []):
        index = str(device.get("device_id"))
        told = device | _json_of("xpu-smi", "discovery", "-d", index, "-j")
        try:
            limit = _json_of("xpu-smi", "config", "-d", index, "-j").get("power_limit")
        except Untold:
            limit = None  # its right may be lacking
        rows.append(
            {
                "index": index,
                "name": told.get("device_name"),
                "uuid": told.get("uuid"),
                "memory.total": _mib(told.get("memory_physical_size_byte")),
                "driver_version": told.get("driver_version"),
                "clocks.max.sm": _text(told.get("core_clock_rate_mhz")),
                "power.limit": _text(limit),
            }
        )
    return rows


def _text(value: Any) -> str | None:
    return None if value is None else value.decode() if isinstance(value, bytes) else str(value)


def _mib(size_bytes: Any) -> str | None:
    return str(int(size_bytes) >> 20) if str(size_bytes).isdecimal() else None


# Device nodes -----------------------------------------------------------------------------------------------------


def _nvidia_nodes(root: Path) -> list[Path]:
    return sorted(root.glob("dev/nvidia[0-9]*"))


def _amd_nodes(root: Path) -> list[Path]:
    return _render_nodes(root, "0x1002") if (root / "dev/kfd").exists() else []


def _intel_nodes(root: Path) -> list[Path]:
    return _render_nodes(root, "0x8086", without_screen=True)


def _tpu_nodes(root: Path) -> list[Path]:
    numbered = sorted(root.glob("dev/accel[0-9]*"))
    return [node for node in numbered if _sys_text(root, "accel", node.name, "vendor") == "0x1ae0"]


def _render_nodes(root: Path, vendor: str, *, without_screen: bool = False) -> list[Path]:
    found = []
    for node in sorted(root.glob("dev/dri/renderD*")):
        screen = _sys_text(root, "drm", node.name, "class").startswith(_PCI_DISPLAY)
        if _sys_text(root, "drm", node.name, "vendor") == vendor and not (without_screen and screen):
            found.append(node)
    return found


def _sys_text(root: Path, kind: str, node: str, name: str) -> str:
    try:
        return (root / "sys/class" / kind / node / "device" / name).read_text().strip()
    except OSError:
        return ""


VENDORS = (
    Vendor("NVIDIA", (_nvidia_smi, _pynvml), _nvidia_nodes, (("CUDA_VISIBLE_DEVICES",),)),
    Vendor(
        "AMD",
        (_amdsmi, _rocm_smi),
        _amd_nodes,
        (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")),
    ),
    Vendor("Intel", (_xpu_smi,), _intel_nodes, (("ZE_AFFINITY_MASK",), ("ONEAPI_DEVICE_SELECTOR",))),
    Vendor("Google", (), _tpu_nodes, (("TPU_VISIBLE_CHIPS",),)),
)
