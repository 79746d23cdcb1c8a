"""Finding in an engine's own configuration what became of an option that was asked for."""

import dataclasses
import enum
from pathlib import Path
from typing import Any

# Engine arguments whose value stands under another name in the engine's configuration.
RENAMED = {"kv_cache_dtype": "cache_dtype", "device": "device_type"}

# Where to look first: a few field names occur in several parts of the configuration.
PARTS = (
    "model_config",
    "cache_config",
    "parallel_config",
    "scheduler_config",
    "load_config",
    "device_config",
    "observability_config",
    "compilation_config",
    "attention_config",
    "lora_config",
    "structured_outputs_config",
)


def find_option(config: Any, name: str) -> tuple[bool, Any]:
    """Look an engine argument up in an engine configuration made of parts.

    Returns:
        (found, value); the top level is searched before the parts, in the order of PARTS.
    """
    wanted = RENAMED.get(name, name)
    for part in (config, *(getattr(config, attribute, None) for attribute in PARTS)):
        if part is not None and hasattr(part, wanted):
            return True, getattr(part, wanted)
    return False, None


def plain(value: Any) -> Any:
    """A value as JSON can hold it: enums by value, torch types by name, dataclasses as dictionaries."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name, None)) for field in dataclasses.fields(value)}
    if isinstance(value, Path):
        return str(value)
    return str(value).removeprefix("torch.")


def difference(asked: Any, in_force: Any) -> bool:
    """Whether what is in force differs from what was asked.

    "auto" and None leave the choice to the engine. Of a dictionary only the keys that were asked for are compared.
    """
    want, have = plain(asked), plain(in_force)
    if want is None or want == "auto":
        return False
    if isinstance(want, dict):
        return not isinstance(have, dict) or any(difference(want[key], have.get(key)) for key in want)
    if isinstance(want, bool) or isinstance(have, bool):
        return bool(want != have)
    if isinstance(want, int | float) and isinstance(have, int | float):
        return float(want) != float(have)
    return str(want) != str(have)
