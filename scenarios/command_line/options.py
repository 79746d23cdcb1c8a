"""Options that multiple commands share."""

from collections.abc import Callable, Collection
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runs.errors import InputError
from runs.rounds import CURRENT_ROUND, ROUNDS
from scenarios.command_line.command import PATH

if TYPE_CHECKING:  # A command's help must not import the code of the options.
    from compliance.results.scoring import ScoreSources

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Combine click options into one decorator, in the order of `--help`."""
    return lambda function: reduce(lambda decorated, option: option(decorated), reversed(options), function)


def round_option(
    what: str, default: str | None = CURRENT_ROUND.name, rounds: Collection[str] = tuple(ROUNDS)
) -> Decorator:
    """Return the option `--round` with the help text `what`."""
    return click.option(
        "--round", type=click.Choice(list(rounds)), default=default, show_default=default is not None, help=what
    )


def seed_sets_option() -> Decorator:
    """Return the option `--seed-sets` for MLPerf Endpoints."""
    return click.option(
        "--seed-sets",
        type=PATH,
        metavar="FILE",
        help="For MLPerf Endpoints: newer seedset.yaml, whose sets are added to those of this version. "
        "Default: the file in the variable MLPERF_ENDPOINTS_SEED_SETS.",
    )


def score_options(without: str) -> Decorator:
    """Return the options for rescoring; `without` states the default dataset."""
    return together(
        click.option(
            "--dataset-path",
            type=PATH,
            metavar="FILE",
            help=f"Dataset with the reference texts for the scores{without}",
        ),
        click.option(
            "--model-path",
            metavar="MODEL",
            help="Model whose tokenizer decodes the output tokens. Default: the model in manifest.json.",
        ),
    )


def score_sources(dataset_path: Path | None, model_path: str | None) -> "ScoreSources":
    """Return the sources of `score_options`.

    Raises:
        InputError: If the dataset does not exist.
    """
    if dataset_path is not None and not dataset_path.is_file():
        raise InputError(f"--dataset-path {dataset_path}: not a file", "give the dataset that the runs used")
    from compliance.results.scoring import ScoreSources

    return ScoreSources(dataset_path, model_path)
