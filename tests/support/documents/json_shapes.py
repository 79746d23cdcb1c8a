"""The structures of docs/json.md, and their comparison with the output of a command."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.conftest import ROOT

Shape = dict[str, str]  # key → type
_PLAIN: dict[str, Any] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "any": object,
}  # fmt: skip


@cache
def shapes() -> dict[str, Shape]:
    """Return the structure of each heading; a heading with a comma names multiple commands."""
    text = (ROOT / "docs" / "json.md").read_text()
    by_name: dict[str, Shape] = {}
    for names, block in re.findall(r"(?m)^### (.+)\n\n```text\n((?:.*\n)*?)```", text):
        lines = (line.partition("#")[0].strip().partition(": ") for line in block.splitlines())
        shape = {key: kind for keys, _, kind in lines for key in keys.split(", ")}
        for name in [names] if "(" in names else names.split(", "):
            assert name not in by_name, name
            by_name[name] = shape
    return by_name


def differences(value: Any, name: str) -> list[str]:
    """Return the differences between an output and the documented structure of this name."""
    return list(_of_shape(value, name, name))


def _of_shape(value: Any, name: str, at: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{at}: {type(value).__name__}, documented: {name}"
        return
    shape = with_included_keys(name)
    kinds = {key.removesuffix("?"): kind for key, kind in shape.items()}
    missing = [key for key in shape if not key.endswith("?") and key != "*" and key not in value]
    yield from (f"{at}.{key}: missing" for key in missing)
    for key, item in value.items():
        if key in kinds:
            yield from _of_type(item, kinds[key], f"{at}.{key}")
        elif "*" not in shape:
            yield f"{at}.{key}: not documented"


def with_included_keys(name: str) -> Shape:
    """Return a structure with the keys of the structure that it includes."""
    shape = dict(shapes()[name])
    included = shape.pop("also", None)
    return (with_included_keys(included) if included else {}) | shape


def _of_type(value: Any, kind: str, at: str) -> Iterator[str]:
    if kind.startswith("list of ") and not (value is None and kind.endswith(" or null")):
        items = kind.removeprefix("list of ").removesuffix(" or null")
        if not isinstance(value, list):
            yield f"{at}: {type(value).__name__}, documented: {kind}"
            return
        for place, item in enumerate(value):
            yield from _of_type(item, items, f"{at}[{place}]")
        return
    reported: list[str] = []
    for option in kind.split(" or "):
        if option == "null":
            problems = [] if value is None else [f"{at}: {type(value).__name__}, documented: {kind}"]
        elif option in _PLAIN:
            fits = isinstance(value, _PLAIN[option]) and (option in ("boolean", "any") or not isinstance(value, bool))
            problems = [] if fits else [f"{at}: {type(value).__name__}, documented: {kind}"]
        else:
            problems = list(_of_shape(value, option, at))
        if not problems:
            return
        reported = reported or problems
    yield from reported
