"""Accelerators: stand-ins for the tool, library and device nodes of each vendor."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runs.machine.accelerators import VENDORS, accelerators, described
from runs.machine.environment import ACCELERATOR_FACTS

NVIDIA = """\
0, NVIDIA H100 80GB HBM3, GPU-aaa1, 81559, 570.86.15, 1980, 700.00
1, NVIDIA H100 80GB HBM3, GPU-bbb2, 81559, 570.86.15, 1980, 700.00
2, NVIDIA H100 80GB HBM3, GPU-ccc3, 81559, 570.86.15, 1980, 700.00
"""
XPU_LIST = {"device_list": [{"device_id": 0, "device_name": "Intel(R) Data Center GPU Max 1550", "uuid": "u-0"}]}
XPU_DEVICE = {
    "device_id": 0, "memory_physical_size_byte": "68719476736", "core_clock_rate_mhz": "1600",
    "driver_version": "1.3.2",
}  # fmt: skip
AMDSMI = """
class AmdSmiClkType:
    GFX = "gfx"

def amdsmi_init(): pass
def amdsmi_shut_down(): pass
def amdsmi_get_processor_handles(): return ["first", "second"]
def amdsmi_get_gpu_asic_info(handle): return {"market_name": "AMD Instinct MI355X"}
def amdsmi_get_gpu_device_uuid(handle): return handle + "-uuid"
def amdsmi_get_gpu_vram_info(handle): return {"vram_size": 294896}
def amdsmi_get_gpu_driver_info(handle): return {"driver_version": "6.14.5"}
def amdsmi_get_clock_info(handle, kind): return {"max_clk": 2400}
def amdsmi_get_power_cap_info(handle): return {"power_cap": 1400000000}
"""

PYNVML = """
NVML_CLOCK_SM = 1
class Memory: total = 85520809984

def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlSystemGetDriverVersion(): return "570.86.15"
def nvmlDeviceGetName(handle): return b"NVIDIA H100 80GB HBM3"
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}"
def nvmlDeviceGetMemoryInfo(handle): return Memory
def nvmlDeviceGetMaxClockInfo(handle, kind): return 1980
def nvmlDeviceGetEnforcedPowerLimit(handle): return 700000
"""
LIBRARIES = ("amdsmi", "pynvml")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the root of a host without tools, libraries, devices and variables."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    for vendor in VENDORS:
        for name in (name for group in vendor.visible for name in group):
            monkeypatch.delenv(name, raising=False)
    (tmp_path / "lib").mkdir()
    for name in LIBRARIES:
        sys.modules.pop(name, None)
    yield tmp_path
    for name in LIBRARIES:
        sys.modules.pop(name, None)


def add_tool(root: Path, name: str, script: str) -> None:
    tool = root / "bin" / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def script_that_prints(text: str) -> str:
    return f"/bin/cat <<'END'\n{text}\nEND"


def add_node(root: Path, node: str, vendor: str = "", pci_class: str = "0x038000") -> None:
    (root / "dev" / node).parent.mkdir(parents=True, exist_ok=True)
    (root / "dev" / node).touch()
    if vendor:
        kind = "drm" if node.startswith("dri/") else "accel"
        facts = root / "sys/class" / kind / Path(node).name / "device"
        facts.mkdir(parents=True)
        (facts / "vendor").write_text(f"{vendor}\n")
        (facts / "class").write_text(f"{pci_class}\n")


def test_nvidia_devices_are_found_by_nvidia_smi(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert accelerators(root) == []
    add_tool(root, "nvidia-smi", script_that_prints(NVIDIA))
    first, *rest = accelerators(root)
    assert len(rest) == 2
    assert first == dict(
        zip(ACCELERATOR_FACTS, [cell.strip() for cell in NVIDIA.splitlines()[0].split(",")], strict=True)
    ) | {"vendor": "NVIDIA"}
    assert described(first) == "NVIDIA H100 80GB HBM3, 81559 MiB, driver 570.86.15, 1980 MHz, 700.00 W"
    for text, indices in (("1,0", ["0", "1"]), ("GPU-ccc", ["2"]), ("", []), ("-1", [])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
        rows = accelerators(root)
        assert [row["index"] for row in rows] == indices
        assert all(row["visible_by"] == f"CUDA_VISIBLE_DEVICES={text}" for row in rows)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1234")
    (part,) = accelerators(root)
    assert part["problem"] == "CUDA_VISIBLE_DEVICES selects MIG-1234, but no detected device has this ID"


def test_nvidia_devices_are_found_by_the_library_if_the_tool_is_missing(root: Path) -> None:
    (root / "lib" / "pynvml.py").write_text(PYNVML)
    _, row = accelerators(root)
    assert described(row) == "NVIDIA H100 80GB HBM3, 81559 MiB, driver 570.86.15, 1980 MHz, 700.00 W"
    assert (row["index"], row["uuid"]) == ("1", "GPU-1")
    (root / "lib" / "pynvml.py").write_text(PYNVML.replace("return 2", "raise OSError('no driver')"))
    sys.modules.pop("pynvml")
    add_node(root, "nvidia0")
    (row,) = accelerators(root)
    assert row["problem"] == "nvidia-smi is not installed; pynvml failed: no driver"


def test_amd_devices_are_found_by_the_amdsmi_library(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "lib" / "amdsmi.py").write_text(AMDSMI)
    _, row = accelerators(root)
    assert row == {
        "vendor": "AMD", "index": "1", "name": "AMD Instinct MI355X", "uuid": "second-uuid", "memory.total": "294896",
        "driver_version": "6.14.5", "clocks.max.sm": "2400", "power.limit": "1400",
    }  # fmt: skip
    # ROCr selects first, and HIP selects from the rest. CUDA's variable is another name of HIP's.
    for name, text in (("ROCR_VISIBLE_DEVICES", "1"), ("HIP_VISIBLE_DEVICES", "0"), ("CUDA_VISIBLE_DEVICES", "0")):
        monkeypatch.setenv(name, text)
    assert [row["uuid"] for row in accelerators(root)] == ["second-uuid"]
    # A function that is missing in an older library gives an unknown fact.
    older = AMDSMI.replace("def amdsmi_get_gpu_driver_info", "def other").replace("    GFX", "    OTHER")
    (root / "lib" / "amdsmi.py").write_text(older)
    sys.modules.pop("amdsmi")
    (row,) = accelerators(root)
    assert (row["driver_version"], row["name"]) == (None, "AMD Instinct MI355X")


def test_intel_devices_are_found_by_xpu_smi(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"""
    case "$*" in
        "discovery -j") {script_that_prints(json.dumps(XPU_LIST))}
        ;;
        "discovery -d 0 -j") {script_that_prints(json.dumps(XPU_DEVICE))}
        ;;
        *) echo "no right" >&2; exit 3;;
    esac"""
    add_tool(root, "xpu-smi", "\n".join(line.strip() for line in script.splitlines()))
    (row,) = accelerators(root)
    assert described(row) == "Intel(R) Data Center GPU Max 1550, 65536 MiB, driver 1.3.2, 1600 MHz"
    assert row["uuid"] == "u-0"
    assert row["power.limit"] is None
    monkeypatch.setenv("ZE_AFFINITY_MASK", "0.1")  # part of it
    assert len(accelerators(root)) == 1
    monkeypatch.setenv("ONEAPI_DEVICE_SELECTOR", "level_zero:1")
    assert accelerators(root) == []


@pytest.mark.parametrize(
    ("nodes", "vendor", "count", "words"),
    [
        ({"nvidia0": "", "nvidia1": "", "nvidiactl": ""}, "NVIDIA", 2, "nvidia-smi is not installed"),
        ({"kfd": "", "dri/renderD128": "0x1002", "dri/renderD129": "0x1a03"}, "AMD", 1, "amdsmi cannot be imported"),
        ({"dri/renderD128": "0x8086"}, "Intel", 1, "xpu-smi is not installed"),
        ({"accel0": "0x1ae0", "accel1": "0x1ae0"}, "Google", 2, "no tool"),
    ],
)
def test_a_missing_tool_is_reported_for_each_device(
    nodes: dict[str, str], vendor: str, count: int, words: str, root: Path
) -> None:
    for node, maker in nodes.items():
        add_node(root, node, maker)
    rows = accelerators(root)
    assert [(row["vendor"], row["index"]) for row in rows] == [(vendor, str(at)) for at in range(count)]
    assert all(words in row["problem"] and row["name"] is None for row in rows)
    assert words in described(rows[0])


def test_a_failing_tool_is_reported_for_each_device(root: Path) -> None:
    add_tool(root, "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    assert accelerators(root) == []  # the tool remains, but there is no device
    add_node(root, "nvidia0")
    assert accelerators(root)[0]["problem"].startswith("nvidia-smi failed: Failed to initialize NVML: Driver/library")


def test_integrated_graphics_are_not_accelerators(root: Path) -> None:
    add_node(root, "dri/renderD128", "0x8086", "0x030000")
    assert accelerators(root) == []
    add_node(root, "dri/renderD129", "0x1002", "0x030000")
    assert accelerators(root) == []  # without ROCm's own node the device cannot compute
