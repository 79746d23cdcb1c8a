"""The `report` command, which writes one HTML page about runs, campaigns and tunings."""

from pathlib import Path

import click

from runs.errors import ExitCode
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command
from scenarios.console import tell

EXAMPLES = (
    "show one run: report RUN_DIR",
    "show a campaign and a tuning on one page: report output/campaign output/tune-Server --output page.html",
    "show MLPerf Endpoints runs: report RUN_FOLDER --output page.html",
    "draw one run as a picture: report RUN_DIR --output run.svg",
)


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("folders", metavar="DIR...", type=PATH, nargs=-1, required=True)
@click.option(
    "--output",
    type=PATH,
    metavar="FILE",
    help="File of the page. A name that ends in .svg writes a picture of one run. Default: report.html in the first "
    "DIR.",
)
def report(folders: tuple[Path, ...], output: Path | None) -> ExitCode:
    """Write one HTML page about the runs, campaigns and tunings in DIR.

    The page also shows MLPerf Endpoints runs. It is one file, and loads nothing from the network.
    Each run, campaign and tuning also writes a page of its own when it ends.

    The command recomputes the numbers of a bench from its run directories.

    Exit codes: 0 done, 2 bad input or no finished run, 3 the page cannot be written, or bench.json contradicts the run
    directories of the bench.
    """
    from scenarios.status.shown_runs import write_page

    path = write_page(folders, output)
    command_output.put(page=path)
    tell(f"written to {path}")
    return ExitCode.OK
