"""Options of the commands that build a submission tree."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runs.errors import InputError
from runs.files.reading import read_object
from runs.record.layout import campaign_of
from scenarios.command_line.command import PATH
from scenarios.command_line.options import Decorator, score_options, together

if TYPE_CHECKING:
    from compliance.submission.system import SystemFile


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


def system_file(path: Path | None, folders: Iterable[Path]) -> "SystemFile | None":
    """Read the submitter's facts of the system from the file of --system, or from the file that a campaign names.

    Args:
        folders: Directories of campaigns, or directories in them.

    Raises:
        InputError: If the file is wrong, or campaigns name different files.
    """
    from compliance.submission.system import read_system_file
    from runs.files.yaml_file import read_yaml
    from runs.files.yaml_keys import with_underscores

    if path is None:
        named = dict.fromkeys(name for folder in folders if (name := _named_by_campaign(folder)))
        if len(named) > 1:
            raise InputError(f"the campaigns name different system files: {', '.join(named)}", "give --system FILE")
        path = next(map(Path, named), None)
    if path is None:
        return None
    try:
        return read_system_file(with_underscores(read_yaml(path, "--system")))
    except InputError as error:  # The user may not know which file the campaign names.
        raise InputError(error.message.replace("--system:", f"--system {path}:", 1), error.fix) from error


def _named_by_campaign(folder: Path) -> str:
    """Return the system file in the campaign of a directory; empty if there is none."""
    campaign = campaign_of(folder)
    if campaign is None:
        return ""
    requested = read_object(campaign.configuration, "restore the file, or give --system FILE").get("asked")
    return str((requested or {}).get("system") or "")
