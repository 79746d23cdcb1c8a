"""Detection of fields of a system description on this machine, if the runs were made on it."""

import contextlib
import platform
from pathlib import Path

import psutil

from compliance.submission.system import memory_gib
from runs.machine.accelerators import accelerators
from runs.machine.environment import host_facts
from runs.record.engines.server_facts import any_server_remote
from runs.record.manifest import Manifest

_SYS = Path("/sys")
_SECTOR_BYTES = 512  # unit of /sys/block/*/size in bytes, for every device [Linux block layer]


def detected_for(manifest: Manifest) -> dict[str, str]:
    """Return the fields of this machine; empty if the run was made on a different machine or on servers."""
    return detect() if is_the_machine(manifest) and not any_server_remote(manifest) else {}


def is_the_machine(manifest: Manifest) -> bool:
    """Return True if CPU, cores, memory, and accelerators or host name of the run are those of this machine."""
    here = host_facts()
    if any(here[name] != getattr(manifest.observed.host, name) for name in ("cpu", "cores_logical")):
        return False
    if abs(here["memory_bytes"] / 2**30 - memory_gib(manifest)) > 1:
        return False
    recorded = {gpu.get("uuid") for gpu in manifest.observed.accelerators}
    if recorded:
        return recorded <= {gpu["uuid"] for gpu in accelerators()}
    return bool(here["hostname"] == manifest.observed.host.hostname)


def detect() -> dict[str, str]:
    """Return the fields of the system description that this machine shows."""
    packages = _SYS.glob("devices/system/cpu/cpu[0-9]*/topology/physical_package_id")
    sockets = len({_read(path) for path in packages} - {""})
    cores = psutil.cpu_count(logical=False)
    highest_khz = _read(_SYS / "devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    letters = {"Data": "d", "Instruction": "i"}
    caches = [
        (_read(path / "level"), letters.get(_read(path / "type"), ""), _read(path / "size"))
        for path in sorted(_SYS.glob("devices/system/cpu/cpu0/cache/index[0-9]*"))
    ]
    # Without loop, ram, dm and md devices.
    disks = [disk for disk in sorted(_SYS.glob("block/*")) if (disk / "device").exists()]
    disks = [disk for disk in disks if not disk.name.startswith(("sr", "fd"))]
    sizes = {disk: int(size) for disk in disks if (size := _read(disk / "size")).isdecimal() and int(size)}
    # Without bridges and other virtual cards.
    cards = [card for card in sorted(_SYS.glob("class/net/*")) if (card / "device").exists()]
    speeds = [_speed(_read(card / "speed")) for card in cards]
    values = {
        "host_processors_per_node": str(sockets or ""),
        "host_processor_core_count": str(cores // sockets) if sockets and cores else "",
        "host_processor_frequency": f"{int(highest_khz) // 1000} MHz" if highest_khz.isdecimal() else "",
        "host_processor_caches": ", ".join(f"L{level}{kind} {size}" for level, kind, size in caches if level and size),
        "host_storage_capacity": f"{sum(sizes.values()) * _SECTOR_BYTES / 1e9:.0f} GB" if sizes else "",
        "host_storage_type": ", ".join(sorted({_disk_type(disk) for disk in sizes})),
        "host_network_card_count": str(len(cards) or ""),
        "host_networking": ", ".join(f"{speeds.count(speed)}x Ethernet ({speed})" for speed in sorted(set(speeds))),
    }
    with contextlib.suppress(OSError):
        values["operating_system"] = platform.freedesktop_os_release()["PRETTY_NAME"]
    return {name: value for name, value in values.items() if value}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _disk_type(disk: Path) -> str:
    if disk.name.startswith("nvme"):
        return "NVMe SSD"
    if disk.name.startswith(("vd", "xvd")):  # behind a hypervisor, the kind of disk is unknown
        return "virtual disk"
    return "hard disk" if _read(disk / "queue/rotational") == "1" else "SSD"


def _speed(mbit: str) -> str:
    is_reported = mbit.isdecimal() and int(mbit) > 0  # -1 if the driver does not report it
    return f"{int(mbit) / 1000:g} Gbit/s" if is_reported else "speed unknown"
