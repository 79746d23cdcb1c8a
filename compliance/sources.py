"""The functions that a command applies to paths: for LoadGen's runs and trees, for benches, for MLPerf Endpoints.

They are imported by name, so that a command imports only the rules of its inputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from compliance.judge.text import TextLayout
from compliance.judge.verdict import Each, Policy, Subject, Verdict, in_turn, judge
from runs.benchmark import Scenario
from runs.errors import InputError
from runs.harness import PROGRAM
from runs.mlperf_endpoints.find_folders import is_for_endpoints
from runs.mlperf_endpoints.layout import is_run_folder
from runs.record.layout import BENCH_FILE
from runs.rounds import Round

if TYPE_CHECKING:  # The modules of the sources import this module.
    from compliance.results.scoring import ScoreSources

CommandName = Literal["verify", "gate", "check", "submit", "signoff"]
NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class VerdictRequest:
    """What the user requests of a command."""

    scores: "ScoreSources"  # dataset and model for rescoring
    options: Mapping[str, str] = field(default_factory=dict)  # on the command line: "--round" and its value, …
    official: bool = False  # True: official rules count for each run
    round: Round | None = None  # round whose rules and seeds apply; None: the round that the seeds name
    seed_sets: Path | None = None  # a newer seedset.yaml for MLPerf Endpoints
    scenario: Scenario | None = None  # scenario that the runs claim
    only: str | None = None  # mode of the runs to check; None: both modes
    against: tuple[Path, ...] = ()  # trees, whose runs may not be in the checked tree
    runs: tuple[Path, ...] = ()  # directories of the runs from which the tree was built
    system: Path | None = None  # --system and --source of the `submit` that built the tree
    source: Path | None = None
    checker: Path | None = None  # the official checker
    strict: bool = False  # True: warnings count as failures


@dataclass(frozen=True)
class Case:
    """A verdict to reach."""

    subject: Subject
    policy: Policy
    layout: TextLayout  # text of the verdict
    each: Each = in_turn  # function that applies the policy to the parts of the subject
    complete: Callable[[Verdict[Any]], None] | None = None  # adds to the verdict what needs other programs or runs
    home: Path = Path()  # directory of the subject
    is_own: bool = False  # True: this harness wrote the directory, so the verdict belongs into it

    def judge(self) -> Verdict[Any]:
        """Apply the policy to the subject, and complete the verdict."""
        verdict = judge(self.subject, self.policy, self.each)
        if self.complete is not None:
            self.complete(verdict)
        return verdict


class Source(NamedTuple):
    """A function that a command applies to some paths."""

    function: str  # "module:function"
    name: str  # program that wrote the paths, for messages
    reads: Callable[[Path], bool]
    refused: tuple[str, ...] = ()  # options that it cannot apply
    only: tuple[str, ...] = ()  # options that no other function of the command can apply
    values: tuple[tuple[str, str], ...] = ()  # options that must have one value


def _is_bench(path: Path) -> bool:
    return (path / BENCH_FILE).is_file()


_ENDPOINTS, _SEED_SETS = "MLPerf Endpoints", ("--seed-sets",)
# The function for LoadGen's runs and trees, and the functions for other paths.
FUNCTIONS: dict[CommandName, tuple[str, tuple[Source, ...]]] = {
    "verify": (
        "compliance.results.policy:result_cases",
        (
            Source(
                "compliance.benches.bench_verdict:bench_cases", f"{PROGRAM} bench", _is_bench,
                ("--accuracy-only", "--performance-only", "--scenario", "--official", "--round", "--dataset-path",
                 "--model-path", "--document"),
            ),
            Source(
                "compliance.mlperf_endpoints.verdict:client_run_cases", _ENDPOINTS, is_run_folder,
                ("--accuracy-only", "--scenario", "--document"), _SEED_SETS,
            ),
        ),
    ),
    # `gate` and `store`, which make a row of each result
    "gate": (
        "compliance.results.policy:result_cases",
        (Source("compliance.mlperf_endpoints.verdict:client_run_cases", _ENDPOINTS, is_run_folder),),
    ),
    "check": (
        "compliance.trees.source:tree_cases",
        (
            Source(
                "compliance.mlperf_endpoints.submission:curve_cases", _ENDPOINTS, is_for_endpoints,
                ("--round", "--against", "--report", "--system", "--source"), _SEED_SETS,
            ),
        ),
    ),
    "submit": (
        "compliance.submission.build:build_submission",
        (
            Source(
                "compliance.submission.build_points:submit_points", _ENDPOINTS, is_for_endpoints,
                ("--division", "--round", "--documentation", "--system", "--source"), _SEED_SETS,
            ),
        ),
    ),
    "signoff": (
        "compliance.signoff.judge:judge_sides",
        (
            Source(
                "compliance.signoff.client_runs:judge_client_runs", _ENDPOINTS, is_run_folder,
                ("--ledger", "--timestamp-ca", "--key"), values=(("--scope", "harness"),),
            ),
        ),
    ),
}  # fmt: skip


def functions_for(
    command: CommandName, paths: Sequence[Path], options: Mapping[str, str] = NO_OPTIONS
) -> list[tuple[Callable[..., Any], list[Path]]]:
    """Return the functions that a command applies to paths, each with its paths. That for LoadGen comes first.

    Args:
        options: Options on the command line, and their values.

    Raises:
        InputError: If an option has no effect, or a value that is not supported for a path.
    """
    loadgen, sources = FUNCTIONS[command]
    inputs_of = {source: list(dict.fromkeys(filter(source.reads, paths))) for source in sources}
    for source, inputs in inputs_of.items():
        if inputs and (refused := ", ".join(option for option in options if option in source.refused)):
            problem = f"{refused}: not supported for {inputs[0]}, which is from {source.name}"
            raise InputError(problem, f"remove {refused}")
        for option, value in source.values if inputs else ():
            if options.get(option, value) != value:
                problem = f"{option} {options[option]}: not supported for {inputs[0]}, which is from {source.name}"
                raise InputError(problem, f"use {option} {value}")
        if not inputs and (useless := ", ".join(option for option in options if option in source.only)):
            raise InputError(f"{useless}: only for {source.name}", f"remove {useless}")
    special = {path for inputs in inputs_of.values() for path in inputs}
    others = [path for path in paths if path not in special]
    named = ((loadgen, others), *((source.function, inputs) for source, inputs in inputs_of.items()))
    return [(_imported(name), inputs) for name, inputs in named if inputs]


def _imported(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)  # type: ignore[no-any-return]


def function_for(
    command: CommandName, paths: Sequence[Path], options: Mapping[str, str] = NO_OPTIONS
) -> Callable[..., Any]:
    """Return the function that a command applies to all paths.

    Raises:
        InputError: If `functions_for` raises it, or only some of the paths are from MLPerf Endpoints.
    """
    (function, inputs), *more = functions_for(command, paths, options)
    if more:
        problem = f"{more[0][1][0]} is from MLPerf Endpoints, {inputs[0]} is not"
        raise InputError(problem, f"use one `{PROGRAM} {command}` for each of them")
    return function


def find(command: CommandName, paths: Sequence[Path], request: VerdictRequest) -> list[Case]:
    """Return the cases of `verify`, `gate` or `check`. Those of LoadGen come first.

    Raises:
        InputError: If a path has nothing for the command, or an option has no effect.
    """
    functions = functions_for(command, paths, request.options)
    return [case for find_cases, inputs in functions for case in find_cases(inputs, request)]
