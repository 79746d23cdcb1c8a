"""Options that several commands have, and what they come to."""

import os
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, get_args

import click

from compliance.evidence.accuracy import ScoreSources
from compliance.mechanisms.declaration import (
    FIELD_NAMES,
    SUPPORT_STATUS,
    SUPPORT_STATUSES,
    Declaration,
    DeclaredFields,
    declare,
    from_environment,
    read_declaration_file,
)
from compliance.submission.system import SystemFile, read_system_file
from runs.errors import InputError
from runs.rounds import CURRENT_ROUND, ROUNDS
from scenarios.command_line.command import PATH
from scenarios.leg.config import load_yaml

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Several of click's options as one, in the order of `--help`."""
    return lambda function: reduce(lambda decorated, option: option(decorated), reversed(options), function)


def round_option(what: str) -> Decorator:
    """`--round`; `what` it is for, as a sentence."""
    return click.option(
        "--round", type=click.Choice(list(ROUNDS)), default=CURRENT_ROUND.name, show_default=True, help=what
    )


def score_options(without: str) -> Decorator:
    """What answers are scored with; `without` says what, where these are not given."""
    return together(
        click.option("--dataset-path", type=PATH, metavar="FILE", help=f"Data set to score the answers with{without}"),
        click.option(
            "--model-path",
            metavar="MODEL",
            help="Model whose tokenizer decodes the answers. Default: the one in manifest.json.",
        ),
    )


def score_sources(dataset_path: Path | None, model_path: str | None) -> ScoreSources:
    """What `score_options` come to.

    Raises:
        InputError: there is no such data set.
    """
    if dataset_path is not None and not dataset_path.is_file():
        raise InputError(f"--dataset-path {dataset_path} is no file", "name the data set that the legs used")
    return ScoreSources(dataset_path, model_path)


def tree_options(without: str) -> Decorator:
    """What a tree is made of besides its runs; `without` says what there is without --source."""
    return together(
        click.option(
            "--system",
            type=PATH,
            metavar="FILE",
            help="YAML with facts of the system that cannot be detected; see configs/system-example.yaml.",
        ),
        click.option("--source", type=PATH, metavar="DIR", help=f"Code to submit. {without}"),
        score_options(". Default: the one in manifest.json."),
    )


def system_file(path: Path | None) -> SystemFile:
    """What the submitter says of the system: --system of `tree_options`."""
    return read_system_file(load_yaml(path, "--system") if path is not None else {})


declaration_options = together(
    click.option("--declaration", type=PATH, metavar="FILE", help="YAML with the fields below."),
    click.option(
        "--support-status",
        type=click.Choice(SUPPORT_STATUSES),
        help="Support status of the result. Default: supported for a baseline, else reviewed_preview.",
    ),
    *(
        click.option(
            f"--{name.replace('_', '-')}",
            metavar=get_args(field.annotation)[0].__name__.upper(),
            help=field.description,
        )
        for name, field in DeclaredFields.model_fields.items()
        if name in FIELD_NAMES
    ),
)


def take_declaration(options: dict[str, Any]) -> Declaration:
    """Take the declaration's options out of `options`: the command line before the environment before the file.

    What all of them leave open, the record of each run declares.

    Raises:
        InputError: the file is no declaration.
    """
    given = {name: options.pop(name) for name in (*FIELD_NAMES, SUPPORT_STATUS)}
    path = options.pop("declaration")
    file = {} if path is None else read_declaration_file(path)
    return declare(given, from_environment(os.environ), file)
