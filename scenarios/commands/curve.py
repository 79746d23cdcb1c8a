"""The `curve` command, which measures all points of an MLPerf Endpoints submission."""

from functools import partial
from pathlib import Path

import click

from runs.errors import ExitCode
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, GroupedOption, all_mistakes
from scenarios.console import wide_console

PLAIN_WIDTH = 160  # width of a table in characters if the output is not a terminal

EXAMPLES = (
    "write the configuration: init --kind endpoints > curve.yaml",
    "show the points, and start nothing: curve --config curve.yaml --dry-run",
    "measure the points, and build the submission: curve --config curve.yaml",
    "rehearse with short points: curve --config curve.yaml --rehearsal",
)

_option = partial(click.option, cls=GroupedOption)


@click.command(cls=Command, collects_mistakes=True, examples=EXAMPLES)
@_option("--config", type=PATH, metavar="FILE", required=True, help="YAML file that describes the curve.")
@_option("--output-log-dir", type=PATH, metavar="DIR", help="Directory of the curve. Default: output/<name of FILE>.")
@_option("--probe", is_flag=True, help="Measure rates first, also if FILE gives all concurrencies.")
@_option(
    "--until",
    type=click.Choice(("plan", "points", "tree")),
    default="tree",
    help="Last step: plan, points or tree. Default: tree.",
)
@_option(
    "--rehearsal", is_flag=True, help="Measure short points, and accept another model. The tree cannot be uploaded."
)
@click.option("--dry-run", is_flag=True, help="Check and show the plan; start and write nothing.")
@click.option(
    "--restart-changed", is_flag=True, help="Move points whose settings have changed to discarded/, and repeat them."
)
@click.pass_context
def curve(
    ctx: click.Context,
    /,
    config: Path | None,
    output_log_dir: Path | None,
    probe: bool,
    until: str,
    rehearsal: bool,
    restart_changed: bool,
    dry_run: bool,
) -> ExitCode:
    """Measure all points of an MLPerf Endpoints submission of a running server.

    The command finds the highest useful concurrency with probes, plans the points, runs the client of MLCommons for
    each point, and checks each run. It then builds the submission in DIR/tree and checks it, also with
    endpoints-submission-cli if that program is installed.

    After an interruption, the same command continues. It keeps the points whose checks passed, and moves all other runs
    to discarded/. A failed point is repeated once.

    Exit codes: 0 everything accepts the tree, 1 a point or the tree fails a check, 2 bad input or changed settings, 3
    refused to start, 4 the server or the client failed, 130 interrupted.
    """
    with all_mistakes(ctx):
        if config is not None:  # A wrong path is a mistake of the command line already.
            from scenarios.curve.curve_config import load_curve

            loaded = load_curve(config, output_log_dir, is_rehearsal=rehearsal)
    from scenarios.curve.run_curve import run_curve

    console = wide_console(PLAIN_WIDTH)
    code = run_curve(loaded, console, probe=probe, until=until, restart_changed=restart_changed, dry_run=dry_run)
    command_output.put(directory=loaded.root)
    return code
