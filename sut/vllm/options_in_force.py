"""Finding in an engine's own configuration what became of an option that was asked for."""

import contextlib
import dataclasses
import enum
import operator
from pathlib import Path
from typing import Any

# Engine arguments whose value stands under another name in vLLM's configuration, and where (vLLM 0.32,
# EngineArgs.create_engine_config). With the part: `backend` and `policy` occur in several.
RENAMED = {
    "attention_backend": "attention_config.backend",
    "data_parallel_address": "parallel_config.data_parallel_master_ip",
    "device": "device_config.device_type",
    "kv_cache_dtype": "cache_config.cache_dtype",
    "scheduling_policy": "scheduler_config.policy",
}

# Where the others stand under their own name. In this order: a few names occur in several parts.
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
    """Look an engine argument up in an engine configuration made of parts.

    Returns:
        (found, value); the place of RENAMED, or the top level and then the parts in the order of PARTS.
    """
    places = (RENAMED[name],) if name in RENAMED else (name, *(f"{part}.{name}" for part in PARTS))
    for place in places:
        with contextlib.suppress(AttributeError):  # a part that this engine's configuration does not have, or is None
            return True, operator.attrgetter(place)(config)
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
        return plain(_items(value))
    if isinstance(value, Path):
        return str(value)
    return str(value).removeprefix("torch.")


def difference(asked: Any, in_force: Any) -> bool:
    """Return whether the effective value differs from the requested one.

    "auto" and None leave the choice to the engine. Of a dictionary only the keys that were asked for are compared. A
    member of an enumeration may be asked for by its value or by its name, in any case, as vLLM takes it.
    """
    want = plain(asked)
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
    """The members of a dictionary or of a dataclass by name; None for anything else."""
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return None
