"""Options of commands that build a submission tree, and what they come to."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from scenarios.command_line.command import PATH
from scenarios.command_line.options import Decorator, score_options, together

if TYPE_CHECKING:
    from compliance.submission.system import SystemFile


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


def system_file(path: Path | None) -> "SystemFile":
    """What the submitter says of the system: --system of `tree_options`."""
    from compliance.submission.system import read_system_file
    from runs.yaml_file import read_yaml, with_underscores

    return read_system_file(with_underscores(read_yaml(path, "--system")) if path is not None else {})
