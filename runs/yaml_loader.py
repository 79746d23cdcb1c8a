"""PyYAML's loader with keys that know their line, and none of them twice."""

from pathlib import Path
from typing import Any

import yaml

from runs.errors import InputError
from runs.yaml_file import YamlKey


class Loader(yaml.SafeLoader):
    """SafeLoader, but a key given twice is an error."""

    path: Path

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
                    f"{self.path}:{line}: {key.value} is given twice, first in line {seen[key.value]}",
                    "keep one of them; YAML would take the last",
                )
            seen[key.value] = line
