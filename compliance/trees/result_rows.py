"""The measured numbers of the results of a tree, for the record of `check` and its page."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from statistics import median
from typing import Any

from compliance.trees.causes import SUBJECT
from compliance.trees.findings import object_or_empty
from compliance.trees.scenario_directory import LATENCIES, RATES
from compliance.trees.tree import Place, Tree
from runs.benchmark import SCENARIOS

_SCENARIOS = {name.lower(): name for name in (*SCENARIOS, "MultiStream")}
_WITH_LIMITS = ("Server", "Interactive")  # scenarios in which LoadGen compares latencies with limits
_MIN_GROUP = 3  # minimum number of results on equal accelerators for a comparison with their median


@dataclass(frozen=True)
class ResultRow:
    """The rate of a result, and its latencies with their limits."""

    place: Place
    benchmark: str  # name of the benchmark in the round
    scenario: str
    accelerator: str  # or the processor of a system without accelerators
    accelerators: int
    unit: str  # of the rate
    rate: float | None
    latencies_ms: dict[str, tuple[float, float]] = field(default_factory=dict)  # name → value and limit

    @property
    def rate_per_accelerator(self) -> float | None:
        return self.rate / self.accelerators if self.rate is not None and self.accelerators else None

    def as_json(self, typical: float | None) -> dict[str, Any]:
        """Return the row in plain types.

        Args:
            typical: Median rate per accelerator of the results on equal accelerators.
        """
        rate = self.rate_per_accelerator
        return {
            **dict(zip(SUBJECT, astuple(self.place), strict=True)),
            "benchmark_of_round": self.benchmark,
            "scenario_of_round": self.scenario,
            "accelerator": self.accelerator,
            "accelerators": self.accelerators,
            "rate": self.rate,
            "rate_per_accelerator": rate,
            "rate_to_median": None if rate is None or not typical else rate / typical,
            "unit": self.unit,
            "latencies": [
                {"name": name, "ms": ms, "limit_ms": limit_ms, "share_of_limit": ms / limit_ms}
                for name, (ms, limit_ms) in self.latencies_ms.items()
            ],
        }


def result_records(tree: Tree, numbers: Mapping[Place, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return the results with numbers in plain types.

    Args:
        numbers: Values in the performance log of each result, by LoadGen's key.
    """
    rows = [_row(tree, place, values) for place, values in numbers.items()]
    rates: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows:
        if (rate := row.rate_per_accelerator) is not None:
            rates[_group(row)].append(rate)
    typical = {group: median(values) for group, values in rates.items() if len(values) >= _MIN_GROUP}
    return [row.as_json(typical.get(_group(row))) for row in rows]


def _group(row: ResultRow) -> tuple[str, ...]:
    return row.benchmark, row.scenario, row.unit, row.accelerator


def _row(tree: Tree, place: Place, values: Mapping[str, float]) -> ResultRow:
    key = next((key for key in RATES if values.get(key)), None)
    scenario = _SCENARIOS.get(place.scenario.lower(), place.scenario)
    accelerator, count = _accelerators(tree, place)
    return ResultRow(
        place,
        tree.round.table.directories.get(place.benchmark, place.benchmark),
        scenario,
        accelerator,
        count,
        "" if key is None else RATES[key],
        None if key is None else values[key],
        dict(_latencies(values)) if scenario in _WITH_LIMITS else {},
    )


def _latencies(values: Mapping[str, float]) -> Iterator[tuple[str, tuple[float, float]]]:
    for name, (key, limit) in LATENCIES.items():
        if values.get(limit) and key in values:
            yield name, (values[key] / 1e6, values[limit] / 1e6)


def _accelerators(tree: Tree, place: Place) -> tuple[str, int]:
    """Return the name and the number of a system's accelerators, or of its processors if it has no accelerators."""
    system = object_or_empty(tree.system(place.division, place.organization, place.system))

    def number(name: str) -> int:
        text = str(system.get(name, "")).strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0

    nodes = number("number_of_nodes") or 1
    if count := number("accelerators_per_node"):
        return str(system.get("accelerator_model_name")), nodes * count
    return str(system.get("host_processor_model_name")), nodes * number("host_processors_per_node")
