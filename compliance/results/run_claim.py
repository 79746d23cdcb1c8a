"""What a run is said to be, and the requirements of a round that follow from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from runs.benchmark import LOADGEN_SCENARIO, SCENARIOS, Benchmark, Scenario
from runs.rounds import ROUNDS, Round, RoundBenchmark, ScoreLimits

# Official name of a scenario → scenario of LoadGen, with MultiStream, which this harness does not run.
# [checker] constants.SCENARIO_MAPPING
_LOADGEN_NAMES: Mapping[str, str] = dict((*LOADGEN_SCENARIO.items(), ("MultiStream", "MultiStream")))


@dataclass(frozen=True)
class RunClaim:
    """What the runs of a result are said to be, by their place in a tree, or by manifest, log and command line.

    Attributes:
        scenario: Official name of the scenario. A directory in a tree may have another name.
        benchmark: The benchmark of this harness; None: this harness has no such benchmark.
        entry: Requirements of the round on the benchmark.
        rounds: Rounds whose seeds are allowed.
        min_duration_ms: Minimum duration of a performance run; None: no minimum.
        division: Division of the tree; None outside a tree.
    """

    scenario: str
    benchmark: Benchmark | None
    entry: RoundBenchmark
    rounds: tuple[str, ...]
    min_duration_ms: int | None
    division: str | None = None

    @property
    def min_duration_s(self) -> float | None:
        return None if self.min_duration_ms is None else self.min_duration_ms / 1000

    @property
    def harness_scenario(self) -> Scenario | None:
        """The scenario; None if this harness does not run it."""
        return next((name for name in SCENARIOS if name == self.scenario), None)

    @property
    def loadgen_scenario(self) -> str | None:
        """LoadGen's name of the scenario; None if LoadGen has no such scenario."""
        return loadgen_scenario(self.scenario)

    @property
    def is_open(self) -> bool:
        return self.division == "open"

    @property
    def targets(self) -> Mapping[str, ScoreLimits]:
        """Limits of the scores in accuracy.txt, by name."""
        return self.entry.targets_of(self.scenario)

    @property
    def accuracy_samples(self) -> int:
        """Number of samples of the accuracy run."""
        return self.benchmark.accuracy_samples if self.benchmark else self.entry.accuracy_samples_of(self.scenario)

    @property
    def is_one_size(self) -> bool:
        """True if the datasets of the performance and the accuracy run have equal sizes."""
        return self.entry.accuracy_samples_of(self.scenario) == self.entry.data_set

    def limit_in_rules(self, rule: str) -> str:
        """Return the limit that the rules have instead of the official checker's, as a text behind that limit."""
        return self.entry.in_rules(self.scenario, rule)


def official_scenario(name: str) -> str:
    """Return the official name of a scenario. A directory may have a name in different upper and lower case."""
    return next((scenario for scenario in _LOADGEN_NAMES if scenario.lower() == name.lower()), name)


def loadgen_scenario(name: str) -> str | None:
    """Return LoadGen's scenario of the name of a scenario or its directory; None if LoadGen has no such scenario."""
    return _LOADGEN_NAMES.get(official_scenario(name))


def claim_of(scenario: Scenario, benchmark: Benchmark, in_round: Round | None) -> RunClaim:
    """Return the claim of a run outside a tree.

    Args:
        in_round: Round whose requirements apply. If it is None or does not have the benchmark, the requirements of the
            benchmark itself apply. If it is None, the seeds of all rounds are allowed.
    """
    entry, min_duration_ms = benchmark.entry, benchmark.min_duration_ms
    rounds = tuple(ROUNDS) if in_round is None else (in_round.name,)
    if in_round is not None and (round_entry := in_round.table.entry(benchmark.submission_name)) is not None:
        return RunClaim(scenario, benchmark, round_entry, rounds, required_ms(in_round, round_entry))
    return RunClaim(scenario, benchmark, entry, rounds, min_duration_ms)


def required_ms(in_round: Round, entry: RoundBenchmark) -> int | None:
    """Return the minimum duration of a performance run in a round, in ms; None for benchmarks without one."""
    return in_round.table.min_duration_ms if entry.time_bound else None
