"""Comparison of requested options with an engine's effective configuration."""

import contextlib
import dataclasses
import enum
import operator
from pathlib import Path
from typing import Any

# Engine arguments that have another name in vLLM's configuration: the part and the name there (vLLM 0.32,
# EngineArgs.create_engine_config).
RENAMED = {
    "attention_backend": "attention_config.backend",
    "data_parallel_address": "parallel_config.data_parallel_master_ip",
    "device": "device_config.device_type",
    "kv_cache_dtype": "cache_config.cache_dtype",
    "scheduling_policy": "scheduler_config.policy",
}

# Parts that are searched for the other arguments, in this order: a few names occur in multiple parts.
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
    "kernel_config",
    "offload_config",
    "offload_config.uva",
    "offload_config.prefetch",
    "lora_config",
    "structured_outputs_config",
)


def find_option(config: Any, name: str) -> tuple[bool, Any]:
    """Look up an engine argument in vLLM's configuration, which has multiple parts.

    Returns:
        Whether the argument was found, and its value. RENAMED has priority over the top level, and that over PARTS.
    """
    places = (RENAMED[name],) if name in RENAMED else (name, *(f"{part}.{name}" for part in PARTS))
    for place in places:
        with contextlib.suppress(
            AttributeError
        ):  # the part is missing in the configuration of this engine, or it is None
            return True, operator.attrgetter(place)(config)
    return False, None


def plain(value: Any) -> Any:
    """Return a value for JSON: enumerations by value, torch types by name, dataclasses as dictionaries."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(_items(value))
    if isinstance(value, Path):
        return str(value)
    return str(value).removeprefix("torch.")


def difference(requested: Any, in_force: Any) -> bool:
    """Return whether the effective value differs from the requested one.

    "auto" and None leave the choice to the engine. In a dictionary, only the requested keys are compared. Members of
    enumerations may be requested by value or by name, in upper or lower case, as in vLLM.
    """
    want = plain(requested)
    if want is None or want == "auto":
        return False
    if isinstance(want, dict):
        have = _items(in_force)
        return have is None or any(difference(value, have.get(key)) for key, value in want.items())
    if isinstance(in_force, enum.Enum) and str(want).casefold() == in_force.name.casefold():
        return False
    have = plain(in_force)
    if isinstance(want, bool) or isinstance(have, bool):
        return bool(want != have)
    if isinstance(want, int | float) and isinstance(have, int | float):
        return float(want) != float(have)
    return str(want) != str(have)


def _items(value: Any) -> dict[str, Any] | None:
    """Return the members of a dictionary or dataclass by name; None for other values."""
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return None
