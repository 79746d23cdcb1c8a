"""Settings in units that people read."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from runs.wording import NO_LIMIT_MS, duration, milliseconds

_GIB = 1 << 30
_MIB = 1 << 20


class SettingRow(NamedTuple):
    """Name and value of a setting, as text."""

    name: str
    value: str


def setting_row(name: str, value: Any) -> SettingRow:
    """Return a setting with words as its name, and a unit after its value: `min_duration_ms` 600000 is 10 min."""
    stem, _, unit = name.rpartition("_")
    if isinstance(value, int | float) and not isinstance(value, bool) and unit in _UNITS:
        return SettingRow(_words(stem), _UNITS[unit](value, stem))
    return SettingRow(_words(name), _text(value))


def setting_rows(settings: Iterable[tuple[str, Any]]) -> list[SettingRow]:
    """Return settings with their units; settings without a value are left out."""
    return [setting_row(name, value) for name, value in settings if value not in (None, "", {}, [])]


def _of_ms(value_ms: float, stem: str) -> str:
    if value_ms >= NO_LIMIT_MS and ("limit" in stem or "latency" in stem):
        return "unlimited"
    return f"{milliseconds(value_ms)} ms" if value_ms < 10_000 else _of_s(value_ms / 1e3, stem)


def _of_s(value_s: float, _stem: str) -> str:
    return f"{value_s:.3g} s" if value_s < 90 else duration(value_s)


def _of_bytes(count: float, _stem: str) -> str:
    return f"{count / _GIB:.3g} GiB" if count >= _GIB / 10 else f"{count / _MIB:.3g} MiB"


_UNITS = {
    "ns": lambda value, stem: _of_ms(value / 1e6, stem),
    "us": lambda value, stem: f"{value:g} µs",
    "ms": _of_ms,
    "s": _of_s,
    "bytes": _of_bytes,
}


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", " ").strip()


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
