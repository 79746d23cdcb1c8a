"""`main.py check`: from the command line to findings, files and exit code."""

from pathlib import Path

import click
from rich.console import Console

from compliance.submission.check.driver import check_tree
from compliance.submission.check.official_checker import run_official
from compliance.submission.check.rebuild import MadeOf, hold_against_runs
from compliance.submission.check.report import CheckOutcome, as_json, exit_code, print_report
from compliance.submission.check.runs_index import index_runs
from runs.errors import ExitCode, InputError
from runs.files import write_json
from runs.rounds import CURRENT_ROUND, ROUNDS, Round
from scenarios.commands import answer
from scenarios.commands.help import Command
from scenarios.commands.paths import PATH
from scenarios.commands.submit import given_options, score_sources, system_file
from scenarios.commands.written import writing

CHECK_HELP = """Check a submission tree before it is uploaded.

TREE is the directory that holds closed/ or open/. Our own checks come first: every rule of the official submission
checker that touches this benchmark, and what it leaves open. --official then runs the official checker from a checkout
of mlcommons/inference, unmodified. With --runs the tree is built again from the runs and every file compared: `submit`
has to take the runs, and those of closed results have to sign off (`main.py signoff`, scope bundle). Nothing in TREE is
changed. A rehearsal is always refused.

Exit codes: 0 clean, 1 findings or no sign-off, 2 no such tree or nothing in it, 3 the record cannot be written, 4 the
official checker could not be run."""

EXAMPLES = (
    "before an upload: check TREE --runs output/campaign",
    "with the official checker: check TREE --official ../inference --strict",
    "a whole round's results: check REPOSITORY --round v5.1 --json round.json",
)


def check(
    tree: Path,
    *,
    in_round: Round,
    official: Path | None,
    json_file: Path | None,
    strict: bool,
    made_of: MadeOf | None,
    console: Console,
) -> ExitCode:
    """Check a tree; prints the findings and returns the exit code.

    Args:
        made_of: what the tree is to be held against.

    Raises:
        InputError: no such tree, or nothing in it.
        SetupError: the record cannot be written. ExecutionError: the official checker could not be run.
    """
    signed = None
    with console.status("checking"):
        checked = check_tree(tree, in_round)
        if made_of is not None:
            checked, signed = hold_against_runs(checked, made_of)
        outcome = CheckOutcome(
            checked, official=None if official is None else run_official(official, tree, in_round), signed=signed
        )
    print_report(outcome, console, strict=strict)
    record = as_json(outcome, strict=strict)
    answer.put(**record)
    if json_file is not None:
        with writing("--json", json_file):
            write_json(json_file, record)
    return exit_code(outcome, strict=strict)


def check_click_command() -> click.Command:
    """The command for main.py."""

    def callback(
        tree: Path,
        round: str,
        official: Path | None,
        json: Path | None,
        strict: bool,
        runs: tuple[Path, ...],
        system: Path | None,
        source: Path | None,
        dataset_path: Path | None,
        model_path: str | None,
    ) -> ExitCode:
        made_of = None
        if runs:
            made_of = MadeOf(
                index_runs(list(runs)),
                given=None if system is None else system_file(system),
                source=source,
                sources=score_sources(dataset_path, model_path),
            )
        elif any((system, source, dataset_path, model_path)):
            raise InputError("--system, --source, --dataset-path and --model-path belong to --runs", "name the runs")
        return check(
            tree,
            in_round=ROUNDS[round],
            official=official,
            json_file=json,
            strict=strict,
            made_of=made_of,
            console=Console(),
        )

    path = PATH
    return Command(
        "check",
        callback=callback,
        help=CHECK_HELP,
        examples=EXAMPLES,
        params=[
            click.Argument(["tree"], metavar="TREE", type=path),
            click.Option(
                ["--round"],
                type=click.Choice(list(ROUNDS)),
                default=CURRENT_ROUND.name,
                show_default=True,
                help="The round whose layout and seeds are asked for.",
            ),
            click.Option(
                ["--official"],
                type=path,
                metavar="PATH",
                help="Also run the official checker of this checkout of mlcommons/inference.",
            ),
            click.Option(["--json"], type=path, metavar="[FILE]", help="Also write the full record there."),
            click.Option(["--strict"], is_flag=True, help="Warnings count as well."),
            click.Option(
                ["--runs"],
                type=path,
                metavar="DIR",
                multiple=True,
                help="Runs that the tree was made of. Repeatable. The four options below are as `submit` had them.",
            ),
            *given_options("Default: this repository at the commit that the runs name."),
        ],
    )
