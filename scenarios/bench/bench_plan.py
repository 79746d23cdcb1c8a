"""The plan of a bench, from its checked options."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.bench.bench_record import BenchRecord, Fact, Limits, limits_text
from runs.benchmark import Benchmark, Scenario
from runs.benchmarks import BENCHMARKS, default_benchmark, submitted_benchmark
from scenarios.bench.ladder import LONGEST_S, LadderPlan, LoadStep
from scenarios.bench.options import BenchOptions
from scenarios.bench.prompts import PromptLengths, Prompts


@dataclass(frozen=True)
class Bench:
    """The checked plan of a bench."""

    options: BenchOptions  # as on the command line, and those of --like; the fields below replace their defaults
    label: str
    target: str  # model or URL
    command: list[str]  # words of the command line
    folder: Path
    values: dict[str, Any]  # fields of RunConfig that all runs share
    steps: tuple[LoadStep, ...]
    is_adaptive: bool  # True if the user gave no loads, so that the bench refines the best rate
    limits: Limits | None
    prompts: Prompts
    output_len: PromptLengths
    exact_output: bool  # each response has the requested number of tokens
    seed: int
    like: BenchRecord | None
    metadata: dict[str, str]
    notes: list[str]  # defaults, and options without effect

    def ladder(self) -> LadderPlan:
        """Return the loads that the bench measures."""
        options, is_adaptive = self.options, self.is_adaptive
        return LadderPlan(
            steps=self.steps,
            is_adaptive=is_adaptive,
            duration_s=options.duration,
            longest_s=options.duration if "duration" in options.model_fields_set else LONGEST_S,
            max_runs=options.max_runs if is_adaptive else max(options.max_runs, len(self.steps) + 1),
            queries=options.queries or 0,
            repeats=options.repeats,
        )

    def equal_conditions(self) -> dict[str, Fact]:
        """Return the options that must be equal in a comparison."""
        return {
            "scenario": self.options.scenario,
            "duration_s": self.options.duration,
            "exact_output": self.exact_output,
            **self.prompts.facts(),
            "limits": limits_text(self.limits),
        }

    def other_conditions(self) -> dict[str, Fact]:
        """Return the other options that --like and a continued bench reuse."""
        path = self.options.dataset_path
        return {"seed": self.seed, "dataset_path": str(path.resolve()) if path else None}


def benchmark_of(values: Mapping[str, Any], scenario: Scenario) -> Benchmark:
    """Return the benchmark of a run in a scenario. The key of the run may be for another scenario."""
    key = values.get("lg_model_name")
    if key not in BENCHMARKS or scenario in BENCHMARKS[key].scenarios:
        return BENCHMARKS.get(key or "") or default_benchmark(scenario)
    return submitted_benchmark(BENCHMARKS[key].submission_name, scenario)
