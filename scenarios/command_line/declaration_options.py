"""Options that declare the technique of a result."""

import os
from typing import Any, get_args

import click

from compliance.techniques.declaration import (
    FIELD_NAMES,
    QUALITY_BASELINE,
    QUALITY_RESULTS,
    SUPPORT_STATUS,
    SUPPORT_STATUSES,
    Declaration,
    DeclaredFields,
    declaration_of,
    from_environment,
    read_declaration_file,
)
from runs.errors import InputError
from scenarios.command_line.command import PATH
from scenarios.command_line.options import together

declaration_options = together(
    click.option("--declaration", type=PATH, metavar="FILE", help="YAML file with the fields of the declaration."),
    click.option(
        "--support-status",
        type=click.Choice(SUPPORT_STATUSES),
        metavar=f"[{'|'.join(SUPPORT_STATUSES)}]",
        help="Support status to declare. Default: supported for a baseline, else reviewed_preview.",
    ),
    click.option(
        "--quality-results",
        type=PATH,
        metavar="FILE",
        help="JSON file with the results of the quality evaluation: from lm-evaluation-harness, or an object with the "
        "keys metric, value, n and baseline.",
    ),
    click.option("--quality-baseline", metavar="FLOAT", help=DeclaredFields.model_fields[QUALITY_BASELINE].description),
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
    """Remove the declaration from `options` and return it. The command line overrides the environment and the file.

    The manifest of each run supplies the fields that are missing in all three.

    Raises:
        InputError: If the file is not a declaration, or the results file does not exist.
    """
    fields = {name: options.pop(name) for name in (*FIELD_NAMES, SUPPORT_STATUS, QUALITY_BASELINE)}
    results = options.pop(QUALITY_RESULTS)
    if results is not None and not results.is_file():
        raise InputError(f"--quality-results {results}: not a file", "give the results file of the evaluation")
    fields[QUALITY_RESULTS] = results and str(results.resolve())
    path = options.pop("declaration")
    file = {} if path is None else read_declaration_file(path)
    return declaration_of(fields, from_environment(os.environ), file)
