"""The dated tables of a round of MLPerf Endpoints: limits, models, cohorts, seed sets and drafters.

The rules change during the year. So each table states when it was compared with its source, and a newer seedset.yaml
can be given. Each table is a file in configs/rounds/endpoints/ROUND/.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import orjson

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, compared
from compliance.mlperf_endpoints.cohorts import Cohort, cohorts_since, parse_cohort, window
from runs.errors import InputError
from runs.files.yaml_file import read_yaml
from runs.rounds import TABLES
from runs.wording import counted

NEWEST = "v1.0"
NAMES = ("limits", "models", "cohorts", "drafters")
SEED_SETS = "seed_sets"
# Environment variable of the official program for a newer seedset.yaml.
SEED_SETS_VARIABLE = "MLPERF_ENDPOINTS_SEED_SETS"
SEEDS = ("scheduler_rng_seed", "sample_index_rng_seed", "model_seed")  # names in seedset.yaml and point.yaml
MAX_AGE_COHORTS = 2  # published cohorts after which a table may be outdated
_FIX = "give a seedset.yaml of mlcommons/endpoints_policies"


def today() -> date:
    """Return the current day."""
    return datetime.now(UTC).date()


def day_text(day: date) -> str:
    """Return a day in words: 2 October 2026."""
    return f"{day.day} {day:%B %Y}"


@dataclass(frozen=True)
class DatedTable:
    """A table, and when and where it was read."""

    name: str
    as_of: date
    source: str
    commit: str
    content: Mapping[str, Any]


@dataclass(frozen=True)
class SeedSet:
    """A published set of seeds."""

    name: str
    seeds: Mapping[str, int]  # by the names in seedset.yaml
    cohorts: tuple[Cohort, ...]  # cohorts in which a new submission may adopt the set; empty: unknown

    @property
    def text(self) -> str:
        until = f", last cohort {self.cohorts[-1]}" if self.cohorts else ""
        return f"set {self.name}{until}: {', '.join(f'{name} {seed}' for name, seed in self.seeds.items())}"


@dataclass(frozen=True)
class RoundTables:
    """All tables of a round."""

    round: str
    tables: Mapping[str, DatedTable]
    seed_sets: tuple[SeedSet, ...]  # the newest first
    seed_file: Path | None = field(default=None)  # a newer seedset.yaml

    @property
    def points(self) -> Mapping[str, Any]:
        """Numbers of points."""
        limits: Mapping[str, Any] = self.tables["limits"].content["points"]
        return limits

    def point_limits(self, *, is_dedicated: bool) -> tuple[int, int]:
        """Return the smallest and the largest number of points.

        Args:
            is_dedicated: True if one of them is a dedicated Offline run.
        """
        return self.points["least_with_offline" if is_dedicated else "least"], self.points["most"]

    @property
    def limits(self) -> Mapping[str, Any]:
        return self.tables["limits"].content

    @property
    def models(self) -> Mapping[str, dict[str, Any]]:
        models: Mapping[str, dict[str, Any]] = self.tables["models"].content["models"]
        return models

    @property
    def client_seed_sets(self) -> Mapping[str, dict[str, int]]:
        """Seeds of the client's own rulesets and defaults, which no submission may have."""
        sets: Mapping[str, dict[str, int]] = self.limits["client_seed_sets"]
        return sets

    @property
    def drafters(self) -> list[dict[str, Any]]:
        """Approved drafters of speculative decoding."""
        drafters: list[dict[str, Any]] = self.tables["drafters"].content["drafters"]
        return drafters

    @property
    def cohort_rules(self) -> Mapping[str, int]:
        """Numbers of cohorts: adoption of a seed set, rotation of seed sets, and from the approval of a drafter."""
        rules: Mapping[str, int] = self.tables["cohorts"].content["counts"]
        return rules

    @cached_property
    def exceptions(self) -> dict[str, date]:
        """Days of the cohorts that are not published on the first or third Wednesday."""
        days: Mapping[str, str] = self.tables["cohorts"].content["exceptions"]
        return {name: date.fromisoformat(day) for name, day in days.items()}

    def sets_named(self, name: object) -> list[SeedSet]:
        return [seed_set for seed_set in self.seed_sets if seed_set.name == name]

    def set_with(self, seeds: Mapping[str, int]) -> SeedSet | None:
        """Return the published set that has these seeds."""
        return next(
            (seed_set for seed_set in self.seed_sets if seeds and seeds.items() <= seed_set.seeds.items()), None
        )

    def due_set(self) -> Cohort | None:
        """Return the last cohort with which a seed set was due that is not known."""
        first = max((seed_set.cohorts[0] for seed_set in self.seed_sets if seed_set.cohorts), default=None)
        due, step = None, self.cohort_rules["rotation"]
        while first is not None and (first := first.later(step)).day(self.exceptions) <= today():
            due = first
        return due

    def ages(self) -> dict[str, int]:
        """Return how many cohorts were published since each table was compared with its source."""
        return {
            name: sum(1 for _ in cohorts_since(table.as_of, today(), self.exceptions))
            for name, table in self.tables.items()
            if not (name == SEED_SETS and self.seed_file)
        }

    def lines(self) -> Iterator[str]:
        """Yield the ages of the tables, and what was due since."""
        ages = self.ages()
        for as_of in sorted({self.tables[name].as_of for name in ages}):
            names = [name for name in ages if self.tables[name].as_of == as_of]
            since = f"{counted(ages[names[0]], 'cohort')} published since"
            listed = ", ".join(names).replace("_", " ")
            yield f"tables of round {self.round} as of {day_text(as_of)}, {since}: {listed}"
        if self.seed_file is not None:
            yield f"seed sets: {self.seed_file}, and those of this version"
        if (due := self.due_set()) is not None:
            text = f"a newer set was due on {day_text(due.day(self.exceptions))} (cohort {due})"
            yield f"seed sets: {text} and is unknown to this version"

    def record(self) -> list[dict[str, Any]]:
        """Return the origin and age of each table for programs."""
        ages = self.ages()
        return [
            {"table": name, "as_of": table.as_of.isoformat(), "source": table.source, "commit": table.commit,
             "cohorts_since": ages.get(name, 0)}
            for name, table in self.tables.items()
        ]  # fmt: skip


@decides(
    "official",
    ("endpoints-tables", "warning", OURS, "cohorts that were published since tables of the round were compared with "
     "their sources", "use a newer version of this program, or give --seed-sets FILE"),
)  # fmt: skip
def judge_tables(tables: RoundTables) -> Iterator[Finding]:
    """Check the age of the tables."""
    old = {name: age for name, age in tables.ages().items() if age >= MAX_AGE_COHORTS}
    value = ", ".join(f"{name.replace('_', ' ')} {age}" for name, age in old.items()) or "none"
    yield compared("endpoints-tables", not old, value, f"fewer than {MAX_AGE_COHORTS}", ages=old)


def round_tables(seed_file: Path | None = None, name: str = NEWEST) -> RoundTables:
    """Return the tables of a round.

    Args:
        seed_file: A newer seedset.yaml. Default: the file that the variable of the official program names.

    Raises:
        InputError: If the round is unknown, or the file is not a seedset.yaml.
    """
    if seed_file is None and (named := os.environ.get(SEED_SETS_VARIABLE)):
        seed_file = Path(named)
    tables = _bundled(name)
    if seed_file is None:
        return tables
    newer = read_seed_sets(seed_file, tables.cohort_rules["adoption"])
    return RoundTables(tables.round, tables.tables, (*newer, *tables.seed_sets), seed_file)


@cache
def _bundled(name: str) -> RoundTables:
    root = TABLES / "endpoints"
    rounds = sorted(path.name for path in root.iterdir() if path.is_dir())
    if name not in rounds:
        raise InputError(f"unknown round of MLPerf Endpoints: {name!r}", f"give one of {', '.join(rounds)}")
    contents = {table: orjson.loads((root / name / f"{table}.json").read_bytes()) for table in NAMES}
    seeds = root / name / f"{SEED_SETS}.yaml"
    contents[SEED_SETS] = read_yaml(seeds, "")
    tables = {
        table: DatedTable(
            table, date.fromisoformat(str(content["as_of"])), content["source"], content["commit"], content
        )
        for table, content in contents.items()
    }
    adoption = contents["cohorts"]["counts"]["adoption"]
    return RoundTables(name, tables, tuple(read_seed_sets(seeds, adoption)))


def read_seed_sets(path: Path, adoption_cohorts: int) -> list[SeedSet]:
    """Return the sets in a seedset.yaml, the last first.

    Args:
        adoption_cohorts: Number of cohorts in which a new submission may adopt a set.

    Raises:
        InputError: If the file has another form.
    """
    content = read_yaml(path, "--seed-sets")
    nested = content.get("cohort")
    registry = nested if isinstance(nested, dict) else content
    published, entries = registry.get("cohort-id"), registry.get("seed_sets")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"--seed-sets {path}: no list seed_sets", _FIX)
    if published is not None and parse_cohort(published) is None:
        raise InputError(f"--seed-sets {path}: cohort-id {published!r} is not a cohort such as 2026-12-C0", _FIX)
    adoption = window(cohort, adoption_cohorts) if (cohort := parse_cohort(published)) else ()
    return [_seed_set(path, entry, adoption) for entry in reversed(entries)]


def _seed_set(path: Path, entry: Mapping[str, Any], adoption: tuple[Cohort, ...]) -> SeedSet:
    name, seeds, listed = entry.get("id"), {seed: entry.get(seed) for seed in SEEDS}, entry.get("cohorts")
    wrong = [seed for seed, value in seeds.items() if type(value) is not int]
    if not isinstance(name, str) or not name or wrong:
        missing = ", ".join(wrong) or "id"
        raise InputError(f"--seed-sets {path}: set {name!r}: {missing} is missing or not a whole number", _FIX)
    # A list of cohorts at a set replaces the cohorts that follow from its publication.
    cohorts = [parse_cohort(name) for name in listed] if isinstance(listed, list) else list(adoption)
    if None in cohorts:
        raise InputError(f"--seed-sets {path}: set {name!r}: cohorts are not all of the form 2026-12-C0", _FIX)
    return SeedSet(name, {seed: entry[seed] for seed in SEEDS}, tuple(filter(None, cohorts)))
