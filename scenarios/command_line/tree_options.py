"""Options of the commands that build a submission tree."""

import click

from scenarios.command_line.command import PATH
from scenarios.command_line.options import Decorator, score_options, together


def tree_options(without: str) -> Decorator:
    """Return the options for the parts of a tree that are not runs; `without` states the default of --source."""
    return together(
        click.option(
            "--system",
            type=PATH,
            metavar="FILE",
            help="YAML file with facts of the system that cannot be detected. Example: configs/system-example.yaml. "
            "Default: the file that the key `system` of the campaign names.",
        ),
        click.option("--source", type=PATH, metavar="DIR", help=f"Directory of the source code to submit. {without}"),
        score_options(". Default: the dataset in manifest.json."),
    )
