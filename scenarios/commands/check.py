"""The `check` command, which checks a submission tree or MLPerf Endpoints folders."""

import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runs.errors import ExitCode, InputError, SetupError
from runs.files.writing import write_atomic
from runs.harness import PROGRAM
from runs.rounds import ROUNDS
from runs.wording import moment
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, refuse_given, write_record, writing
from scenarios.command_line.options import round_option, score_sources, seed_sets_option
from scenarios.command_line.tree_options import system_file, tree_options

if TYPE_CHECKING:
    from compliance.mlperf_endpoints.submission import CurveVerdict

EXAMPLES = (
    "compare a tree with its runs, before an upload: check TREE --runs output/campaign",
    "run the official checker too: check TREE --official ../inference --strict",
    "check all results of a published round: check REPOSITORY --round v5.1 --report round.html --json round.json",
)

_NOT_FOR_ENDPOINTS = ("round", "against", "system", "source")
# Modules that are imported for --runs only.
REBUILD, BUILD_POINTS = "compliance.submission.rebuild", "compliance.submission.build_points"


@click.command(
    cls=Command,
    examples=EXAMPLES,
    shown=("--round", "--against", "--official", "--json", "--report", "--strict", "--runs"),
)
@click.argument("tree", metavar="TREE", type=PATH)
@round_option("Round whose rules, layout and seeds apply.")
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
    from compliance.mlperf_endpoints.find_folders import is_for_endpoints, run_folders
    from scenarios.terminal import Terminal

    if is_for_endpoints(tree):
        if report is not None:
            fix = f"use `{PROGRAM} report`" if run_folders(tree) else "remove --report"
            raise InputError(f"--report: not supported for {tree}, which is from MLPerf Endpoints", fix)
        refuse_given(click.get_current_context(), f"{tree}, which is from MLPerf Endpoints", _NOT_FOR_ENDPOINTS)
        return _check_endpoints(tree, official, dataset_path, model_path, json, runs, seed_sets, strict=strict)
    if seed_sets is not None:
        raise InputError("--seed-sets: only for MLPerf Endpoints", "remove --seed-sets")
    if not runs and any((system, source, dataset_path, model_path)):
        raise InputError("--system, --source, --dataset-path and --model-path require --runs", "add --runs DIR")
    from compliance.judge.record import record
    from compliance.trees.check_report import print_report
    from compliance.trees.check_tree import check_submission_tree

    in_round, console, made_of = ROUNDS[round], Terminal(), None
    if runs:
        rebuild = import_module(REBUILD)
        made_of = rebuild.TreeInputs(
            rebuild.index_runs(list(runs)),
            given=system_file(system, runs),
            source=source,
            sources=score_sources(dataset_path, model_path),
        )
    with console.status("checking"):
        checked = check_submission_tree(tree, in_round, against=against)
        verdict = checked.verdict
        verdict.details.strict = strict
        if made_of is not None:
            rebuild.compare_tree_with_runs(verdict, made_of)
        if official is not None:
            from compliance.trees.official_checker import run_official

            verdict.details.official = run_official(official, tree, in_round)
            verdict.refused_by += [] if verdict.details.official.ok else ["the official checker"]
    print_report(checked, console)
    content = record(verdict, strict=strict)
    command_output.put(**content)
    write_record("--json", json, content)
    if report is not None:
        from compliance.report.tree_page import tree_page  # Importing matplotlib takes a moment.

        with writing("--report", report):
            write_atomic(report, tree_page(checked, moment(time.time_ns())))
    return verdict.exit_code(strict=strict)


def _check_endpoints(
    tree: Path,
    official: Path | None,
    dataset_path: Path | None,
    model_path: str | None,
    json: Path | None,
    runs: tuple[Path, ...],
    seed_sets: Path | None,
    *,
    strict: bool,
) -> ExitCode:
    from compliance.judge.record import record
    from compliance.judge.text import text
    from compliance.mlperf_endpoints import judge_of
    from scenarios.terminal import Terminal

    curves = judge_of("submission")
    program, console = curves.find_checker(official, tree), Terminal()
    with console.status("checking"):
        verdict: CurveVerdict = curves.check_folders([tree], dataset_path, model_path=model_path, seed_file=seed_sets)
        if runs:
            against = curves.check_folders(runs, dataset_path, model_path=model_path, seed_file=seed_sets)
            verdict.findings += import_module(BUILD_POINTS).compare_points_with_runs(verdict, against)
            verdict.error = verdict.error or against.error
        curves.add_official_checker(verdict, program, seed_sets)
    if not verdict.details.verdicts and not verdict.details.point_folders and program is None:
        verdict.error = SetupError(f"{tree} contains no run folder", "give --official endpoints-submission-cli")
    console.print(text(verdict, curves.CURVE), end="", highlight=False, soft_wrap=True, markup=False)
    content = record(verdict, strict=strict)
    command_output.put(**content)
    write_record("--json", json, content)
    return verdict.exit_code(strict=strict)
