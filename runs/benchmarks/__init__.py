"""The benchmarks that this harness supports, one module each."""

from runs.benchmark import Benchmark, Scenario
from runs.benchmarks import llama2_70b, llama3_1_8b
from runs.rounds import RoundBenchmark

_ALL: tuple[Benchmark, ...] = (*llama3_1_8b.BENCHMARKS, *llama2_70b.BENCHMARKS)

BENCHMARKS: dict[str, Benchmark] = {benchmark.loadgen_key: benchmark for benchmark in _ALL}
# Requirements of the current round, by the name of the benchmark's directory in a submission tree.
SUBMISSIONS: dict[str, RoundBenchmark] = {benchmark.submission_name: benchmark.entry for benchmark in _ALL}
# Accepted name of a benchmark's directory in a submission tree → preferred name.
DIRECTORIES: dict[str, str] = {
    name: official for official, entry in SUBMISSIONS.items() for name in (official, *entry.aliases)
}


def default_benchmark(scenario: Scenario) -> Benchmark:
    """Return the benchmark of a scenario if no LoadGen key is given."""
    return next(benchmark for benchmark in BENCHMARKS.values() if scenario in benchmark.scenarios)


def submitted_benchmark(directory: str, scenario: Scenario) -> Benchmark:
    """Return the benchmark of a scenario's directory in a submission tree; raise StopIteration if no benchmark fits."""
    name = DIRECTORIES.get(directory, directory)
    return next(
        benchmark
        for benchmark in BENCHMARKS.values()
        if benchmark.submission_name == name and scenario in benchmark.scenarios
    )
