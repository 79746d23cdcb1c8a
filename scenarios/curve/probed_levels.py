"""C_min and C_max of a curve, from probes of the server."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from compliance.mlperf_endpoints.curve_rules import DEDICATED
from scenarios.curve.capacity import search_c_max
from scenarios.curve.curve_config import CurveConfig
from scenarios.curve.curve_plan import passes_for, rate_between, usable_c_max

C_MIN_CANDIDATES = (1, 8, 16)  # concurrencies that may be C_min; otherwise it is the highest of the region ultra low
PROBE_S, REHEARSAL_PROBE_S = 60.0, 3.0  # duration of a probe
WAVES = 4  # samples of a probe, at least, divided by its concurrency


@dataclass
class ProbedLevels:
    """The result of the probes."""

    c_min: int
    c_max: int
    notes: list[str] = field(default_factory=list)
    rates: dict[int, float] = field(default_factory=dict)  # concurrency → mean rate in samples/s

    def as_json(self) -> dict[str, Any]:
        rates = {str(level): rate for level, rate in sorted(self.rates.items())}
        return {"c_min": self.c_min, "c_max": self.c_max, "notes": self.notes, "rates": rates}


# Runs a probe with a concurrency, a number of samples and a repetition; returns its rate, or raises ProbeFailed.
Probe = Callable[[int, int, int], float]


def probe_levels(curve: CurveConfig, probe: Probe) -> ProbedLevels:
    """Measure C_max and C_min, as far as the configuration does not give them.

    Raises:
        ProbeFailed: If samples fail at the first level.
    """
    options, rates = curve.options, dict[int, list[float]]()

    def measure(level: int) -> float:
        means = {measured: sum(values) / len(values) for measured, values in rates.items()}
        expected = rate_between(level, means)
        duration_s = REHEARSAL_PROBE_S if curve.is_rehearsal else PROBE_S
        samples = max(WAVES * level, round(duration_s * expected) if expected is not None else 0)
        rate = probe(level, samples, len(rates.get(level, ())) + 1)
        rates.setdefault(level, []).append(rate)
        return rate

    notes = []
    if options.c_max is None:
        capacity = search_c_max(curve.ultra_low, options.max_concurrency, measure)
        c_max = capacity.c_max
        notes.append(f"C_max {c_max:,}: {capacity.note}")
    else:
        c_max = options.c_max
        measure(c_max)
    c_min = options.c_min
    if c_min is None:
        c_min, note = _lowest(curve, measure)
        notes.append(note)
    elif c_min not in rates:
        measure(c_min)
    usable = usable_c_max(c_min, max(c_max, curve.min_c_max), curve.ultra_low, point_count(curve))
    if usable != c_max:
        notes.append(f"C_max is raised from {c_max:,} to {usable:,}, so that every region and point has a concurrency")
    return ProbedLevels(c_min, usable, notes, {level: sum(values) / len(values) for level, values in rates.items()})


def point_count(curve: CurveConfig) -> int:
    """Return the number of points at a fixed concurrency."""
    return curve.options.points - (curve.options.offline == DEDICATED)


def _lowest(curve: CurveConfig, measure: Callable[[int], float]) -> tuple[int, str]:
    """Return the lowest concurrency whose point fits into `max_point_hours`, and a note."""
    limit_h = curve.options.max_point_hours
    hours: Mapping[int, float] = {}
    for level in C_MIN_CANDIDATES:
        rate = measure(level)
        passes = passes_for(curve.durations_s[0], rate, curve.rows, curve.options.basis)
        hours = {**hours, level: passes * curve.rows / rate / 3600}
        if hours[level] <= limit_h:
            return level, f"C_min {level}: its point takes {hours[level]:.2f} h, limit {limit_h:g} h"
    times = ", ".join(f"{level}: {hour:.2f} h" for level, hour in hours.items())
    return curve.ultra_low, f"C_min {curve.ultra_low}: lower points exceed {limit_h:g} h ({times})"
