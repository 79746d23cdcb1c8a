"""The `results` command, which lists the results of runs as a table."""

import sys
from pathlib import Path

import click

from runs.errors import ExitCode, InputError
from runs.wording import printable
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command
from scenarios.console import tell, wide_console

EXAMPLES = (
    "list the runs in ./output: results",
    "write the runs of one campaign for a spreadsheet: results output/campaign --csv",
    "write JSON for a program: results output/campaign --json",
)

PLAIN_WIDTH = 200  # width of a table in characters if the output is not a terminal


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("folders", metavar="[DIR]...", type=PATH, nargs=-1)
@click.option("--csv", "comma_separated", is_flag=True, help="Print CSV with every column.")
def results(folders: tuple[Path, ...], comma_separated: bool) -> ExitCode:
    """List the results of the runs in DIR (default: ./output), one line per run.

    The numbers are those that LoadGen, the scorer or the MLPerf Endpoints client reported. A run with the mark * is not
    eligible for submission. The command names runs without a result on standard error.

    Exit codes: 0 all runs VALID or passed, 1 a run is INVALID or failed its target, 2 bad input or no run found,
    4 a run has no result, because it is in progress or did not finish.
    """
    from scenarios.status.find import NEEDED, find_in, without_runs
    from scenarios.status.result_rows import as_csv, as_table, no_result, rows_of
    from scenarios.status.run_kinds import run_status
    from scenarios.status.snapshot import DEFAULT_FOLDER

    folders = folders or (DEFAULT_FOLDER,)
    places = find_in(folders)
    empty = without_runs(folders, places)
    runs = [run_status(place.root) for place in places if place.kind == "leg"]
    if not runs:
        where = ", ".join(map(str, folders))
        raise empty[0].refused(NEEDED) if empty else InputError(f"{where}: no run found", "give a directory with runs")
    rows, without = rows_of(runs)
    sentences = [*map(no_result, without), *(f"{place.path} {place.text}" for place in empty)]
    for sentence in sentences:
        print(printable(sentence), file=sys.stderr)
    command_output.put(results=rows, without_result=without)
    if comma_separated:
        sys.stdout.write(as_csv(rows))
    elif rows:
        wide_console(PLAIN_WIDTH).print(as_table(rows))
        if not all(row["official"] for row in rows):
            tell("* not eligible for submission")
    if without:
        return ExitCode.FAILED
    return ExitCode.NEGATIVE if any(run.exit_code for run in runs) else ExitCode.OK
