"""The submission rounds: seeds, the layout of trees, and the table of what each benchmark requires.

tools/make_round_tables.py makes the tables in configs/rounds/: numbers and names, each with its official file and
line. The benchmarks that this harness runs have more facts in runs/benchmarks/.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20):
  [conf]     loadgen/mlperf.conf, and its history (commit named beside each round)
  [checker]  tools/submission/submission_checker/constants.py: seeds, and the `*_PATH` tables
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from runs.files.reading import read_as

TABLES = Path(__file__).parent.parent / "configs" / "rounds"
_FIX = "make the tables again: tools/make_round_tables.py"
_ANY = "any"  # key for all scenarios that are not named
_ONE_OF = frozenset({"Server", "Interactive"})
_TARGETS_OF_ONE = re.compile(r"-(95|99|99\.9)$")


def model_of(benchmark: str) -> str:
    """The model of a benchmark: its name without the required share of the reference accuracy."""
    return _TARGETS_OF_ONE.sub("", benchmark)


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ScoreLimits(_Data):
    """Limits of a score. A score without a lower limit is optional."""

    low: float | None
    high: float | None


NO_LIMITS = ScoreLimits(low=None, high=None)


class TokenLimits(_Data):
    """Upper limits of the p99."""

    ttft_ns: int
    tpot_ns: int

    @property
    def ttft_ms(self) -> int:
        return self.ttft_ns // 1_000_000

    @property
    def tpot_ms(self) -> int:
        return self.tpot_ns // 1_000_000


class RoundBenchmark(_Data):
    """One benchmark directory. Dictionaries are by scenario, "any" for those that are not named.

    `required` and `optional` are by the system type of a system's description. `metrics` are records of the detail log,
    by LoadGen's scenario; `data_set` is the largest size of a performance run's sample library.
    """

    model: str  # `model_of` its name
    aliases: tuple[str, ...] = ()
    required: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    optional: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    metrics: dict[str, str]
    targets: dict[str, dict[str, ScoreLimits]]
    performance_samples: int
    data_set: int
    accuracy_samples: dict[str, int]
    min_queries: dict[str, int] = Field(default_factory=dict)
    offline_min_samples: int | None = None
    latency_ns: dict[str, int] = Field(default_factory=dict)
    token_limits: dict[str, TokenLimits] = Field(default_factory=dict)
    token_latencies: bool = False
    time_bound: bool = True  # else one pass over its samples, without a minimum duration
    audits: tuple[str, ...] = ()
    audit_settings: dict[str, dict[str, int | float]] = Field(
        default_factory=dict
    )  # by test, as its audit.config has them
    audit_deltas: dict[str, float] = Field(default_factory=dict)  # percent that a score of TEST01 may be off
    accuracy_folders: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # files there, without their endings
    loadgen_keys: dict[str, str] = Field(default_factory=dict)  # names in LoadGen's settings
    equal_issue: bool = False
    percentiles: dict[str, float] = Field(default_factory=dict)  # that differ from the scenario's
    max_tokens: dict[str, int] = Field(default_factory=dict)  # limit of a response by mode, in tokens
    speculative_decoding: tuple[str, ...] = ()  # scenarios in which the rules allow it
    # Limits of the rules that are not the checker's, by scenario and ID; all other fields are the checker's.
    rules_differ: dict[str, str] = Field(default_factory=dict)
    sources: dict[str, str]

    @cached_property
    def scenarios(self) -> frozenset[str]:
        """All that may be submitted, whatever the system's type."""
        return frozenset(name for of in (self.required, self.optional) for names in of.values() for name in names)

    @property
    def suite(self) -> str:
        """The system type that it is for."""
        return next(iter(self.required))

    def set_of(self, system_type: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The scenarios that must all be there in the closed division, and those of which one must."""
        optional = self.optional.get(system_type, ())
        return self.required.get(system_type, ()), optional if set(optional) >= _ONE_OF else ()

    def missing(self, there: Collection[str], system_type: str) -> list[str]:
        """The scenarios that a closed set lacks."""
        all_of, one_of = self.set_of(system_type)
        missing = [name for name in all_of if name not in there]
        return missing + ([" or ".join(one_of)] if one_of and not set(one_of) & set(there) else [])

    def targets_of(self, scenario: str) -> dict[str, ScoreLimits]:
        """The limits of the scores in accuracy.txt, by name."""
        return self.targets.get(scenario, self.targets.get(_ANY, {}))

    def accuracy_samples_of(self, scenario: str) -> int:
        """Samples of its accuracy run."""
        return self.accuracy_samples.get(scenario, self.accuracy_samples.get(_ANY, self.data_set))

    def keys_of(self, scenario: str) -> tuple[str, ...]:
        """Return the benchmark's names in LoadGen's settings of a scenario."""
        found = self.loadgen_keys.get(scenario, self.loadgen_keys.get(_ANY))
        return () if found is None else (found,)


class RoundTable(_Data):
    """The requirements of one round."""

    round: str
    files: dict[str, str]  # names of the sources, and their paths
    performance: tuple[str, ...]  # files that a performance run has; the next two likewise
    accuracy: tuple[str, ...]
    measurements: tuple[str, ...]
    max_accuracy_log_bytes: int
    min_duration_ms: int
    sources: dict[str, str]
    benchmarks: dict[str, RoundBenchmark]

    @cached_property
    def directories(self) -> dict[str, str]:
        """Benchmarks by every name that their directory may have."""
        return {one: name for name, entry in self.benchmarks.items() for one in (name, *entry.aliases)}

    def entry(self, directory: str) -> RoundBenchmark | None:
        """The benchmark of a directory of that name."""
        return self.benchmarks.get(self.directories.get(directory, ""))

    def names_of(self, entry: RoundBenchmark) -> tuple[str, ...]:
        """Every name of a benchmark's directory."""
        return tuple(name for name, of in self.directories.items() if self.benchmarks[of] is entry)


class _Score(_Data):
    pattern: str
    source: str


class _Scores(_Data):
    files: dict[str, str]
    scores: dict[str, _Score]


@cache
def table_of(name: str) -> RoundTable:
    """The table of a round; InputError if it is missing or damaged."""
    return read_as(TABLES / f"{name}.json", RoundTable, _FIX)


@cache
def score_patterns() -> dict[str, re.Pattern[str]]:
    """Patterns of the scores in accuracy.txt: for the beginning of a line, the number in the first group."""
    read = read_as(TABLES / "scores.json", _Scores, _FIX)
    return {name: re.compile(score.pattern) for name, score in read.scores.items()}


@dataclass(frozen=True)
class Seeds:
    """The three LoadGen seeds of a round."""

    qsl_rng_seed: int
    sample_index_rng_seed: int
    schedule_rng_seed: int


@dataclass(frozen=True)
class Round:
    """One submission round."""

    name: str
    seeds: Seeds
    # measurements/, compliance/ and code/ are next to results/; else all of one scenario is together, the code in src/
    # [checker]
    split_tree: bool
    other_table: RoundTable | None = field(default=None, compare=False)  # in place of the round's table

    @property
    def table(self) -> RoundTable:
        """The round's requirements of each benchmark."""
        return self.other_table or table_of(self.name)

    @property
    def benchmarks(self) -> frozenset[str]:
        """Names that a benchmark's directory may have."""
        return frozenset(self.table.directories)

    def __str__(self) -> str:
        return self.name


ROUNDS: dict[str, Round] = {
    one.name: one
    for one in (
        Round(  # [conf: 4fc54b5f, 2025-01-14]
            "v5.0",
            Seeds(6023615788873153749, 15036839855038426416, 9933818062894767841),
            split_tree=True,
        ),
        Round(  # [conf: 0910c6e3, 2025-06-18]
            "v5.1",
            Seeds(1780908523862526354, 14771362308971278857, 18209322760996052031),
            split_tree=True,
        ),
        Round(  # [conf: f131a0d2, 2026-01-13]
            "v6.0",
            Seeds(2465351861681999779, 14276810075590677512, 3936089224930324775),
            split_tree=False,
        ),
        Round(  # [conf: b0662794, 2026-07-02]
            "v6.1",
            Seeds(2085463073848966840, 2747215439041700203, 16159082839903944936),
            split_tree=False,
        ),
    )
}
# Whose settings the locked LoadGen has compiled in.
CURRENT_ROUND = ROUNDS["v6.1"]


def round_of(seeds: Seeds) -> Round | None:
    """The round that has these seeds."""
    return next((one for one in ROUNDS.values() if one.seeds == seeds), None)
