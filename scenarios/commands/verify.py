"""The `verify` command, which verifies results from their logs."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runs.benchmark import SCENARIOS, Scenario
from runs.errors import ExitCode, InputError
from runs.files.writing import write_atomic
from runs.rounds import ROUNDS
from runs.wording import moment, printable
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, given_options, write_record, writing
from scenarios.command_line.options import round_option, score_options, score_sources, seed_sets_option
from scenarios.console import tell

if TYPE_CHECKING:
    from compliance.judge.text import TextLayout
    from compliance.judge.verdict import Verdict
    from compliance.sources import Case

EXAMPLES = (
    "verify a performance run and an accuracy run: verify PERFORMANCE_DIR ACCURACY_DIR",
    "verify another submitter's result under the official rules: verify RESULT --official --output verdict",
    "write a document that lists every claim with its check: verify RESULT --document verification.md",
)


@click.command(
    cls=Command,
    examples=EXAMPLES,
    shown=("--scenario", "--official", "--round", "--dataset-path", "--output", "--document", "--json"),
)
@click.argument("run_dirs", metavar="RUN_DIR...", type=PATH, nargs=-1, required=True)
@click.option("--accuracy-only", is_flag=True, help="Ignore performance runs.")
@click.option("--performance-only", is_flag=True, help="Ignore accuracy runs.")
@click.option(
    "--scenario",
    type=click.Choice(SCENARIOS),
    help="Scenario of the runs. Default: the scenario in manifest.json or in the log; a Server run with the limits of "
    "Interactive counts as Interactive.",
)
@click.option(
    "--official",
    is_flag=True,
    help="Apply the official rules to all runs. Default: not to runs that manifest.json marks as not eligible for "
    "submission.",
)
@round_option("Round whose rules and seeds apply. Default: the round whose seeds the logs have.", default=None)
@seed_sets_option()
@score_options(". Default: the dataset in manifest.json; if that file is missing, the scores in accuracy.txt count.")
@click.option(
    "--output",
    type=PATH,
    metavar="DIR",
    help="Directory for the verdict. Multiple verdicts are written to numbered subdirectories. Default: the first "
    "RUN_DIR of each result.",
)
@click.option(
    "--document", type=PATH, metavar="FILE", help="Also write a verification document to FILE, in Markdown (.md)."
)
@click.option("--json", type=PATH, metavar="[FILE]", help="Also write all verdicts to FILE, as JSON.")
def verify(
    run_dirs: tuple[Path, ...],
    accuracy_only: bool,
    performance_only: bool,
    scenario: Scenario | None,
    official: bool,
    round: str | None,
    seed_sets: Path | None,
    dataset_path: Path | None,
    model_path: str | None,
    output: Path | None,
    document: Path | None,
    json: Path | None,
) -> ExitCode:
    """Verify results from their logs, and write verify_performance.txt.

    For runs of this harness, the command writes verify_performance.txt and verify_performance.json into the run
    directory. With --output, it writes them into that directory. For logs of other programs, it writes them only with
    --output.

    RUN_DIR is a run directory of this harness, a directory with LoadGen logs, a directory that contains
    performance/run_1 and accuracy, the directory of a campaign or of a bench, or an MLPerf Endpoints run folder. A
    performance run and an accuracy run of one scenario are verified together, as one result. The most severe verdict
    decides the exit code.

    The official rules apply to every run, except a run that manifest.json marks as not eligible for submission. Each
    violation by such a run is printed as `not eligible for submission: ...`.

    Exit codes: 0 PASS, 1 FAIL, 2 bad input or damaged logs, 3 no verdict (benchmark not supported, accuracy log or
    runs of a bench missing, or --output not writable), 4 the logs contradict each other, or a run did not finish.
    """
    if accuracy_only and performance_only:
        raise InputError("--accuracy-only and --performance-only exclude each other", "give only one of these options")
    for name, path in (("--dataset-path", dataset_path), ("--model-path", model_path)):
        if path is not None and performance_only:
            raise InputError(f"{name}: no effect with --performance-only", f"remove {name}")
    if document is not None and document.suffix != ".md":
        raise InputError(f"--document {document}: not a Markdown file name", "give a name that ends in .md")
    from compliance.judge.record import record
    from compliance.judge.text import text
    from compliance.results.scoring import with_scorer
    from compliance.sources import VerdictRequest, find
    from runs.record.finished_run import ACCURACY, PERFORMANCE
    from scenarios.live.waiting import waiting
    from scenarios.terminal import Terminal

    console, verdicts = Terminal(), []
    with with_scorer(score_sources(dataset_path, model_path)) as (scores, _):
        request = VerdictRequest(
            scores,
            given_options(),
            official=official,
            round=None if round is None else ROUNDS[round],
            seed_sets=seed_sets,
            scenario=scenario,
            only=ACCURACY if accuracy_only else PERFORMANCE if performance_only else None,
        )
        cases = find("verify", run_dirs, request)
        for folder in _folders(cases, output):
            case = cases.pop(0)  # A subject keeps what it has read, so each is released after its verdict.
            with waiting(console, "verifying"):
                verdict = case.judge()
            verdicts.append(verdict)
            tell(text(verdict, case.layout).rstrip())
            _save(verdict, case.layout, folder)
    worst = max(verdict.exit_code() for verdict in verdicts)
    content = {"schema_version": 1, "exit_code": int(worst), "results": [record(verdict) for verdict in verdicts]}
    command_output.put(**content)
    write_record("--json", json, content)
    if document is not None:
        from compliance.report.document import document_markdown

        with writing("--document", document):
            write_atomic(document, document_markdown(verdicts, moment(time.time_ns())))
        tell(f"written to {document}")
    return worst


def _folders(cases: "Sequence[Case]", output: Path | None) -> list[Path | None]:
    """Return the directory for each verdict; None for logs of other programs if no `output` is given."""
    if output is None:
        return [case.home if case.is_own else None for case in cases]
    if len(cases) == 1:
        return [output]
    return [output / f"{number:03d}-{case.home.resolve().name}" for number, case in enumerate(cases, start=1)]


def _save(verdict: "Verdict[Any]", layout: "TextLayout", folder: Path | None) -> None:
    """Print the error of a verdict, and write the verdict."""
    from compliance.results.details import RECORD_NAME, TEXT_NAME
    from compliance.results.text import write_verdict

    if verdict.error is not None:
        print(f"error: {printable(str(verdict.error), lines=True)}", file=sys.stderr)
    elif verdict.contradictions:
        print(f"error: {printable(verdict.reasons[0])}", file=sys.stderr)
    if folder is None:
        tell("verdict not saved, because the logs are not from this harness; use --output DIR to save it")
        return
    write_verdict(verdict, folder, layout)
    tell(f"written to {folder}: {RECORD_NAME}, {TEXT_NAME}")
