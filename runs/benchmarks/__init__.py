"""The benchmarks that this harness knows: a module each, and this register of them.

A scenario without a key means the first benchmark below that has it.
"""

from runs.benchmark import LOADGEN_SCENARIO, SCENARIOS, AccuracyTarget, Benchmark, Scenario, Submission
from runs.benchmarks import llama3_1_8b
from runs.rounds import CURRENT_ROUND as _CURRENT
from runs.rounds import ROUNDS, Seeds

_ALL: tuple[Benchmark, ...] = (*llama3_1_8b.BENCHMARKS,)

BENCHMARKS: dict[str, Benchmark] = {one.loadgen_key: one for one in _ALL}
SUBMISSIONS: dict[str, Submission] = {one.submission.name: one.submission for one in _ALL}
# Every name that a benchmark's directory may have in a submission tree, and the one it should have.
DIRECTORIES: dict[str, str] = {name: one.name for one in SUBMISSIONS.values() for name in (one.name, *one.aliases)}


def default_benchmark(scenario: Scenario) -> Benchmark:
    """What a scenario means where no LoadGen key is given."""
    return next(one for one in _ALL if scenario in one.scenarios)


def submitted_benchmark(directory: str, scenario: Scenario) -> Benchmark:
    """What lies in a scenario directory of a benchmark's directory.

    Raises:
        StopIteration: no benchmark of this name has the scenario.
    """
    name = DIRECTORIES.get(directory, directory)
    return next(one for one in _ALL if one.submission.name == name and scenario in one.scenarios)


# Names that go as their users take a benchmark or a round instead.
_FIRST = _ALL[0]
DEFAULT_KEY: dict[Scenario, str] = {one: default_benchmark(one).loadgen_key for one in SCENARIOS}
MIN_DURATION_MS = _FIRST.min_duration_ms
MAX_NEW_TOKENS, MIN_NEW_TOKENS = _FIRST.sampling["performance"].max_tokens, _FIRST.sampling["performance"].min_tokens
RoundSeeds = Seeds
ROUND_SEEDS = {name: one.seeds for name, one in ROUNDS.items()}
CURRENT_ROUND = _CURRENT.name
DATACENTER_TARGET, EDGE_TARGET = BENCHMARKS["llama3_1-8b"].accuracy, BENCHMARKS["llama3_1-8b-edge"].accuracy
MIN_TOKENS_LOADGEN_ACCEPTS = 2

__all__ = [
    "BENCHMARKS", "CURRENT_ROUND", "DATACENTER_TARGET", "DEFAULT_KEY", "DIRECTORIES", "EDGE_TARGET",
    "LOADGEN_SCENARIO", "MAX_NEW_TOKENS", "MIN_DURATION_MS", "MIN_NEW_TOKENS", "MIN_TOKENS_LOADGEN_ACCEPTS",
    "ROUND_SEEDS", "SCENARIOS", "SUBMISSIONS", "AccuracyTarget", "Benchmark", "RoundSeeds", "Scenario",
    "default_benchmark", "submitted_benchmark",
]  # fmt: skip
