"""Rules on one curve of a submission tree: its Offline point, regions, accuracy results, seeds and cohort.

The official checker refuses a curve that violates one of these rules. Only `endpoints-tree-offline-rate` is a warning
there too.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from compliance.judge.rule import decides
from compliance.judge.verdict import Finding, NotApplied, compared
from compliance.mlperf_endpoints.cohorts import parse_cohort
from compliance.mlperf_endpoints.point_rules import UNKNOWN_SET
from compliance.mlperf_endpoints.round_tables import SEEDS, RoundTables, SeedSet
from runs.mlperf_endpoints.accuracy import AccuracyResults
from runs.wording import printable

DEDICATED, ELECTED = "dedicated", "elected"
AGENTIC = "agentic_inference"  # load pattern of benchmarks that have no Offline point
REGIONS = ("ultra low", "low", "medium", "high")  # regions of which each needs one point with accuracy results
_ROUNDING = 1e-9
# Earlier names of seeds in point.yaml.
_EARLIER = {"scheduler_rng_seed": "scheduler_random_seed", "sample_index_rng_seed": "dataloader_random_seed"}


@dataclass(frozen=True)
class PointFacts:
    """The files of one point that the rules on its curve read."""

    place: Path
    fields: Mapping[str, Any]  # point.yaml
    system: Mapping[str, Any]  # system_desc.json
    accuracy: AccuracyResults  # results other than the score of the measured phase
    tokens_per_second: float | None

    @property
    def concurrency(self) -> int | None:
        declared = self.fields.get("concurrency")
        if type(declared) is int:
            return declared
        digits = self.place.name.removeprefix("r")
        return int(digits) if digits.isdecimal() and len(digits) < 10 else None

    @property
    def has_accuracy(self) -> bool:
        return bool(self.accuracy.entries)

    @property
    def accuracy_faults(self) -> list[str]:
        """Results that are no result."""
        faults = [self.accuracy.fault] if self.accuracy.fault else []
        for name, entry in self.accuracy.entries.items():
            score = entry.get("score", 0)  # Earlier forms have the scores beside the counts.
            values = list(score.values()) if isinstance(score, dict) else [score]
            if not values or None in values or entry.get("complete", True) is not True:
                faults.append(f"no complete score of {printable(name, 40)}")
        return faults

    @property
    def offline(self) -> str:
        declared = self.fields.get("offline")
        return "" if declared in (None, "none") else str(declared)

    @property
    def settings(self) -> Mapping[str, Any]:
        settings = self.fields.get("runtime_settings")
        return settings if isinstance(settings, dict) else {}

    @property
    def seeds(self) -> dict[str, Any]:
        """The seeds in point.yaml, without missing ones."""
        runtime = self.settings.get("runtime")
        values = runtime if isinstance(runtime, dict) else {}
        seeds = {name: values.get(name, values.get(_EARLIER.get(name, name))) for name in SEEDS}
        return {name: seed for name, seed in seeds.items() if seed is not None}


def region_bounds(c_min: int, c_max: int, ultra_low: int) -> dict[str, tuple[int, int]]:
    """Return the first and last concurrency of each region. [endpoints] §5.4, §5.5

    Args:
        c_min: Lowest concurrency of the curve, at most that of the region ultra low.
        c_max: Highest concurrency, above that of the region ultra low.
        ultra_low: Last concurrency of the region ultra low.
    """
    step = math.log2(c_max - c_min) / 3
    ends = [c_min, round(c_min + 2**step), round(c_min + 2 ** (2 * step)), c_max]
    named = zip(REGIONS[1:], pairwise(ends), strict=True)
    return {REGIONS[0]: (1, ultra_low)} | {name: (low + 1, high) for name, (low, high) in named}


@dataclass(frozen=True)
class CurveFacts:
    """The points of a curve, and what they declare together."""

    curve: Path
    points: Sequence[PointFacts]
    tables: RoundTables

    @property
    def declared_maxima(self) -> list[Any]:
        """The values of max_supported_concurrency in all files."""
        both = [
            fields.get("max_supported_concurrency") for point in self.points for fields in (point.system, point.fields)
        ]
        return [value for value in both if value is not None]

    @property
    def c_max(self) -> int | None:
        """The declared maximum concurrency; None if none is declared, or points differ."""
        declared = self.declared_maxima
        return (
            declared[0] if declared and all(type(value) is int and value == declared[0] for value in declared) else None
        )

    @property
    def is_agentic(self) -> bool:
        patterns = {point.settings.get("load_pattern") for point in self.points if point.offline != DEDICATED}
        return patterns == {AGENTIC}

    @property
    def on_the_curve(self) -> list[PointFacts]:
        """The points with a concurrency, without a dedicated Offline run, in ascending order."""
        points = [point for point in self.points if point.offline != DEDICATED and point.concurrency]
        return sorted(points, key=lambda point: point.concurrency or 0)

    @property
    def c_min_override(self) -> int | None:
        """The lowest concurrency that all points declare; None if it is missing or wrong."""
        declared, limit = [point.system.get("c_min_override") for point in self.points], self.tables.points["ultra_low"]
        right = all(type(value) is int and 1 <= value <= limit and value == declared[0] for value in declared)
        measured = {point.concurrency for point in self.on_the_curve}
        return declared[0] if right and declared[0] in measured else None

    @property
    def regions(self) -> dict[str, tuple[int, int]]:
        """The bounds of the regions; empty if C_max or the lowest concurrency is unknown."""
        limit, levels = self.tables.points["ultra_low"], [point.concurrency or 0 for point in self.on_the_curve]
        if self.c_max is None or self.c_max <= limit or not levels:
            return {}
        if (override := self.c_min_override) is not None:
            return region_bounds(override, self.c_max, override)
        return region_bounds(min(levels[0], limit), self.c_max, limit)


@decides(
    "tree",
    ("endpoints-tree-offline", "error", "[endpoints] §5.7", "Offline points of the curve",
     "run one point with load_pattern max_throughput, or elect the point at max_supported_concurrency"),
    ("endpoints-tree-offline-rate", "warning", "[endpoints] §5.7.2", "tokens/s of the Offline run",
     "run the Offline point with more samples, or elect the point at max_supported_concurrency"),
    ("endpoints-tree-regions", "error", "[endpoints] §5.4", "regions without a point",
     "run a point with a concurrency of each region"),
    ("endpoints-tree-accuracy", "error", "[endpoints] §4.3", "points with accuracy results",
     "run accuracy at one point of each region and at the Offline point, and at no other point"),
    ("endpoints-tree-seeds", "error", "[endpoints] §4.6", "seeds of the points",
     "run all points with the seeds of one published set, and declare it as seed_set"),
    ("endpoints-tree-cohort", "error", "[endpoints] §4.6", "target_cohort",
     "target a cohort in which the seed set can be adopted, or run the points again with a newer set"),
    ("endpoints-tree-utilization", "error", "[endpoints] §8.2", "tps_utilization",
     "declare the tokens/s of the point, divided by the highest tokens/s of the curve"),
    ("endpoints-tree-c-min", "error", "[endpoints] §5.4", "c_min_override",
     "declare the concurrency of one measured point in every system_desc.json, or in none"),
    ("endpoints-tree-drafter", "error", "[endpoints] §2.9.4", "target_cohort of points with a drafter",
     "target a later cohort"),
)  # fmt: skip
def judge_curve(facts: CurveFacts) -> Iterator[Finding | NotApplied]:
    """Check one curve."""
    yield from _offline(facts)
    yield from _overridden(facts)
    yield from _covered(facts)
    yield from _seeded(facts)
    yield from _utilized(facts)
    yield from _drafted(facts)


def _listed(points: Sequence[PointFacts]) -> str:
    return ", ".join(point.place.name for point in points)


def _offline(facts: CurveFacts) -> Iterator[Finding]:
    declared, c_max = [point for point in facts.points if point.offline], facts.c_max
    value = ", ".join(printable(f"{point.place.name} {point.offline}", 60) for point in declared) or "none"
    if facts.is_agentic:
        yield compared("endpoints-tree-offline", not declared, value, "none for an agentic benchmark", facts.curve)
        return
    right = len(declared) == 1 and declared[0].offline in (DEDICATED, ELECTED)
    if right and declared[0].offline == ELECTED and c_max is not None:
        right = declared[0].concurrency == c_max
    limit = f"exactly 1, {DEDICATED}, or {ELECTED} at max_supported_concurrency" + (f" {c_max}" if c_max else "")
    yield compared("endpoints-tree-offline", right, value, limit, facts.curve)
    dedicated = [point for point in declared if point.offline == DEDICATED]
    highest = next((point for point in facts.on_the_curve if point.concurrency == c_max), None)
    for run in dedicated:
        text, level = f"concurrency of the Offline run {run.place.name}", run.concurrency or 0
        if c_max is not None:
            yield compared(
                "endpoints-tree-offline-rate", level >= c_max, f"{level}", f"at least {c_max}", run.place, text=text
            )
        if highest is not None and run.tokens_per_second is not None and highest.tokens_per_second is not None:
            least = facts.tables.limits["offline_min_rate"] * highest.tokens_per_second
            value, wanted = f"{run.tokens_per_second:.6g}", f"at least {least:.6g} (of {highest.place.name})"
            yield compared("endpoints-tree-offline-rate", run.tokens_per_second >= least, value, wanted, run.place)


def _overridden(facts: CurveFacts) -> Iterator[Finding]:
    declared = [point.system.get("c_min_override", "missing") for point in facts.points]
    if any(value != "missing" for value in declared):
        value = ", ".join(sorted({printable(f"{value}", 40) for value in declared}))
        wanted = f"one measured concurrency of 1 to {facts.tables.points['ultra_low']} in all points"
        yield compared("endpoints-tree-c-min", facts.c_min_override is not None, value, wanted, facts.curve)


def _covered(facts: CurveFacts) -> Iterator[Finding | NotApplied]:
    """Check the regions of the points, and the points with accuracy results."""
    regions, points = facts.regions, facts.on_the_curve
    if not regions:
        rules = ("endpoints-tree-regions", "endpoints-tree-accuracy")
        yield NotApplied(f"{facts.curve.name}: max_supported_concurrency is unknown", rules, "regions")
        return
    inside = {
        name: [point for point in points if low <= (point.concurrency or 0) <= high]
        for name, (low, high) in regions.items()
    }
    empty = [f"{name} ({low} to {high})" for name, (low, high) in regions.items() if not inside[name]]
    yield compared("endpoints-tree-regions", not empty, ", ".join(empty) or "none", "none", facts.curve)
    scored = [point for point in points if point.has_accuracy]
    # An elected point comes last: it takes a region only if no other point has results there.
    scored.sort(key=lambda point: point.offline == ELECTED)
    taken = assigned_regions({point.place: [name for name in regions if point in inside[name]] for point in scored})
    wrong = [f"no results in {name}" for name in regions if name not in taken]
    extra = [point for point in scored if point.place not in taken.values() and point.offline != ELECTED]
    wrong += [f"no region for the results of {point.place.name}" for point in extra]
    wrong += [f"{point.place.name}: {fault}" for point in facts.points for fault in point.accuracy_faults]
    offline = [point for point in facts.points if point.offline and not point.has_accuracy]
    wrong += [f"no results at the Offline point {point.place.name}" for point in offline]
    required = f"exactly one in each of {', '.join(regions)}" + ("" if facts.is_agentic else ", and the Offline point")
    value = "; ".join([_listed([point for point in facts.points if point.has_accuracy]) or "none", *wrong])
    yield compared("endpoints-tree-accuracy", not wrong, value, required, facts.curve)


def assigned_regions(candidates: Mapping[Path, Sequence[str]]) -> dict[str, Path]:
    """Return the point whose results count for each region. Each point counts once, for as many regions as possible.

    Args:
        candidates: Regions of each point with results.
    """
    owners: dict[str, Path] = {}

    def assign(place: Path, tried: set[str]) -> bool:
        for name in candidates[place]:
            if name not in tried:
                tried.add(name)
                if name not in owners or assign(owners[name], tried):
                    owners[name] = place
                    return True
        return False

    for place in candidates:
        assign(place, set())
    return owners


def _seeded(facts: CurveFacts) -> Iterator[Finding | NotApplied]:
    """Check the seed set and the target cohort."""
    names = sorted(
        {printable(f"{point.fields['seed_set']}", 40) for point in facts.points if point.fields.get("seed_set")}
    )
    if len(names) != 1:
        yield compared(
            "endpoints-tree-seeds", not names, ", ".join(names) or "none", "one set", facts.curve, text="seed_set"
        )
        return
    published = facts.tables.sets_named(names[0])
    chosen = next(
        (
            seed_set
            for seed_set in published
            if all(point.seeds.items() <= seed_set.seeds.items() for point in facts.points)
        ),
        None,
    )
    if published:
        named = (chosen or published[0]).seeds
        different = [point for point in facts.points if not point.seeds.items() <= named.items()]
        value = _listed(different) or "none"
        text = f"points whose seeds differ from set {names[0]}"
        yield compared("endpoints-tree-seeds", chosen is not None, value, "none", facts.curve, text=text)
        yield from _targeted(facts, chosen or published[0])
        return
    seeds = [seed for point in facts.points for seed in point.seeds.items()]
    of_others = sorted(
        {seed_set.name for seed_set in facts.tables.seed_sets if any(seed in seeds for seed in seed_set.seeds.items())}
    )
    if of_others:
        text, value = f"set whose seeds the points of set {names[0]} have", ", ".join(of_others)
        yield compared("endpoints-tree-seeds", False, value, names[0], facts.curve, text=text)
    rules = ("endpoints-tree-cohort",) if of_others else ("endpoints-tree-seeds", "endpoints-tree-cohort")
    yield NotApplied(f"{facts.curve.name}: {UNKNOWN_SET}: {names[0]}", rules, "seed set")


def _targeted(facts: CurveFacts, chosen: SeedSet) -> Iterator[Finding]:
    targets = sorted(
        {
            printable(f"{point.fields['target_cohort']}", 40)
            for point in facts.points
            if point.fields.get("target_cohort")
        }
    )
    wrong = [target for target in targets if parse_cohort(target) not in chosen.cohorts]
    if targets and chosen.cohorts:
        wanted = f"{chosen.cohorts[0]} to {chosen.cohorts[-1]} (set {chosen.name})"
        yield compared("endpoints-tree-cohort", not wrong, ", ".join(wrong or targets), wanted, facts.curve)


def _utilized(facts: CurveFacts) -> Iterator[Finding]:
    rates = {point.place: point.tokens_per_second for point in facts.points if point.tokens_per_second}
    highest, within = max(rates.values(), default=0.0), facts.tables.limits["utilization_tolerance"]
    for point in facts.points:
        declared, rate = point.system.get("tps_utilization"), rates.get(point.place)
        if rate is None or isinstance(declared, bool) or not isinstance(declared, int | float):
            continue
        expected = rate / highest
        right, wanted = abs(declared - expected) <= within + _ROUNDING, f"{expected:.3f} (within {within:g})"
        yield compared("endpoints-tree-utilization", right, f"{declared:g}", wanted, point.place)


def _drafted(facts: CurveFacts) -> Iterator[Finding | NotApplied]:
    """Check the drafters of speculative decoding."""
    for point in facts.points:
        declared = point.fields.get("speculative_decoding")
        if not isinstance(declared, dict) or not declared:
            continue
        listed = [row for row in facts.tables.drafters if row["benchmark"] == point.fields.get("model_name")]
        row = next((row for row in listed if _is_drafter(row, declared)), None)
        approved, target = (
            parse_cohort((row or {}).get("approved_cohort")),
            parse_cohort(point.fields.get("target_cohort")),
        )
        if row is None:
            reason = f"{point.place.name}: the drafter is unknown to this version"
            yield NotApplied(reason, ("endpoints-tree-drafter",), "drafter")
        elif approved is not None and target is not None:
            first = approved.later(facts.tables.cohort_rules["drafter"])
            yield compared("endpoints-tree-drafter", target >= first, f"{target}", f"{first} or later", point.place)


def _is_drafter(row: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    """Return whether a point declares this drafter, by the checksum of its weights or by target and configuration."""
    if "weight_checksum" in row:
        return bool(declared.get("weight_checksum") == row["weight_checksum"])
    names = ("target_checksum", "configuration")
    return all(declared.get(name) == row.get(name) for name in names)
