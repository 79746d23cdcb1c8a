"""The submission rounds: seeds, layout of trees, and the requirements of each benchmark.

tools/make_round_tables.py makes the tables in configs/rounds/: numbers and names, each with its official file and
line. The benchmarks that this harness runs have more facts in runs/benchmarks/.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20):
  [conf]     loadgen/mlperf.conf, and its history (each round states the commit)
  [checker]  tools/submission/submission_checker/constants.py: seeds, and the `*_PATH` tables
"""

import re
from collections import ChainMap
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from runs.files.reading import read_as

TABLES = Path(__file__).parent.parent / "configs" / "rounds"
_FIX = "recreate the tables with tools/make_round_tables.py"
_ANY = "any"  # key for all other scenarios
_SCENARIOS = ("Offline", "Server", "SingleStream", "MultiStream")  # scenarios of the rounds before Interactive
_ONE_OF = frozenset({"Server", "Interactive"})
_TARGETS_OF_ONE = re.compile(r"-(95|99|99\.9)$")


def model_of(benchmark: str) -> str:
    """Return the model of a benchmark: its name without the required share of the reference accuracy."""
    return _TARGETS_OF_ONE.sub("", benchmark)


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ScoreLimits(_Data):
    """Limits of a score. A score without a lower limit is optional."""

    low: float | None
    high: float | None


NO_LIMITS = ScoreLimits(low=None, high=None)


class TokenLimits(_Data):
    """Upper limits of the p99 of TTFT and TPOT, in ms."""

    ttft_ns: int
    tpot_ns: int

    @property
    def ttft_ms(self) -> int:
        return self.ttft_ns // 1_000_000

    @property
    def tpot_ms(self) -> int:
        return self.tpot_ns // 1_000_000


class RoundBenchmark(_Data):
    """The requirements of a benchmark directory. Dictionaries are by scenario; "any" stands for all other scenarios.

    `required` and `optional` are by system type. `metrics` are records of the detail log, by LoadGen's scenario.
    `data_set` is the largest size of a performance run's sample library.
    """

    model: str  # result of `model_of` for its name
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
    time_bound: bool = True  # False: one pass over the samples, without a minimum duration
    audits: tuple[str, ...] = ()
    # Settings by test, as in its audit.config.
    audit_settings: dict[str, dict[str, int | float]] = Field(default_factory=dict)
    audit_deltas: dict[str, float] = Field(default_factory=dict)  # tolerance of a score in TEST01, in percent
    # Folder → names of its files without extension.
    accuracy_folders: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    loadgen_keys: dict[str, str] = Field(default_factory=dict)  # scenario → name in LoadGen's settings
    equal_issue: bool = False
    percentiles: dict[str, float] = Field(default_factory=dict)  # percentiles that differ from the scenario's default
    max_tokens: dict[str, int] = Field(default_factory=dict)  # limit of a response by mode, in tokens
    speculative_decoding: tuple[str, ...] = ()  # scenarios in which the rules allow it
    # Limits in the rules that differ from the official checker's, by scenario and rule; other fields are the checker's.
    rules_differ: dict[str, str] = Field(default_factory=dict)
    sources: dict[str, str]

    @cached_property
    def scenarios(self) -> frozenset[str]:
        """All scenarios that may be submitted, for any system type."""
        return frozenset(
            name for scenarios in (self.required, self.optional) for names in scenarios.values() for name in names
        )

    @property
    def suite(self) -> str:
        """System type of the benchmark."""
        return next(iter(self.required))

    def set_of(self, system_type: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the scenarios that the closed division requires, and the scenarios of which it requires one."""
        optional = self.optional.get(system_type, ())
        return self.required.get(system_type, ()), optional if set(optional) >= _ONE_OF else ()

    def missing(self, scenarios: Collection[str], system_type: str) -> list[str]:
        """Return the required scenarios that are missing in a closed result."""
        all_of, one_of = self.set_of(system_type)
        missing = [name for name in all_of if name not in scenarios]
        return missing + ([" or ".join(one_of)] if one_of and not set(one_of) & set(scenarios) else [])

    def targets_of(self, scenario: str) -> dict[str, ScoreLimits]:
        """Return the limits of the scores in accuracy.txt, by name."""
        return self.targets.get(scenario, self.targets.get(_ANY, {}))

    def accuracy_samples_of(self, scenario: str) -> int:
        """Return the number of samples of an accuracy run."""
        return self.accuracy_samples.get(scenario, self.accuracy_samples.get(_ANY, self.data_set))

    def in_rules(self, scenario: str, rule: str) -> str:
        """The limit that the rules have instead of the checker's, as a text behind the checker's."""
        limit = self.rules_differ.get(f"{scenario} {rule}", self.rules_differ.get(f"{_ANY} {rule}"))
        return f" (the official checker; inference_rules.adoc has {limit})" if limit else ""

    def keys_of(self, scenario: str) -> tuple[str, ...]:
        """Return the benchmark's names in LoadGen's settings of a scenario."""
        keys = self.loadgen_keys.get(scenario, self.loadgen_keys.get(_ANY))
        return () if keys is None else (keys,)


class RoundTable(_Data):
    """The requirements of one round."""

    round: str
    files: dict[str, str]  # names of the sources, and their paths
    performance: tuple[str, ...]  # files of a performance run; the next fields are for other runs
    accuracy: tuple[str, ...]
    measurements: tuple[str, ...]
    max_accuracy_log_bytes: int
    min_duration_ms: int
    sources: dict[str, str]
    benchmarks: dict[str, RoundBenchmark]

    @cached_property
    def directories(self) -> dict[str, str]:
        """Benchmarks by all accepted names of their directories."""
        return {directory: name for name, entry in self.benchmarks.items() for directory in (name, *entry.aliases)}

    def entry(self, directory: str) -> RoundBenchmark | None:
        """Return the benchmark of a directory name."""
        return self.benchmarks.get(self.directories.get(directory, ""))

    def names_of(self, entry: RoundBenchmark) -> tuple[str, ...]:
        """Return all accepted names of a benchmark's directory."""
        return tuple(name for name, benchmark in self.directories.items() if self.benchmarks[benchmark] is entry)


@cache
def _table_for_earlier_round(name: str) -> RoundTable:
    """Return the table of a round without the scenarios and audits that it requires. An earlier round had others."""
    table, allowed = table_of(name), dict.fromkeys(("datacenter", "edge"), _SCENARIOS)
    free = {"required": dict.fromkeys(allowed, ()), "optional": allowed, "audits": ()}
    entries = {benchmark: entry.model_copy(update=free) for benchmark, entry in table.benchmarks.items()}
    return table.model_copy(update={"benchmarks": entries})


class _Score(_Data):
    pattern: str
    source: str


class _Scores(_Data):
    files: dict[str, str]
    scores: dict[str, _Score]


@cache
def table_of(name: str) -> RoundTable:
    """Return the table of a round; raise InputError if it is missing or damaged."""
    return read_as(TABLES / f"{name}.json", RoundTable, _FIX)


@cache
def score_patterns() -> dict[str, re.Pattern[str]]:
    """Return patterns of the scores in accuracy.txt, for the beginning of a line; the first group is the number."""
    read = read_as(TABLES / "scores.json", _Scores, _FIX)
    return {name: re.compile(score.pattern) for name, score in read.scores.items()}


@dataclass(frozen=True)
class Seeds:
    """The three LoadGen seeds of a round."""

    qsl_rng_seed: int
    sample_index_rng_seed: int
    schedule_rng_seed: int


SEED_NAMES = tuple(seed.name for seed in fields(Seeds))


@dataclass(frozen=True)
class Round:
    """One submission round."""

    name: str
    seeds: Seeds
    # True: measurements/, compliance/ and code/ are next to results/. False: a scenario's files are together, the code
    # is in src/ [checker]
    split_tree: bool
    other_table: RoundTable | None = field(default=None, compare=False)  # replaces the round's table
    table_round: str = ""  # later round whose table applies, as far as it is valid; empty: the round itself
    ended_audits: tuple[str, ...] = ()  # audits of the round that the later round does not have

    @property
    def table(self) -> RoundTable:
        """The round's requirements for each benchmark."""
        if self.table_round:
            return _table_for_earlier_round(self.table_round)
        return self.other_table or table_of(self.name)

    @property
    def benchmarks(self) -> frozenset[str]:
        """Accepted names of benchmark directories."""
        return frozenset(self.table.directories)

    @property
    def is_published(self) -> bool:
        """True if MLCommons has published the results of the round."""
        return self.name != CURRENT_ROUND.name

    def __str__(self) -> str:
        return self.name


ROUNDS: dict[str, Round] = {
    one.name: one
    for one in (
        Round(  # [conf: 4fc54b5f, 2025-01-14]
            "v5.0", Seeds(6023615788873153749, 15036839855038426416, 9933818062894767841), split_tree=True
        ),
        Round(  # [conf: 0910c6e3, 2025-06-18]
            "v5.1", Seeds(1780908523862526354, 14771362308971278857, 18209322760996052031), split_tree=True
        ),
        Round(  # [conf: f131a0d2, 2026-01-13]
            "v6.0", Seeds(2465351861681999779, 14276810075590677512, 3936089224930324775), split_tree=False
        ),
        Round(  # [conf: b0662794, 2026-07-02]
            "v6.1", Seeds(2085463073848966840, 2747215439041700203, 16159082839903944936), split_tree=False
        ),
    )
}
# Rounds whose trees `check` reads. `verify` does not support the LoadGen of v4.1. The official checker no longer has
# v4.1, so the limits of the next round apply. Seeds: the logs of all results of that round.
_V4_1 = Round(
    "v4.1",
    Seeds(3066443479025735752, 10688027786191513374, 14962580496156340209),
    split_tree=True,
    table_round="v5.0",
    ended_audits=("TEST05",),  # [checker: tag v4.1, test_list; removed 2024-11-15]
)
TREE_ROUNDS: Mapping[str, Round] = ChainMap(ROUNDS, {_V4_1.name: _V4_1})
# The round whose settings are compiled into the installed LoadGen.
CURRENT_ROUND = ROUNDS["v6.1"]


def round_of(seeds: Seeds) -> Round | None:
    """Return the round with these seeds."""
    return next((in_round for in_round in ROUNDS.values() if in_round.seeds == seeds), None)
