"""The `run` command: one LoadGen leg. Imports little: the leg's process is to be under way soon."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from scenarios.commands.schema import command
from scenarios.leg.config import RunConfig, load_yaml, make_config, merged

HELP = """Run one LoadGen leg: performance, or accuracy with --accuracy.

Exit codes: 0 VALID or passed, 1 INVALID or failed, 2 bad input, 3 refused to start, 4 failed while running,
130 interrupted."""


def run_click_command() -> click.Command:
    """The click command; its callback returns the exit code."""
    config = click.Option(
        ["--config"], type=click.Path(path_type=Path), metavar="FILE", help="YAML with the same keys."
    )
    return command("run", RunConfig, _run, HELP, [config])


def _run(values: dict[str, Any]) -> int:
    from scenarios.leg.parent import run_leg

    console = Console()
    config_file = values.pop("config", None)
    config = make_config(merged(load_yaml(config_file) if config_file else {}, values))

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    def prepared() -> Any:
        from scenarios.leg.plan import prepare  # the leg's process is under way by now, and imports much more

        return prepare(config, say)

    return run_leg(config, prepared, console).exit_code
