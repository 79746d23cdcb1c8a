"""The fields of a system description with their meanings, and those of measurements.json.

Source: mlcommons/inference commit b66003e1, tools/submission/submission_checker/constants.py,
SYSTEM_DESC_REQUIRED_FIELDS and SYSTEM_DESC_MEANINGFUL_RESPONSE_REQUIRED_FIELDS (those that must not be empty).
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class SystemField:
    """A field of a system description, with an example of its value."""

    name: str
    meaning: str
    example: str
    may_be_empty: bool = False


STATUSES = ("available", "preview", "rdi")  # [checker: VALID_AVAILABILITIES]
NOT_APPLICABLE = "N/A"
REPLACE_ME = "REPLACE-ME"  # placeholder in configs/system-example.yaml that the submitter must replace

# Fields that options of `main.py submit` or the results set.
GIVEN = ("division", "submitter", "system_type", "is_network")

FIELDS: tuple[SystemField, ...] = (
    SystemField("division", "closed, open or network", "closed"),
    SystemField("submitter", "the organization", "Example Org"),
    SystemField("status", "available, preview or rdi", "available"),
    SystemField("system_name", "the full name of the system", "Example Server (1x H100-SXM-80GB)"),
    SystemField("system_type", "datacenter, edge, or both", "datacenter"),
    SystemField("system_type_detail", "more details of the type", "N/A", True),
    SystemField("number_of_nodes", "number of machines in the system", "1"),
    SystemField("host_processor_model_name", "CPU model", "Intel(R) Xeon(R) Platinum 8480C"),
    SystemField("host_processors_per_node", "CPU sockets in use", "2"),
    SystemField("host_processor_core_count", "cores of one CPU", "56"),
    SystemField("host_processor_frequency", "highest clock of the CPU", "3800 MHz", True),
    SystemField("host_processor_caches", "the CPU's caches", "L1d 48K, L1i 32K, L2 2M, L3 105M", True),
    SystemField("host_processor_interconnect", "interconnect between sockets", "UPI", True),
    SystemField("host_memory_capacity", "main memory of a node", "2 TB"),
    SystemField("host_memory_configuration", "memory modules", "32x 64GB DDR5-4800"),
    SystemField("host_storage_capacity", "storage of a node", "3.84 TB"),
    SystemField("host_storage_type", "kind of storage", "NVMe SSD"),
    SystemField("host_networking", "kind of network", "1x 100GbE"),
    SystemField("host_networking_topology", "topology between nodes; N/A for one node", "N/A"),
    SystemField("host_network_card_count", "network cards of a node", "1x ConnectX-6"),
    SystemField("accelerators_per_node", "number of accelerators; 0 if there are none", "1"),
    SystemField("accelerator_model_name", "accelerator model", "NVIDIA H100-SXM-80GB"),
    SystemField("accelerator_memory_capacity", "memory of one accelerator", "80 GB"),
    SystemField("accelerator_memory_configuration", "kind of the accelerator's memory", "HBM3"),
    SystemField("accelerator_frequency", "highest clock of the accelerator", "1980 MHz", True),
    SystemField("accelerator_host_interconnect", "interconnect between host and accelerator", "PCIe Gen5 x16"),
    SystemField("accelerator_interconnect", "interconnect between accelerators", "NVLink"),
    SystemField("accelerator_interconnect_topology", "topology of the accelerators", "all to all", True),
    SystemField("accelerator_on-chip_memories", "memories on the accelerator's chip", "L2 50 MB", True),
    SystemField("cooling", "air, liquid, ...", "air"),
    SystemField("framework", "the inference engine and its version", "vLLM 0.32.0"),
    SystemField("other_software_stack", "other software and versions", "CUDA 12.8, PyTorch 2.13.0"),
    SystemField("operating_system", "operating system and version", "Ubuntu 24.04"),
    SystemField("hw_notes", "other notes on the hardware", "", True),
    SystemField("sw_notes", "other notes on the software", "", True),
)
# Additional fields of a system that LoadGen reaches over a network. The checker allows empty values; the rules require
# layers one to four. [checker: SYSTEM_DESC_REQUIRED_FIELDS_NETWORK_MODE; inference_rules.adoc, Network Division]
IS_NETWORK = "is_network"
NETWORK_FIELDS: tuple[SystemField, ...] = (
    SystemField(IS_NETWORK, "the text true", "true"),
    SystemField("network_type", "Ethernet, Infiniband, IEEE802.11 or 3GPP", "Ethernet"),
    SystemField("network_media", "copper, fiber or wireless", "copper"),
    SystemField("network_rate", "rate of a link", "100 Gbit/s"),
    SystemField("nic_loadgen", "network cards of LoadGen's machine", "ConnectX-6"),
    SystemField("number_nic_loadgen", "number of network cards of LoadGen's machine", "1"),
    SystemField("net_software_stack_loadgen", "network software of LoadGen's machine", "Linux 6.8 TCP/IP"),
    SystemField("network_protocol", "protocols and their sizes", "HTTP/1.1 over TCP, MTU 9000"),
    SystemField("number_connections", "number of open connections to the system", "1024"),
    SystemField("nic_sut", "network cards of the system", "ConnectX-6"),
    SystemField("number_nic_sut", "number of network cards of the system", "1"),
    SystemField("net_software_stack_sut", "network software of the system", "Linux 6.8 TCP/IP, uvicorn"),
    SystemField("network_topology", "how the machines are connected", "both at one switch"),
)
NAMES = tuple(field.name for field in FIELDS)
# Fields that the checker converts to numbers, with their minimum. [checker] system_check.required_fields_check
MIN_COUNTS = {"number_of_nodes": 1, "accelerators_per_node": 0}


def count_of(value: object) -> int | None:
    """Return the whole number that a field of a system description states in ASCII digits, or None."""
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*", str(value), re.ASCII)
    return int(match[1]) if match else None


def count_problem(name: str, value: object) -> str:
    """Return what the value of a field in MIN_COUNTS must be, or an empty text if it is correct."""
    count = count_of(value)
    return "" if count is not None and count >= MIN_COUNTS[name] else f"a whole number of at least {MIN_COUNTS[name]}"


NETWORK_NAMES = tuple(field.name for field in NETWORK_FIELDS)

# Fields of measurements.json, none of which may be empty. [checker: SYSTEM_IMP_REQUIRED_FILES]
MEASUREMENT_FIELDS = (
    "input_data_types",
    "retraining",
    "starting_weights_filename",
    "weight_data_types",
    "weight_transformations",
)
