"""The `campaign` command: every leg of a submission from one YAML file."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from runs.errors import ExitCode
from scenarios.commands import answer
from scenarios.commands.help import Command
from scenarios.commands.paths import PATH

PLAIN_WIDTH = 160  # of tables where there is no terminal to ask

HELP = """Run every leg that a submission needs, from one YAML file: performance, accuracy and audits of each scenario.

The plan is checked, counted and shown before the first leg. Legs go to DIR/BENCHMARK/SCENARIO/. The same command goes
on after an interruption: a leg whose files are complete and pass verification is kept, every other one is set aside in
discarded/ and run again. A leg that was made with another configuration, model, data set or machine stops the
campaign, naming each key.

Exit codes: 0 all legs done, 1 a leg is INVALID or failed its test, 2 bad input or a changed configuration, 3 refused
to start, 4 a leg failed while running, 130 interrupted. After a leg's failure the other legs are run all the same."""

EXAMPLES = (
    "every leg of a closed datacenter submission: campaign --config ../mlperf/campaign.yaml",
    "its plan, without starting it: campaign --config ../mlperf/campaign.yaml --dry-run",
    "after a change to the file: campaign --config ../mlperf/campaign.yaml --restart-changed",
)


def campaign_click_command() -> click.Command:
    """The click command; its callback returns the exit code."""
    path = PATH
    return Command(
        "campaign",
        callback=_campaign,
        help=HELP,
        examples=EXAMPLES,
        params=[
            click.Option(
                ["--config"], type=path, metavar="FILE", required=True, help="The campaign (docs/campaign.md)."
            ),
            click.Option(
                ["--output-log-dir"], type=path, metavar="DIR", help="Where it goes. Default: output/<name of FILE>."
            ),
            click.Option(["--model-path"], metavar="MODEL", help="Model folder or hub id, above that of FILE."),
            click.Option(["--dataset-path"], type=path, metavar="FILE", help="Data set, above that of FILE."),
            click.Option(["--dry-run"], is_flag=True, help="Check and show the plan; run and write nothing."),
            click.Option(
                ["--restart-changed"],
                is_flag=True,
                help="Set legs aside that were made with another configuration, and run them again.",
            ),
        ],
    )


def _campaign(config: Path, dry_run: bool, restart_changed: bool, **options: Any) -> ExitCode:
    from scenarios.campaign.config import load_campaign
    from scenarios.campaign.run import run_campaign
    from scenarios.status.page import say_page

    given = {name: value for name, value in options.items() if value is not None}
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    campaign = load_campaign(config, given)
    code = run_campaign(campaign, console, dry_run=dry_run, restart_changed=restart_changed)
    answer.put(directory=campaign.place.root)
    if not dry_run:
        say_page(campaign.place.root, console)
    return code
