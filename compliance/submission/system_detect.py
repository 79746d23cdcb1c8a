"""Hardware facts that a leg's manifest does not hold, read from this machine. Reads, never changes anything.

Only of use where this is the machine that the legs ran on (`is_the_machine`).
"""

import contextlib
import platform
from collections.abc import Iterator
from pathlib import Path

import psutil

from runs.accelerators import accelerators
from runs.environment import host_facts
from runs.record.manifest import Manifest

_SYS = Path("/sys")
_SECTOR_BYTES = 512  # unit of /sys/block/*/size, whatever the device's own is [Linux block layer]
_NO_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")


def memory_gib(manifest: Manifest) -> int:
    return round(int(manifest.host.get("memory_bytes") or 0) / 2**30)


def is_the_machine(manifest: Manifest) -> bool:
    """Did the leg run here? By CPU, cores and memory, and by the accelerators' ids or else the host's name."""
    here = host_facts()
    if any(here[name] != manifest.host.get(name) for name in ("cpu", "cores_logical")):
        return False
    if abs(here["memory_bytes"] / 2**30 - memory_gib(manifest)) > 1:
        return False
    recorded = {gpu.get("uuid") for gpu in manifest.accelerator}
    if recorded:
        return recorded <= {gpu["uuid"] for gpu in accelerators()}
    return bool(here["hostname"] == manifest.host.get("hostname"))


def detect() -> dict[str, str]:
    """Fields of the system description that could be read here; what could not is left out."""
    packages = _SYS.glob("devices/system/cpu/cpu[0-9]*/topology/physical_package_id")
    sockets = len({_read(path) for path in packages} - {""})
    cores = psutil.cpu_count(logical=False)
    highest_khz = _read(_SYS / "devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    found = {
        "host_processors_per_node": str(sockets or ""),
        "host_processor_core_count": str(cores // sockets) if sockets and cores else "",
        "host_processor_frequency": f"{int(highest_khz) // 1000} MHz" if highest_khz.isdecimal() else "",
        "host_processor_caches": ", ".join(_caches()),
        **_storage(),
        **_network(),
    }
    with contextlib.suppress(OSError):
        found["operating_system"] = platform.freedesktop_os_release()["PRETTY_NAME"]
    return {name: value for name, value in found.items() if value}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _caches() -> Iterator[str]:
    """One of each level, as the first core has them."""
    letters = {"Data": "d", "Instruction": "i"}
    for path in sorted(_SYS.glob("devices/system/cpu/cpu0/cache/index[0-9]*")):
        level, kind, size = (_read(path / name) for name in ("level", "type", "size"))
        if level and size:
            yield f"L{level}{letters.get(kind, '')} {size}"


def _storage() -> dict[str, str]:
    """All disks together; a disk behind a hypervisor may be anything."""
    total_bytes, kinds = 0, set()
    for disk in sorted(_SYS.glob("block/*")):
        sectors = _read(disk / "size")
        if disk.name.startswith(_NO_DISKS) or not sectors.isdecimal() or sectors == "0":
            continue
        total_bytes += int(sectors) * _SECTOR_BYTES
        if disk.name.startswith("nvme"):
            kinds.add("NVMe SSD")
        elif disk.name.startswith(("vd", "xvd")):
            kinds.add("virtual disk")
        else:
            kinds.add("hard disk" if _read(disk / "queue/rotational") == "1" else "SSD")
    if not total_bytes:
        return {}
    return {"host_storage_capacity": f"{total_bytes / 1e9:.0f} GB", "host_storage_type": ", ".join(sorted(kinds))}


def _network() -> dict[str, str]:
    """Network cards, which have a device behind them; bridges and the like have none."""
    cards = [path for path in sorted(_SYS.glob("class/net/*")) if (path / "device").exists()]
    if not cards:
        return {}
    speeds = []
    for card in cards:
        speed_mbit = _read(card / "speed")  # -1 where the driver does not know
        known = speed_mbit.isdecimal() and int(speed_mbit) > 0
        speeds.append(f"{int(speed_mbit) / 1000:g} Gbit/s" if known else "speed unknown")
    kinds = [f"{speeds.count(speed)}x Ethernet ({speed})" for speed in sorted(set(speeds))]
    return {"host_network_card_count": str(len(cards)), "host_networking": ", ".join(kinds)}
