"""The keys of users' YAML files, which know their line."""

from typing import Any

from runs.errors import InputError


class YamlKey(str):
    """A key of a YAML file; `place` is FILE:LINE."""

    place: str


def with_underscores(values: dict[Any, Any]) -> dict[str, Any]:
    """Return the mapping with `target-qps` spelled `target_qps`.

    Raises:
        InputError: If the mapping has both spellings.
    """
    plain: dict[str, Any] = {}
    for key, value in values.items():
        name = YamlKey(str(key).replace("-", "_"))
        name.place = getattr(key, "place", "")
        if name in plain:
            raise InputError(f"{name.place}: {name} occurs twice, with - and with _", "remove one of these")
        plain[name] = value
    return plain


def line_of_key(values: dict[str, Any], name: str) -> str:
    """Return FILE:LINE of a key; empty if the key is not from a file."""
    return next((getattr(key, "place", "") for key in values if key == name), "")
