"""The state of NVIDIA GPUs, from outputs of nvidia-smi."""

from pathlib import Path

import pytest

from runs.machine.accelerators import ProbeError
from runs.machine.gpu_state import GpuState, gpu_states
from tests.runs.machine.test_accelerators import add_tool

GPU = """\
  <gpu id="00000000:{bus}:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <uuid>{uuid}</uuid>
    <mig_mode><current_mig>{mig}</current_mig><pending_mig>{mig}</pending_mig></mig_mode>
    <pci><pci_gpu_link_info>
      <pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>4</current_link_gen></pcie_gen>
      <link_widths><max_link_width>16x</max_link_width><current_link_width>16x</current_link_width></link_widths>
    </pci_gpu_link_info></pci>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
      <clocks_event_reason_hw_thermal_slowdown>{thermal}</clocks_event_reason_hw_thermal_slowdown>
    </clocks_event_reasons>
    <fb_memory_usage><total>81559 MiB</total><reserved>551 MiB</reserved><used>{used} MiB</used></fb_memory_usage>
    <ecc_mode><current_ecc>{ecc}</current_ecc></ecc_mode>
    <{power}>
      <power_draw>68.20 W</power_draw><{limit}>{watts} W</{limit}><default_power_limit>700.00 W</default_power_limit>
    </{power}>
    <applications_clocks><graphics_clock>{clock}</graphics_clock></applications_clocks>
    <max_clocks><graphics_clock>1980 MHz</graphics_clock><sm_clock>1980 MHz</sm_clock></max_clocks>
    <processes>{processes}</processes>
  </gpu>
"""
USUAL = {
    "bus": "18", "uuid": "GPU-aaa1", "mig": "Disabled", "thermal": "Not Active", "used": "4", "ecc": "Enabled",
    "power": "gpu_power_readings", "limit": "current_power_limit", "watts": "700.00", "clock": "1980 MHz",
    "processes": "",
}  # fmt: skip
NVLINK = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaa1)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
\t Link 2: <inactive>
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bbb2)
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def add_nvidia_smi(host: Path, *gpus: dict[str, str], nvlink: str | None = NVLINK) -> None:
    """Add a tool that prints the state of GPUs. Values that are not given are usual."""
    log = "".join(GPU.format(**USUAL | gpu) for gpu in gpus)
    (host / "log.xml").write_text(f'<?xml version="1.0" ?>\n<nvidia_smi_log>\n{log}</nvidia_smi_log>\n')
    (host / "links").write_text(nvlink or "")
    links = "exit 6" if nvlink is None else f"/bin/cat {host / 'links'}"
    add_tool(host, "nvidia-smi", f'case "$*" in\n"-q -x") /bin/cat {host / "log.xml"};;\n*) {links};;\nesac')


def states(*uuids: str) -> list[GpuState]:
    return gpu_states([{"vendor": "NVIDIA", "uuid": uuid} for uuid in uuids])


def test_a_usual_gpu_has_links_and_no_deviations(host: Path) -> None:
    add_nvidia_smi(host, {}, {"uuid": "GPU-bbb2", "bus": "2a"})
    first, second = states("GPU-aaa1", "GPU-bbb2")
    assert [*first.deviations(), *first.disturbances()] == []
    assert (first.index, first.power_limit_w, first.max_clock_mhz, first.has_ecc, first.has_mig) == (
        0, 700.0, 1980.0, True, False,
    )  # fmt: skip
    assert (first.pcie, first.nvlinks, second.nvlinks) == ("PCIe Gen5 x16", 2, 0)
    assert first.links() == "accelerator_host_interconnect PCIe Gen5 x16, accelerator_interconnect NVLink (2 links)"
    assert second.links().endswith("accelerator_interconnect N/A")


def test_gpus_that_are_not_selected_are_left_out(host: Path) -> None:
    add_nvidia_smi(host, {}, {"uuid": "GPU-bbb2"})
    assert [state.index for state in states("GPU-bbb2")] == [1]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"watts": "500.00"}, "power limit 500 W, default 700 W"),
        ({"power": "power_readings", "limit": "power_limit", "watts": "350.00"}, "power limit 350 W"),
        ({"clock": "1410 MHz"}, "clock of applications 1410 MHz, maximum 1980 MHz"),
        ({"ecc": "Disabled"}, "ECC off"),
        ({"mig": "Enabled"}, "MIG on"),
    ],
)
def test_a_deviation_from_the_default_is_found(facts: dict[str, str], words: str, host: Path) -> None:
    add_nvidia_smi(host, facts)
    (state,) = states("GPU-aaa1")
    (text,) = state.deviations()
    assert text.startswith(words)


def test_memory_in_use_and_reduced_clocks_are_disturbances(host: Path) -> None:
    busy = "<process_info><pid>12</pid></process_info><process_info><pid>13</pid></process_info>"
    add_nvidia_smi(host, {"used": "70012", "processes": busy, "thermal": "Active"})
    (state,) = states("GPU-aaa1")
    memory, clock = state.disturbances()
    assert memory.startswith("70,012 MiB in use by other processes (2)")
    assert "hw thermal slowdown" in clock
    assert [*state.deviations()] == []


def test_facts_that_are_not_reported_are_unknown(host: Path) -> None:
    add_nvidia_smi(host, dict.fromkeys(("ecc", "mig", "used", "watts", "clock"), "N/A"), nvlink=None)
    (state,) = states("GPU-aaa1")
    assert (state.has_ecc, state.has_mig, state.used_mib, state.power_limit_w, state.clock_mhz) == (None,) * 5
    assert state.nvlinks is None
    assert state.links() == "accelerator_host_interconnect PCIe Gen5 x16"
    assert [*state.deviations(), *state.disturbances()] == []


@pytest.mark.parametrize("script", [None, "exit 9", "echo no XML"])
def test_a_tool_without_a_log_is_an_error(script: str | None, host: Path) -> None:
    if script is not None:
        add_tool(host, "nvidia-smi", script)
    with pytest.raises(ProbeError, match="nvidia-smi"):
        states("GPU-aaa1")
