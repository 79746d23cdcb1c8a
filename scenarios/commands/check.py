"""The `check` command, which checks a submission tree or MLPerf Endpoints folders."""

import time
from pathlib import Path

import click

from runs.errors import ExitCode
from runs.files.writing import write_atomic
from runs.rounds import TREE_ROUNDS
from runs.wording import moment
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, given_options, write_record, writing
from scenarios.command_line.options import round_option, score_sources, seed_sets_option
from scenarios.command_line.tree_options import tree_options
from scenarios.console import say_lines

EXAMPLES = (
    "compare a tree with its runs, before an upload: check TREE --runs output/campaign",
    "run the official checker too: check TREE --official ../inference --strict",
    "check all results of a published round: check REPOSITORY --round v5.1 --report round.html --json round.json",
)


@click.command(
    cls=Command,
    examples=EXAMPLES,
    shown=("--round", "--against", "--official", "--json", "--report", "--strict", "--runs"),
)
@click.argument("tree", metavar="TREE", type=PATH)
@round_option("Round whose rules, layout and seeds apply. v4.1: the limits of v5.0.", rounds=TREE_ROUNDS)
@click.option(
    "--against",
    type=PATH,
    metavar="TREE",
    multiple=True,
    help="Report runs that are copies of runs in this other tree, of any round. Repeatable.",
)
@click.option(
    "--official",
    type=PATH,
    metavar="PATH",
    help="Also run the official checker. PATH is a clone of mlcommons/inference or, for MLPerf Endpoints, the program "
    "endpoints-submission-cli.",
)
@click.option("--json", type=PATH, metavar="[FILE]", help="Also write all findings to FILE, as JSON.")
@click.option("--report", type=PATH, metavar="FILE", help="Also write the findings to FILE, as one HTML page.")
@click.option("--strict", is_flag=True, help="Exit with code 1 also if the only findings are warnings.")
@click.option(
    "--runs",
    type=PATH,
    metavar="DIR",
    multiple=True,
    help="Directory of the runs from which the tree was built. Repeatable. Give --system, --source, --dataset-path and "
    "--model-path as you gave them to `submit`.",
)
@seed_sets_option()
@tree_options("Default: this repository, at the commit that the manifests state.")
def check(
    tree: Path,
    round: str,
    against: tuple[Path, ...],
    official: Path | None,
    json: Path | None,
    report: Path | None,
    strict: bool,
    runs: tuple[Path, ...],
    seed_sets: Path | None,
    system: Path | None,
    source: Path | None,
    dataset_path: Path | None,
    model_path: str | None,
) -> ExitCode:
    """Check a submission tree before it is uploaded.

    TREE is the directory that contains closed/ or open/. The command applies all rules of the official submission
    checker for this benchmark, and additional rules. It does not change TREE. A rehearsal tree is never clean.

    With --runs, the command rebuilds the tree from the runs and compares every file. `submit` must accept the runs, and
    the runs of closed results must sign off (`signoff --scope bundle`).

    TREE can also be an MLPerf Endpoints run folder, a directory with such run folders, or an Endpoints submission. The
    command checks run folders against the newest Endpoints round and lists missing submission files. It checks a
    submission with endpoints-submission-cli if that program is installed. With --dataset-path, it recomputes ROUGE.

    Exit codes: 0 clean, 1 findings, or the runs do not sign off, 2 TREE does not exist or is empty, 3 a file cannot be
    written, 4 the official checker failed to run.
    """
    from compliance.judge.record import record
    from compliance.judge.text import text_lines
    from compliance.sources import VerdictRequest, find
    from scenarios.live.waiting import waiting
    from scenarios.terminal import Terminal

    console = Terminal()
    request = VerdictRequest(
        score_sources(dataset_path, model_path),
        given_options(),
        round=TREE_ROUNDS[round],
        seed_sets=seed_sets,
        against=against,
        runs=runs,
        system=system,
        source=source,
        checker=official,
        strict=strict,
    )
    with waiting(console, "checking"):
        (case,) = find("check", [tree], request)
        verdict = case.judge()
    say_lines(console, text_lines(verdict, case.layout))
    content = record(verdict, strict=strict)
    command_output.put(**content)
    write_record("--json", json, content)
    if report is not None:
        from compliance.report.tree_page import tree_page  # Importing matplotlib takes a moment.

        with writing("--report", report):
            write_atomic(report, tree_page(content, moment(time.time_ns())))
    return verdict.exit_code(strict=strict)
