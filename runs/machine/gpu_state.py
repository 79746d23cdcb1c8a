"""The state of NVIDIA GPUs that affects a result: power limit, clocks, ECC, MIG, memory in use and links.

`nvidia-smi -q -x` names fields differently from version to version, so each fact has a list of paths. A fact that
nvidia-smi does not report is None.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from runs.machine.accelerators import AcceleratorRow, ProbeError, tool_output

IDLE_MIB = 1_024  # more memory in use belongs to a process
_POWER = ("gpu_power_readings/current_power_limit", "gpu_power_readings/power_limit", "power_readings/power_limit",
          "power_readings/current_power_limit")  # fmt: skip
_DEFAULT_POWER = ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit")
_APPLICATION_CLOCK = ("applications_clocks/graphics_clock",)
_MAX_CLOCK = ("max_clocks/graphics_clock", "max_clocks/sm_clock")
_REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")
# Reasons for lower clocks besides an idle GPU and the power limit under load.
_SLOW = re.compile(r"_(hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown|sw_thermal_slowdown)$")
_LINK = "pci/pci_gpu_link_info/"


@dataclass(frozen=True)
class GpuState:
    """The state of one GPU."""

    index: int
    uuid: str
    power_limit_w: float | None
    default_power_limit_w: float | None
    clock_mhz: float | None  # clock for applications
    max_clock_mhz: float | None
    slowed_by: tuple[str, ...]  # reasons for which the clock is reduced at present
    has_ecc: bool | None
    has_mig: bool | None
    used_mib: float | None
    processes: int  # number of processes that use the GPU
    pcie: str  # such as `PCIe Gen5 x16`; empty if unknown
    nvlinks: int | None  # number of active links; None if unknown

    def deviations(self) -> Iterator[str]:
        """Yield what a submission must state about this GPU, because it differs from the default."""
        if self.power_limit_w and self.default_power_limit_w and self.power_limit_w != self.default_power_limit_w:
            yield f"power limit {self.power_limit_w:g} W, default {self.default_power_limit_w:g} W"
        if self.clock_mhz and self.max_clock_mhz and self.clock_mhz < self.max_clock_mhz:
            yield f"clock of applications {self.clock_mhz:g} MHz, maximum {self.max_clock_mhz:g} MHz"
        if self.has_ecc is False:
            yield "ECC off"
        if self.has_mig:
            yield "MIG on"

    def disturbances(self) -> Iterator[str]:
        """Yield what slows a run down on this GPU at present."""
        if self.used_mib is not None and self.used_mib > IDLE_MIB:
            yield f"{self.used_mib:,.0f} MiB in use by other processes ({self.processes}); end them before a run"
        if self.slowed_by:
            yield f"the clock is reduced: {', '.join(self.slowed_by)}; check the cooling and the power supply"

    def links(self) -> str:
        """Return the fields of a system description that state how the GPU is connected."""
        fields = [f"accelerator_host_interconnect {self.pcie}"] if self.pcie else []
        if self.nvlinks is not None:
            fields.append(f"accelerator_interconnect {f'NVLink ({self.nvlinks} links)' if self.nvlinks else 'N/A'}")
        return ", ".join(fields)


def gpu_states(rows: Sequence[AcceleratorRow]) -> list[GpuState]:
    """Return the state of each of these accelerators that nvidia-smi knows.

    Raises:
        ProbeError: If nvidia-smi is missing or fails.
    """
    try:
        log = ElementTree.fromstring(tool_output("nvidia-smi", "-q", "-x"))
    except ElementTree.ParseError as error:
        raise ProbeError(f"nvidia-smi did not print XML: {error}") from error
    links, wanted = _active_links(), {row["uuid"] for row in rows}
    states = [_state(index, gpu, links) for index, gpu in enumerate(log.iter("gpu"))]
    return [state for state in states if state.uuid in wanted]


def _state(index: int, gpu: ElementTree.Element, links: dict[str, int] | None) -> GpuState:
    uuid = gpu.findtext("uuid", "").strip()
    generation, width = (_number(gpu, _LINK + name) for name in ("pcie_gen/max_link_gen", "link_widths/max_link_width"))
    return GpuState(
        index=index,
        uuid=uuid,
        power_limit_w=_number(gpu, *_POWER),
        default_power_limit_w=_number(gpu, *_DEFAULT_POWER),
        clock_mhz=_number(gpu, *_APPLICATION_CLOCK),
        max_clock_mhz=_number(gpu, *_MAX_CLOCK),
        slowed_by=tuple(_active_reasons(gpu)),
        has_ecc=_switch(gpu, "ecc_mode/current_ecc"),
        has_mig=_switch(gpu, "mig_mode/current_mig"),
        used_mib=_number(gpu, "fb_memory_usage/used"),
        processes=len(gpu.findall("processes/process_info")),
        pcie=f"PCIe Gen{generation:g} x{width:g}" if generation and width else "",
        nvlinks=None if links is None else links.get(uuid, 0),
    )


def _number(gpu: ElementTree.Element, *paths: str) -> float | None:
    """Return the number at the first path that has one, without its unit."""
    for path in paths:
        if match := re.match(r"\d+(\.\d+)?", gpu.findtext(path, "").strip()):
            return float(match[0])
    return None


def _switch(gpu: ElementTree.Element, path: str) -> bool | None:
    return {"enabled": True, "disabled": False}.get(gpu.findtext(path, "").strip().lower())


def _active_reasons(gpu: ElementTree.Element) -> Iterator[str]:
    for name in _REASONS:
        for reason in gpu.findall(f"{name}/*"):
            if (reason.text or "").strip() == "Active" and (match := _SLOW.search(reason.tag)):
                yield match[1].replace("_", " ")


def _active_links() -> dict[str, int] | None:
    """Return the number of active NVLink links by UUID; None if nvidia-smi does not report them."""
    try:
        text = tool_output("nvidia-smi", "nvlink", "--status")
    except ProbeError:
        return None
    links: dict[str, int] = {}
    uuid = ""
    for line in text.splitlines():
        if match := re.search(r"UUID: (\S+?)\)", line):
            uuid = match[1]
            links[uuid] = 0
        elif re.match(r"\s*Link \d+: \d", line):
            links[uuid] = links.get(uuid, 0) + 1
    return links
