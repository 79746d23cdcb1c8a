"""The `submit` command, which builds a submission tree."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compliance.trees.tree import DIVISIONS
from runs.errors import ExitCode
from runs.rounds import ROUNDS
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, given_options, write_record
from scenarios.command_line.options import round_option, score_sources, seed_sets_option
from scenarios.command_line.tree_options import tree_options
from scenarios.console import say, say_lines

if TYPE_CHECKING:
    from compliance.judge.verdict import Verdict

EXAMPLES = (
    "submit the runs of a campaign: submit output/campaign --organization ORG --system-name NAME --system system.yaml "
    "--output tree",
    "submit a result in the open division: submit RESULT --division open --organization ORG --system-name NAME "
    "--output tree",
    "build a tree from runs that are not eligible: submit output/campaign --rehearsal --organization ORG "
    "--system-name NAME --output tree",
)


@click.command(
    cls=Command,
    examples=EXAMPLES,
    shown=("--organization", "--system-name", "--output", "--division", "--round", "--system", "--rehearsal"),
)
@click.argument("results", metavar="RESULT...", type=PATH, nargs=-1, required=True)
@click.option(
    "--organization",
    "--organisation",
    "organization",
    required=True,
    metavar="ORG",
    help="Name of the submitter and of its directory in the tree.",
)
@click.option(
    "--system-name", required=True, metavar="NAME", help="Name of the system and of its directory in the tree."
)
@click.option(
    "--division",
    type=click.Choice(DIVISIONS),
    default="closed",
    show_default=True,
    help="Division of the tree. The open division allows other models and options, and requires no particular "
    "scenarios or audits. The network division has the rules of the closed division; LoadGen and the servers run on "
    "different machines (docs/servers.md).",
)
@round_option("Round whose layout and seeds apply.")
@click.option("--output", required=True, type=PATH, metavar="TREE", help="Directory to create for the tree.")
@click.option(
    "--documentation",
    type=PATH,
    metavar="DIR",
    help="Directory with files for documentation/ in the tree. The network division requires a system diagram.",
)
@click.option(
    "--rehearsal",
    is_flag=True,
    help="Accept results that are not eligible for submission. The tree is marked as not for upload. Such results may "
    "come from the dummy engine, another model or synthetic data. Duration, seeds and accuracy must still meet the "
    "rules.",
)
@seed_sets_option()
@tree_options("Default: this repository, at the commit that the manifests state.")
@click.option("--json", type=PATH, metavar="[FILE]", help="Also write the output of the command to FILE, as JSON.")
def submit(
    results: tuple[Path, ...],
    round: str,
    system: Path | None,
    dataset_path: Path | None,
    model_path: str | None,
    json: Path | None,
    seed_sets: Path | None,
    **options: Any,
) -> ExitCode:
    """Build a submission tree from runs.

    RESULT is the directory of a campaign, of a result (performance/run_1, accuracy, audit/TEST06), of a run or of an
    audit. The command verifies every result and every required audit from its files, under the official rules. The runs
    of a result must have equal configurations. Except in the open division, they must also pass `signoff --scope
    bundle`. If a rule is violated, the command prints all reasons and writes no tree. It overwrites no file.

    RESULT can also be an MLPerf Endpoints run folder (a point of a curve), or a directory that contains run folders.
    The command checks each folder as `check` does, and writes the submission files that it can derive from the folders
    (docs/mlperf-endpoints.md). It also writes the fields of a point.yaml in the folder. A rehearsal of such runs
    requires only that all samples have a response.

    Exit codes: 0 built, 1 a result, an audit or the sign-off failed, 2 bad input or missing facts of the system,
    3 the tree cannot be written or its source is missing, 4 a run did not finish or its files changed.
    """
    from compliance.judge.record import record
    from compliance.sources import function_for

    build = function_for("submit", results, given_options())
    from compliance.submission.candidate import SubmitRequest
    from compliance.submission.system import SystemFile, find_system_file
    from compliance.submission.this_machine import detected_for
    from scenarios.live.terminal_block import is_live
    from scenarios.live.waiting import waiting
    from scenarios.terminal import Terminal

    console = Terminal()
    request = SubmitRequest(
        results=list(results),
        round=ROUNDS[round],
        given=find_system_file(system, results) or SystemFile({}, {}),
        detect_here=detected_for,
        sources=score_sources(dataset_path, model_path),
        seed_sets=seed_sets,
        **options,
    )
    with waiting(console, "verifying") as show:

        def tell(text: str) -> None:
            show(text)
            if not is_live(console):
                say(console, text)

        verdict: Verdict[Any] = build(request, tell)
    content = record(verdict)
    command_output.put(**content)
    write_record("--json", json, content)
    say_lines(console, verdict.details.lines(verdict))
    return verdict.exit_code(strict=True)  # each finding is a refusal
