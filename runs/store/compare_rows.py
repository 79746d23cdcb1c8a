"""Two stored runs side by side: were they made under the same conditions, and what differs."""

from dataclasses import dataclass
from typing import Any

import orjson

from runs.record.conditions import differences
from runs.store.store_schema import COLUMNS

# Options that are techniques, not conditions; they have columns of their own.
_TECHNIQUES = {column.name for column in COLUMNS if column.role == "technique"} | {"speculative_config"}
_PACKED = ("engine_options", "sampling")  # columns that hold several settings as JSON


@dataclass(frozen=True)
class RowDifference:
    """One value in both runs. `ratio` is second over first, for measured quantities."""

    name: str
    first: Any
    second: Any
    ratio: float | None = None


@dataclass(frozen=True)
class RowComparison:
    """`conditions` and `techniques` hold only what differs, `numbers` everything that either run has."""

    conditions: list[RowDifference]
    techniques: list[RowDifference]
    numbers: list[RowDifference]
    not_recorded: list[str]  # conditions that one of the runs does not tell

    @property
    def same_conditions(self) -> bool:
        """Only where both runs tell their conditions, and they are equal."""
        return not self.conditions and not self.not_recorded


def compare_rows(first: dict[str, Any], second: dict[str, Any]) -> RowComparison:
    """Compare two rows of the store."""
    conditions, techniques, numbers, not_recorded = [], [], [], []
    for column in COLUMNS:
        a, b = first.get(column.name), second.get(column.name)
        if column.role == "condition":
            if (a is None) != (b is None):
                not_recorded.append(column.name)
            elif column.name in _PACKED:
                conditions += _unpacked(column.name, a, b)
            elif a != b:
                conditions.append(RowDifference(column.name, a, b))
        elif column.role == "technique" and a != b:
            techniques.append(RowDifference(column.name, a, b))
        elif column.role == "number" and not (a is None and b is None):
            numbers.append(RowDifference(column.name, a, b, _ratio(a, b) if column.type == "REAL" else None))
    return RowComparison(conditions, techniques, numbers, not_recorded)


def _unpacked(name: str, first: Any, second: Any) -> list[RowDifference]:
    found = differences(_settings(first), _settings(second))
    return [RowDifference(f"{name}.{key}", *found[key]) for key in sorted(found) if key not in _TECHNIQUES]


def _settings(text: Any) -> dict[str, Any]:
    try:
        value = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        return {"": text}
    return value if isinstance(value, dict) else {"": value}


def _ratio(first: Any, second: Any) -> float | None:
    numeric = all(isinstance(value, int | float) for value in (first, second))
    return second / first if numeric and first else None
