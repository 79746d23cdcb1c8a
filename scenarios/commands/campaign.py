"""The `campaign` command, which starts every run of a submission from one YAML file."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from runs.errors import ExitCode
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, GroupedOption, all_mistakes
from scenarios.console import wide_console

PLAIN_WIDTH = 160  # width of a table in characters if the output is not a terminal

EXAMPLES = (
    "start every run of a closed datacenter submission: campaign --config ../mlperf/campaign.yaml",
    "show the plan of a campaign, and start nothing: campaign --config ../mlperf/campaign.yaml --dry-run",
    "continue after a change to the file: campaign --config ../mlperf/campaign.yaml --restart-changed",
)


_option = partial(click.option, cls=GroupedOption)


@click.command(cls=Command, collects_mistakes=True, examples=EXAMPLES)
@_option(
    "--config",
    type=PATH,
    metavar="FILE",
    required=True,
    help="YAML file that describes the campaign (docs/campaign.md).",
)
@_option(
    "--output-log-dir", type=PATH, metavar="DIR", help="Directory of the campaign. Default: output/<name of FILE>."
)
@_option("--model-path", metavar="MODEL", help="Model folder or Hugging Face Hub ID. Overrides the file of --config.")
@_option(
    "--dataset-path", type=PATH, metavar="FILE", help="Dataset in the MLCommons format. Overrides the file of --config."
)
@_option(
    "--signing-key", type=PATH, metavar="FILE", help="Private key that signs the runs. Overrides the file of --config."
)
@click.option("--dry-run", is_flag=True, help="Check and show the plan; start and write nothing.")
@click.option(
    "--restart-changed", is_flag=True, help="Move runs whose configuration has changed to discarded/, and repeat them."
)
@click.pass_context
def campaign(
    ctx: click.Context, /, config: Path | None, dry_run: bool, restart_changed: bool, **options: Any
) -> ExitCode:
    """Start every run that a submission needs, from one YAML file.

    The runs are the performance, accuracy and audit runs of each scenario. The command checks and shows the plan
    before the first run, and writes the runs to DIR/BENCHMARK/SCENARIO/. A failed run does not end the campaign.

    After an interruption, the same command continues the campaign. It keeps each run whose files are complete and pass
    verification, moves all other runs to discarded/, and repeats them. If the configuration, model, dataset or machine
    of a finished run differs, the command names each difference and refuses to continue.

    Exit codes: 0 all runs are done, 1 a run is INVALID or its audit failed, 2 bad input or a changed
    configuration, 3 refused to start, 4 a run failed, 130 interrupted.
    """
    with all_mistakes(ctx):
        if config is not None:  # A wrong path is a mistake of the command line already.
            from scenarios.campaign.campaign_config import load_campaign

            planned = load_campaign(config, {name: value for name, value in options.items() if value is not None})
    from scenarios.campaign.run_campaign import run_campaign
    from scenarios.status.shown_runs import say_page

    console = wide_console(PLAIN_WIDTH)
    code = run_campaign(planned, console, dry_run=dry_run, restart_changed=restart_changed)
    command_output.put(directory=planned.place.root)
    if not dry_run:
        say_page(planned.place.root, console)
    return code
