"""The `campaign` command: every run of a submission from one YAML file."""

from pathlib import Path
from typing import Any

import click

from runs.errors import ExitCode
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command
from scenarios.console import wide_console

PLAIN_WIDTH = 160  # of tables where there is no terminal to ask

EXAMPLES = (
    "every run of a closed datacenter submission: campaign --config ../mlperf/campaign.yaml",
    "its plan, without starting it: campaign --config ../mlperf/campaign.yaml --dry-run",
    "after a change to the file: campaign --config ../mlperf/campaign.yaml --restart-changed",
)


@click.command(cls=Command, examples=EXAMPLES)
@click.option(
    "--config", type=PATH, metavar="FILE", required=True, help="YAML file of the campaign (docs/campaign.md)."
)
@click.option(
    "--output-log-dir", type=PATH, metavar="DIR", help="Directory of the campaign. Default: output/<name of FILE>."
)
@click.option("--model-path", metavar="MODEL", help="Model folder or hub ID; overrides FILE.")
@click.option("--dataset-path", type=PATH, metavar="FILE", help="Dataset; overrides FILE.")
@click.option("--signing-key", type=PATH, metavar="FILE", help="Key that signs the runs; overrides FILE.")
@click.option("--dry-run", is_flag=True, help="Check and show the plan; run and write nothing.")
@click.option(
    "--restart-changed",
    is_flag=True,
    help="Set runs of another configuration aside and run them again.",
)
def campaign(config: Path, dry_run: bool, restart_changed: bool, **options: Any) -> ExitCode:
    """Start every run that a submission needs, from one YAML file: performance, accuracy and audits of each scenario.

    The plan is checked and shown before the first run. Runs go to DIR/BENCHMARK/SCENARIO/. After an interruption the
    same command continues: it keeps runs whose files are complete and pass verification, moves all others to discarded/
    and runs them again. It stops and names each key where a run has another configuration, model, dataset or machine.

    Exit codes: 0 all runs done, 1 a run is INVALID or failed its test, 2 bad input or a changed configuration, 3
    refused to start, 4 a run failed while running, 130 interrupted. A run's failure does not end the
    campaign.
    """
    from scenarios.campaign.config import load_campaign
    from scenarios.campaign.run import run_campaign
    from scenarios.status.shown_runs import say_page

    console = wide_console(PLAIN_WIDTH)
    asked = load_campaign(config, {name: value for name, value in options.items() if value is not None})
    code = run_campaign(asked, console, dry_run=dry_run, restart_changed=restart_changed)
    command_output.put(directory=asked.place.root)
    if not dry_run:
        say_page(asked.place.root, console)
    return code
