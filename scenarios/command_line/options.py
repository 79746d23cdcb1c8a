"""Options that several commands have, and what they come to."""

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runs.errors import InputError
from runs.rounds import CURRENT_ROUND, ROUNDS
from scenarios.command_line.command import PATH

if TYPE_CHECKING:  # what options come to is imported when a command runs, not for its help
    from compliance.evidence.scoring import ScoreSources

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Several of click's options as one, in the order of `--help`."""
    return lambda function: reduce(lambda decorated, option: option(decorated), reversed(options), function)


def round_option(what: str, default: str | None = CURRENT_ROUND.name) -> Decorator:
    """`--round`; `what` it is for, as a sentence."""
    return click.option(
        "--round", type=click.Choice(list(ROUNDS)), default=default, show_default=default is not None, help=what
    )


def score_options(without: str) -> Decorator:
    """What responses are scored with; `without` says what, where these are not given."""
    return together(
        click.option("--dataset-path", type=PATH, metavar="FILE", help=f"Dataset to score the responses with{without}"),
        click.option(
            "--model-path",
            metavar="MODEL",
            help="Model whose tokenizer decodes the responses. Default: the one in manifest.json.",
        ),
    )


def score_sources(dataset_path: Path | None, model_path: str | None) -> "ScoreSources":
    """What `score_options` come to.

    Raises:
        InputError: there is no such dataset.
    """
    if dataset_path is not None and not dataset_path.is_file():
        raise InputError(f"--dataset-path {dataset_path} is no file", "name the dataset that the runs used")
    from compliance.evidence.scoring import ScoreSources

    return ScoreSources(dataset_path, model_path)
