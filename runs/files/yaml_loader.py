"""A PyYAML loader whose keys have their line, and which refuses duplicate keys and unbounded aliases."""

from pathlib import Path
from typing import Any

import yaml

from runs.errors import InputError
from runs.files.yaml_keys import YamlKey

# Limit for the values of a file with aliases replaced: nested aliases would otherwise fill the memory.
MAX_VALUES = 200_000


class Loader(yaml.SafeLoader):
    """A SafeLoader that refuses duplicate keys, and aliases that make a file too large."""

    path: Path

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _count_values(node)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        written = [key for key, _ in node.value]  # before PyYAML merges `<<`
        self._refuse_twins(written)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        lines = {key.value: key.start_mark.line + 1 for key in written if isinstance(key, yaml.ScalarNode)}
        return {self._placed(key, lines): value for key, value in mapping.items()}

    def _placed(self, key: Any, lines: dict[str, int]) -> Any:
        if not isinstance(key, str):
            return key
        placed = YamlKey(key)
        placed.place = f"{self.path}:{lines.get(key, 1)}"
        return placed

    def _refuse_twins(self, keys: list[yaml.Node]) -> None:
        seen: dict[str, int] = {}
        for key in keys:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            line = key.start_mark.line + 1
            if key.value in seen:
                raise InputError(
                    f"{self.path}:{line}: {key.value} occurs twice, first in line {seen[key.value]}",
                    "remove one of the two; YAML would use the last",
                )
            seen[key.value] = line


def _count_values(root: yaml.Node) -> None:
    """Count a document's values with all aliases replaced; each node is visited once, without recursion.

    Raises:
        yaml.YAMLError: If there are more than MAX_VALUES values, or a value contains itself.
    """
    counts: dict[int, int | None] = {}  # node ID → values; None while its parts are being counted
    waiting = [root]
    while waiting:
        node = waiting[-1]
        parts = _parts(node)
        if id(node) not in counts:
            counts[id(node)] = None
            for part in parts:
                if counts.get(id(part), 0) is None:
                    raise yaml.YAMLError(f"the value in line {part.start_mark.line + 1} contains itself")
            waiting += [part for part in parts if id(part) not in counts]
            continue
        waiting.pop()
        if counts[id(node)] is None:
            total = 1 + sum(counts[id(part)] or 0 for part in parts)
            if total > MAX_VALUES:
                raise yaml.YAMLError(f"with its aliases it has more than {MAX_VALUES:,} values")
            counts[id(node)] = total


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
