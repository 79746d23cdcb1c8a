"""The options of a comparison of systems, and the plan that follows from them."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from runs.ab.ab_record import AbMethod
from runs.files.fields import options_in
from scenarios.bench.ladder import LoadStep
from scenarios.bench.option_types import DurationS
from scenarios.checked_options import CheckedOptions

if TYPE_CHECKING:  # `--help` must not import numpy
    from scenarios.bench.bench_plan import Bench

# Options of `bench` that a comparison has, with their names and defaults.
OF_BENCH = (
    *("rates", "concurrency", "input_len", "output_len", "random_range_ratio", "ignore_eos", "dataset_path"),
    *("dataset_name", "tokenizer", "seed", "metadata", "output_log_dir", "model", "backend", "endpoint"),
    *("limits", "goodput"),
)
RATES = "50%"
MIN_BLOCK_S = 2.0
_ab = options_in("ab")


def _share(value: object) -> float:
    """Return the share of a text such as `2%`."""
    if isinstance(value, float):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", str(value).strip())
    if match is None or not float(match[1]) < 100:
        raise ValueError("must be a percentage from 0% to below 100%")
    return float(match[1]) / 100


PercentOption = Annotated[float, BeforeValidator(_share)]


class AbOptions(CheckedOptions):
    """The options that only `ab` has."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    serve: list[str] = _ab(
        "Start a server with this command, and stop it after its turn. Repeatable: one command for each system. "
        "{port} stands for a free port; without it, --port N is appended.",
        "COMMAND",
        [],
    )
    precision: Annotated[PercentOption, Field(gt=0)] = _ab(
        "Stop when each 95% interval of a mean is at most ± this. Default: 2%.",
        "PERCENT%",
        0.02,
        example="2%",
    )
    max_time: DurationS = _ab("Stop after this time: 90s or 20m. Default: 20m.", "TIME", 1200.0, example="20m")
    fail_if_slower: PercentOption | None = _ab(
        "Exit with code 1 if a quantity is worse than that of A by more than this, and its interval excludes 0.",
        "PERCENT%",
        example="3%",
    )
    block: DurationS | None = _ab(
        "Duration of a block. Default: 20 s, then 40 s and 60 s; in turns, the time of 30 queries, from 5 s to 60 s.",
        "TIME",
        example="20s",
    )
    turns: bool = _ab(
        "Let running servers take turns, in the order A B B A. Default: each query goes to one of the servers.",
        default=False,
    )


@dataclass(frozen=True)
class ComparedSystem:
    """A system of a comparison, with the plan of its blocks."""

    name: str  # A, B, …
    target: str  # URL, configuration file, model or command
    bench: "Bench"
    serve: str | None  # command that starts its server


@dataclass(frozen=True)
class Ab:
    """The checked plan of a comparison."""

    command: list[str]
    folder: Path
    systems: list[ComparedSystem]
    steps: tuple[LoadStep, ...]
    method: AbMethod
    precision: float
    max_time_s: float
    fail_if_slower: float | None
    block_s: float | None  # None = by the rules of the method
    seed: int
    has_equal_urls: bool  # True if two systems are one server, so that twins must not have equal prompts
    notes: list[str]

    @property
    def base(self) -> "Bench":
        return self.systems[0].bench
