"""Rules on numbers and kinds of devices in the names of a system, compared with the fields of its description."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, compared
from compliance.trees.system_fields import count_of

# Kinds of accelerators in the rounds v4.1 to v6.1. Other kinds are not checked.
_KIND = re.compile(
    r"(?:(?<![A-Za-z0-9])|(?<=\d[xX]))"
    r"(GH200|GB[23]00|[HAB][123]00|L40S?|L4|T4|MI3\d{2}[XA]?|B[567]0|RTX ?(?:PRO ?)?\d{4}|\d{4} Ada)(?!\d)",
    re.IGNORECASE,
)
_PROCESSOR = re.compile(r"(?:EPYC|Xeon)(?:[ -](?:Platinum|Gold|Silver))?[ -](\d{4}[A-Z]*)", re.IGNORECASE)
_COUNT_BEFORE = re.compile(r"(?<![A-Za-z0-9.])(\d{1,4}) ?[xX] ?(?:[A-Za-z]+[- ]){0,2}$")
_COUNT_BEHIND = re.compile(r"[\w.\- ]{0,40}?[xX](\d{1,4})(?![A-Za-z0-9])")
_GIGABYTES = re.compile(r"(?<![\d.])(\d{2,3}) ?G[Bb]?(?![a-z0-9])")
_CAPACITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([GM]i?B)")
_GB = {"GB": 1.0, "GiB": 1.074, "MB": 1e-3, "MiB": 1.049e-3}
_APART = 0.12  # allowed relative difference of capacities: 141 GB are 131 GiB, and a part of them is not usable
# Patterns of numbers in names, with the fields that state the number: the product of all fields, or the first field.
_HOSTS = (
    (re.compile(r"(?<![A-Za-z0-9])(\d{1,3})(?:x(?:EPYC|Xeon)|S(?![A-Za-z0-9]))"),
     "host_processors_per_node", "number_of_nodes"),
    (re.compile(r"(?<![A-Za-z0-9])(\d{2,3})C(?![A-Za-z0-9])"), "host_processor_core_count", "host_processors_per_node"),
    (re.compile(r"(?<![A-Za-z0-9])(\d{1,3})-node"), "number_of_nodes", ""),
)  # fmt: skip


@decides(
    "tree",
    ("system-accelerators", "warning", OURS, "accelerators in the names of a system, compared with its fields",
     "correct the field of the system description, or the name of the system"),
    ("system-hosts", "warning", OURS, "hosts in the names of a system, compared with its fields",
     "correct the field of the system description, or the name of the system"),
)  # fmt: skip
def check_system_names(path: Path, value: dict[str, Any]) -> Iterator[Finding]:
    """Compare the names of a system (of its directory, system_name) with the other fields of its description."""
    for where, name in (("the directory", path.stem), ("system_name", str(value.get("system_name", "")))):
        spaced = name.replace("_", " ")
        for named_text, required, field in _accelerators(spaced, value):
            yield compared(
                "system-accelerators", False, f"{where} names {named_text}", required, path, decided_by=[field]
            )
        for pattern, field, per in _HOSTS:
            named, count, times = pattern.search(spaced), count_of(value.get(field)), count_of(value.get(per)) or 1
            if named and count and int(named[1]) not in (count, count * times):
                named_text = f"{where} is {name!r}"
                yield compared("system-hosts", False, named_text, f"{field} {count}", path, decided_by=[field])
        processor = "host_processor_model_name"
        kinds = _PROCESSOR.findall(spaced)
        if kinds and not any(kind.upper() in str(value.get(processor)).upper() for kind in kinds):
            named_text = f"{where} is {name!r}"
            yield compared(
                "system-hosts", False, named_text, f"{processor} {value.get(processor)}", path, decided_by=[processor]
            )


def _accelerators(name: str, value: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield contradictions between a name and a field: what the name states, what the field states, and the field."""
    model = str(value.get("accelerator_model_name"))
    nodes, of_node = (count_of(value.get(field)) for field in ("number_of_nodes", "accelerators_per_node"))
    kinds = {_plain(kind) for kind in _KIND.findall(model.replace("_", " "))}
    named = list(_KIND.finditer(name))
    if kinds and named and not kinds & {_plain(name[0]) for name in named}:
        yield named[0][0], f"accelerator_model_name {model}", "accelerator_model_name"
    counts = [
        int(match[1])
        for kind in named
        if (match := _COUNT_BEFORE.search(name[: kind.start()]) or _COUNT_BEHIND.match(name[kind.end() :]))
    ]
    total = (nodes or 0) * (of_node or 0)
    # A single node may have fewer accelerators, and a name may state the number of each kind.
    least = total - (of_node or 0) if nodes and nodes > 1 else total - 1
    right = any(least < count <= total for count in (*counts, sum(counts)))
    if counts and nodes and of_node is not None and not right and "cpu" not in name:
        text = f"{', '.join(map(str, sorted(set(counts))))} accelerators"
        yield text, f"number_of_nodes {nodes}, accelerators_per_node {of_node}", "accelerators_per_node"
    capacity = _CAPACITY.match(str(value.get("accelerator_memory_capacity")))
    sizes = [float(size) for text in (name, model) for size in _GIGABYTES.findall(text)]
    if capacity and sizes and named:
        size = float(capacity[1]) * _GB[capacity[2]]
        if not any(abs(known_size - size) <= _APART * size for known_size in sizes):
            field = "accelerator_memory_capacity"
            yield f"{sizes[0]:g} GB", f"{field} {capacity[0].strip()}", field


def _plain(kind: str) -> str:
    return kind.replace(" ", "").upper()
