"""Options of the commands that build a submission tree."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from scenarios.command_line.command import PATH
from scenarios.command_line.options import Decorator, score_options, together

if TYPE_CHECKING:
    from compliance.submission.system import SystemFile


def tree_options(without: str) -> Decorator:
    """Return the options for the parts of a tree besides its runs; `without` states the default of --source."""
    return together(
        click.option(
            "--system",
            type=PATH,
            metavar="FILE",
            help="YAML file with facts of the system that cannot be detected; see configs/system-example.yaml.",
        ),
        click.option("--source", type=PATH, metavar="DIR", help=f"Directory of the code to submit. {without}"),
        score_options(". Default: the one in manifest.json."),
    )


def system_file(path: Path | None) -> "SystemFile":
    """Read the submitter's facts of the system from the file of --system."""
    from compliance.submission.system import read_system_file
    from runs.files.yaml_file import read_yaml, with_underscores

    return read_system_file(with_underscores(read_yaml(path, "--system")) if path is not None else {})
